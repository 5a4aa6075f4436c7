//! Helpers of the tests of the pure modules.
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use machinist_hub::built_in;
use machinist_hub::kind_registry::{KindRegistry, ResourceKind};
use serde_json::Value;

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every CRD under `deploy/crds`.
pub fn definitions() -> Vec<Value> {
    let mut paths: Vec<PathBuf> = fs::read_dir(root().join("deploy/crds"))
        .expect("deploy/crds is there")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a definition can be read");
        serde_saphyr::from_str(&text).expect("a definition is YAML")
    };
    paths.iter().map(read).collect()
}

/// All kinds: built-in ones and those of the CRDs.
pub fn registry() -> &'static KindRegistry {
    static REGISTRY: LazyLock<KindRegistry> = LazyLock::new(read_registry);
    &REGISTRY
}

fn read_registry() -> KindRegistry {
    let mut registry = KindRegistry::default();
    built_in::kinds().into_iter().for_each(|kind| registry.add(kind));
    for definition in definitions() {
        built_in::from_crd(&definition).into_iter().for_each(|kind| registry.add(kind));
    }
    registry
}

/// The kind of an object.
pub fn kind_of(object: &Value) -> &'static ResourceKind {
    let wanted = (object["apiVersion"].as_str(), object["kind"].as_str());
    let mut kinds = registry().kinds();
    kinds
        .find(|kind| (Some(kind.api_version().as_str()), Some(kind.kind.as_str())) == wanted)
        .unwrap_or_else(|| panic!("no kind for {wanted:?}"))
}

/// The JSON files of a test case directory, by name.
pub fn cases(directory: &str) -> Vec<(String, Value)> {
    let mut found: Vec<(String, Value)> = fs::read_dir(root().join("tests/cases").join(directory))
        .expect("the directory is there")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).expect("a case can be read");
            (name, serde_json::from_str(&text).expect("a case is JSON"))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Recorded responses of kube-apiserver: one JSON value per line.
pub fn recorded(name: &str) -> Vec<Value> {
    let path = root().join("tests/cases/hub").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}
