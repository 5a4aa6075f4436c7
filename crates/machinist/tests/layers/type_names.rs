//! One word, one meaning: a type name that several modules define says too little, and one of the standard library or
//! of Kubernetes is read as theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// How many files may define a type of the same name, tests included.
const MAX_DEFINITIONS: usize = 2;
/// Names that everyone reads as those of the standard library or of Kubernetes.
const FOREIGN: [&str; 12] = [
    "Deployment",
    "Duration",
    "Entry",
    "Error",
    "Node",
    "NodeSpec",
    "NodeStatus",
    "Path",
    "Pod",
    "Result",
    "Secret",
    "Service",
];

fn source_files(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.push(path);
        }
    }
}

/// The name of the type that a line defines. An indented `type` is an associated one, whose name is that of its trait.
fn defined(line: &str) -> Option<&str> {
    // A custom resource: the derive makes the type.
    let derived = line.trim_start().strip_prefix("root = \"");
    let kind = derived.or_else(|| line.trim_start().strip_prefix("kind = \""));
    if let Some(name) = kind {
        return name.split('"').next();
    }
    let words = line.trim_start();
    let words = match words.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => words,
    };
    let (keyword, rest) = words.split_once(' ')?;
    let is_definition = match keyword {
        "struct" | "enum" | "trait" => true,
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let end = |character: char| !character.is_alphanumeric() && character != '_';
    is_definition.then(|| rest.split(end).next()).flatten().filter(|name| !name.is_empty())
}

/// The types of a file. A kind whose type has another name (`root`) defines only that.
fn definitions(text: &str) -> BTreeSet<&str> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut kind = None;
    for line in text.lines() {
        let Some(name) = defined(line) else { continue };
        if line.trim_start().starts_with("kind = ") {
            kind = Some(name);
            continue;
        }
        if line.trim_start().starts_with("root = ") {
            kind = None;
        }
        names.extend(kind.take());
        names.insert(name);
    }
    names
}

#[test]
fn definitions_are_found() {
    for (line, expected) in [
        ("struct A;", Some("A")),
        ("    pub(crate) enum B {", Some("B")),
        ("pub trait C<T> {", Some("C")),
        ("type D<T> = E;", Some("D")),
        ("    type Item = E;", None),
        ("    kind = \"F\",", Some("F")),
        ("fn struct_of() {}", None),
        ("// struct G", None),
    ] {
        assert_eq!(defined(line), expected, "{line}");
    }
    let renamed =
        "#[kube(\nkind = \"Node\",\nroot = \"NodeConfig\",\n)]\npub struct NodeConfigSpec {";
    assert_eq!(definitions(renamed), BTreeSet::from(["NodeConfig", "NodeConfigSpec"]));
    let derived = "kind = \"Pool\",\n)]\npub struct PoolSpec {";
    assert_eq!(definitions(derived), BTreeSet::from(["Pool", "PoolSpec"]));
}

#[test]
fn type_names_have_one_meaning() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for directory in ["crates", "tests/e2e"] {
        source_files(&root.join(directory), &mut files);
    }
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        for defined in definitions(&text) {
            found.entry(defined.to_owned()).or_default().insert(name.clone());
        }
    }
    assert!(found.contains_key("MachineConfigPool"), "{found:#?}");
    let foreign = |name: &String| FOREIGN.contains(&name.as_str());
    found.retain(|name, files| files.len() > MAX_DEFINITIONS || foreign(name));
    assert!(found.is_empty(), "these type names need a qualifier: {found:#?}");
}
