//! Reads manifests from files, directories and standard input: YAML or JSON, one or more documents each, with
//! items of `List` objects. Hostile input results in an error, never in a hang. Called by commands and the server.

mod source;
mod strict;
mod templates;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use source::{ManifestText, read_paths, skipped_directories};
pub use templates::read_templates;

/// With how many objects of its name an object is compared, to find out whether it is there twice.
const MAX_COMPARED: usize = 8;

/// Where an object was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestOrigin {
    /// The file, or `-`.
    pub file: PathBuf,
    /// Which document of the file, counted from 1.
    pub document: usize,
    /// Which item of a `List`, counted from 1.
    pub item: Option<usize>,
}

impl fmt::Display for ManifestOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file.display(), self.document)?;
        if let Some(item) = self.item {
            write!(f, ", item {item}")?;
        }
        Ok(())
    }
}

/// An object with its origin.
#[derive(Debug, Clone)]
pub struct ManifestDocument {
    /// Where the object was read from.
    pub origin: ManifestOrigin,
    /// The object.
    pub value: Value,
}

impl ManifestDocument {
    fn str_at(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The `kind`, or an empty string.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.str_at("/kind")
    }

    /// The `apiVersion`, or an empty string.
    #[must_use]
    pub fn api_version(&self) -> &str {
        self.str_at("/apiVersion")
    }

    /// The name, or an empty string.
    #[must_use]
    pub fn name(&self) -> &str {
        self.str_at("/metadata/name")
    }

    /// `Kind/name`, as far as they are set.
    #[must_use]
    pub fn object_name(&self) -> String {
        match (self.kind(), self.name()) {
            ("", "") => "object".to_owned(),
            (kind, "") => kind.to_owned(),
            ("", name) => name.to_owned(),
            (kind, name) => format!("{kind}/{name}"),
        }
    }

    /// Parses the object; the error names file, document, object and field.
    pub fn typed<T: DeserializeOwned>(&self) -> Result<T> {
        self.try_typed().map_err(|(field, problem)| {
            anyhow::anyhow!("{}: {}: {field}: {problem}", self.origin, self.object_name())
        })
    }

    /// Parses the object; the error is the field and the problem.
    pub fn try_typed<T: DeserializeOwned>(&self) -> Result<T, (String, String)> {
        serde_path_to_error::deserialize(&self.value)
            .map_err(|error| (error.path().to_string(), without_value(&error.inner().to_string())))
    }
}

/// The problem without the value, which may be a secret in the wrong place.
fn without_value(problem: &str) -> String {
    let found = |what: &'static str| problem.starts_with(what).then_some(what);
    match found("invalid type: string").or_else(|| found("invalid value: string")) {
        Some(what) => {
            let expected = problem.rfind(", expected").map_or("", |at| &problem[at..]);
            format!("{what}{expected}")
        }
        None => problem.to_owned(),
    }
}

/// Reads all objects in paths, in order; files of a directory in the order of their names. An object that is
/// there twice with the same contents counts once.
pub fn read(paths: &[PathBuf]) -> Result<Vec<ManifestDocument>> {
    read_all(&read_paths(paths)?)
}

/// Reads all objects in paths, and in the directories below them.
pub fn read_recursively(paths: &[PathBuf]) -> Result<Vec<ManifestDocument>> {
    read_all(&source::read_paths_recursively(paths)?)
}

fn read_all(texts: &[ManifestText]) -> Result<Vec<ManifestDocument>> {
    let mut documents: Vec<ManifestDocument> = Vec::new();
    let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
    for text in texts {
        for document in parse(text)? {
            let same_name = by_name.entry(document.object_name()).or_default();
            // Bounded, so that a file full of one name is read in linear time.
            let mut known = same_name.iter().take(MAX_COMPARED);
            if known.any(|at| documents[*at].value == document.value) {
                continue;
            }
            same_name.push(documents.len());
            documents.push(document);
        }
    }
    Ok(documents)
}

/// The objects in one file.
pub fn parse(text: &ManifestText) -> Result<Vec<ManifestDocument>> {
    let values = strict::parse(text).with_context(|| format!("{}", text.file.display()))?;
    let mut documents = Vec::new();
    for (index, value) in values.into_iter().enumerate() {
        let origin = ManifestOrigin { file: text.file.clone(), document: index + 1, item: None };
        match value {
            Value::Null => {} // an empty document between two separators
            Value::Object(_) => flatten_list(ManifestDocument { origin, value }, &mut documents)?,
            other => bail!("{origin}: expected an object, found {}", describe(&other)),
        }
    }
    Ok(documents)
}

fn describe(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text (is this a manifest?)",
        Value::Array(_) => "a list (use kind: List with items)",
        Value::Object(_) => "an object",
    }
}

fn flatten_list(
    mut document: ManifestDocument,
    documents: &mut Vec<ManifestDocument>,
) -> Result<()> {
    let kind = document.kind();
    let is_list = kind.ends_with("List") && document.value.get("items").is_some();
    if !is_list {
        documents.push(document);
        return Ok(());
    }
    let item_kind = kind.strip_suffix("List").unwrap_or_default().to_owned();
    let api_version = document.api_version().to_owned();
    let items = match document.value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        Some(Value::Null) | None => return Ok(()),
        Some(_) => bail!("{}: {}: items: expected a list", document.origin, document.object_name()),
    };
    for (index, mut value) in items.into_iter().enumerate() {
        let origin = ManifestOrigin { item: Some(index + 1), ..document.origin.clone() };
        let Some(map) = value.as_object_mut() else {
            bail!("{origin}: expected an object, found {}", describe(&value));
        };
        // Items of a typed list may omit `apiVersion` and `kind`, which the list implies.
        if !item_kind.is_empty() {
            map.entry("kind").or_insert_with(|| item_kind.clone().into());
            map.entry("apiVersion").or_insert_with(|| api_version.clone().into());
        }
        documents.push(ManifestDocument { origin, value });
    }
    Ok(())
}
