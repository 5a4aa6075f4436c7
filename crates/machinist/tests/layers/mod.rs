//! Modules form a directed graph: which top-level module may use which other one of its crate.
//!
//! The tables in `allowed.rs` are the architecture. An edge that is missing there fails the test, and
//! so does a stale one. Each module uses only modules above its line, so there is no cycle. Code
//! under `#[cfg(test)]` is ignored: tests may reach across.
//!
//! `MACHINIST_UPDATE=1 cargo test -p machinist --test integration layers:: -- --nocapture` prints the tables that
//! match the code. Move an edge there only after deciding that the direction is right.
mod allowed;
mod edges;
mod type_names;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use allowed::{CORE, HUB, MACHINIST, TEST_KIT, Table};
use edges::{Edges, edges_of_crate};

type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// A table as a graph.
fn parse(table: Table) -> Graph<'static> {
    let mut graph = Graph::new();
    for (module, uses) in table {
        let previous = graph.insert(*module, uses.split_whitespace().collect());
        assert!(previous.is_none(), "{module} is listed twice");
    }
    graph
}

/// The modules bottom-up, and those that a cycle keeps out of that order.
fn order<'a>(graph: &Graph<'a>) -> (Vec<&'a str>, Vec<&'a str>) {
    let (mut left, mut ordered) = (graph.clone(), Vec::new());
    loop {
        let leaves: Vec<&str> = left
            .iter()
            .filter(|(_, uses)| !uses.iter().any(|used| left.contains_key(used)))
            .map(|(module, _)| *module)
            .collect();
        if leaves.is_empty() {
            return (ordered, left.into_keys().collect());
        }
        left.retain(|module, _| !leaves.contains(module));
        ordered.extend(leaves);
    }
}

/// Prints the table that matches the code.
fn print_table(name: &str, found: &Edges) {
    let graph: Graph<'_> = found
        .iter()
        .map(|(module, uses)| (module.as_str(), uses.keys().map(String::as_str).collect()))
        .collect();
    let (ordered, in_cycles) = order(&graph);
    println!("pub(crate) const {}: Table = &[", name.to_uppercase());
    for module in ordered.into_iter().chain(in_cycles) {
        let uses: Vec<&str> = graph[module].iter().copied().collect();
        println!("    ({module:?}, {:?}),", uses.join(" "));
    }
    println!("];\n");
}

/// The edges of a table that lead to a line below: without them there is no cycle.
fn order_faults(table: Table) -> Vec<String> {
    let graph = parse(table);
    let mut above = BTreeSet::new();
    let mut faults = Vec::new();
    for (module, _) in table {
        for used in graph[module].difference(&above) {
            faults.push(format!("{module} is listed above {used}, which it uses"));
        }
        above.insert(*module);
    }
    faults
}

/// Compares the code of the crate in a directory with its table.
fn check(directory: &str, name: &str, table: Table) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(directory).join("src");
    let (found, allowed) = (edges_of_crate(&root), parse(table));
    if std::env::var_os("MACHINIST_UPDATE").is_some() {
        print_table(name, &found);
        return;
    }
    let mut faults = Vec::new();
    for (module, uses) in &found {
        let Some(known) = allowed.get(module.as_str()) else {
            faults.push(format!("module {module} has no line in the table"));
            continue;
        };
        for (used, files) in uses.iter().filter(|(used, _)| !known.contains(used.as_str())) {
            faults.push(format!("{module} may not use {used}: {}", files.join(", ")));
        }
        for stale in known.iter().filter(|used| !uses.contains_key(**used)) {
            faults.push(format!("{module} no longer uses {stale}: remove it from the table"));
        }
    }
    for module in allowed.keys().filter(|module| !found.contains_key(**module)) {
        faults.push(format!("{module} is in the table but not in the crate"));
    }
    faults.extend(order_faults(table));
    assert!(
        faults.is_empty(),
        "{directory} does not match crates/machinist/tests/layers/allowed.rs:\n{}",
        faults.join("\n")
    );
}

#[test]
fn layers_of_core() {
    check("crates/core", "core", CORE);
}

#[test]
fn layers_of_hub() {
    check("crates/hub", "hub", HUB);
}

#[test]
fn layers_of_machinist() {
    check("crates/machinist", "machinist", MACHINIST);
}

#[test]
fn layers_of_the_test_kit() {
    check("tests/e2e", "test_kit", TEST_KIT);
}

/// Which crates of the workspace a crate may use: the hub knows nothing of machines, and the test kit shares no code with
/// what it tests.
#[test]
fn crates_use_only_those_below() {
    const CRATES: [(&str, &[&str]); 4] = [
        ("crates/core", &[]),
        ("crates/hub", &[]),
        ("crates/machinist", &["machinist-core", "machinist-hub"]),
        ("tests/e2e", &[]),
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (directory, allowed) in CRATES {
        let manifest = std::fs::read_to_string(root.join(directory).join("Cargo.toml")).unwrap();
        let package = manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap();
        let used = manifest.lines().filter_map(|line| {
            let end = line.find(['.', ' ', '='])?;
            Some(&line[..end]).filter(|name| name.starts_with("machinist"))
        });
        // A crate names itself to give its integration tests a feature.
        let used: Vec<&str> = used.filter(|name| package != format!("{name:?}")).collect();
        assert_eq!(used, allowed, "{directory}");
    }
}

/// The binary has no code of its own, so the table of its library covers it.
#[test]
fn the_binary_only_calls_the_library() {
    let main = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/main.rs");
    let text = std::fs::read_to_string(main).unwrap();
    let paths: Vec<&str> = text.lines().filter(|line| line.contains("machinist::")).collect();
    assert_eq!(paths, ["    machinist::cli::run()"]);
    assert_eq!(text.matches("fn ").count(), 1, "{text}");
}

/// The processes meet through API objects, never through each other's code.
#[test]
fn processes_do_not_import_each_other() {
    const PROCESSES: [&str; 5] = ["controller", "daemon", "enrol", "operator", "server"];
    let allowed = parse(MACHINIST);
    for process in PROCESSES {
        for other in PROCESSES.iter().filter(|other| **other != process) {
            assert!(!allowed[process].contains(other), "{process} may not use {other}");
        }
    }
}
