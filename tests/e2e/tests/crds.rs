//! Our CRDs and the published ones in real API servers: accepted objects come back unchanged, invalid ones are refused
//! with the same message. The cases are in `tests/cases/api`; its README says what must hold for each.
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiCapabilities, ApiResource, Scope, pinned_kind};
use machinist_e2e::{Cluster, block_on, cache, wait_for};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;

/// A cluster with some CRDs, and the kinds that it serves.
struct CrdFixture {
    cluster: Cluster,
    kinds: HashMap<GroupVersionKind, (ApiResource, ApiCapabilities)>,
}

impl CrdFixture {
    fn new(cluster: Cluster) -> Self {
        Self { cluster, kinds: HashMap::new() }
    }

    /// The API of an object's kind, and whether it has a status subresource.
    fn api(&mut self, object: &Value) -> (Api<DynamicObject>, bool) {
        let version = object["apiVersion"].as_str().unwrap();
        let (group, version) = version.split_once('/').unwrap();
        let gvk = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
        let client = self.cluster.client();
        let (resource, capabilities) = self.kinds.entry(gvk).or_insert_with_key(|gvk| {
            block_on(pinned_kind(&client, gvk)).unwrap_or_else(|e| panic!("{gvk:?}: {e}"))
        });
        let has_status = capabilities.subresources.iter().any(|(it, _)| it.plural == "status");
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
        let api = match capabilities.scope {
            Scope::Cluster => Api::all_with(client, resource),
            Scope::Namespaced => Api::namespaced_with(client, namespace, resource),
        };
        (api, has_status)
    }

    /// Stores an object and its status over an existing one, and reads it again.
    fn store(&mut self, object: &Value) -> kube::Result<Value> {
        let (api, has_status) = self.api(object);
        let name = object["metadata"]["name"].as_str().unwrap();
        let params = PostParams::default();
        let mut wanted: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        if let Some(present) = block_on(api.get_opt(name))? {
            wanted.metadata.resource_version = present.metadata.resource_version;
            block_on(api.replace(name, &params, &wanted))?;
        } else {
            block_on(api.create(&params, &wanted))?;
        }
        if has_status && !object["status"].is_null() {
            wanted.metadata.resource_version = block_on(api.get(name))?.metadata.resource_version;
            block_on(api.replace_status(name, &params, &wanted))?;
        }
        Ok(serde_json::to_value(block_on(api.get(name))?).unwrap())
    }

    fn remove(&mut self, object: &Value) {
        let (api, _) = self.api(object);
        let name = object["metadata"]["name"].as_str().unwrap();
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        // A refused object must not exist.
        let _ = block_on(api.patch(name, &PatchParams::default(), &free));
        if block_on(api.delete(name, &DeleteParams::default())).is_ok() {
            wait_for("the object to be gone", || Ok(block_on(api.get_opt(name))?.is_none()))
                .unwrap();
        }
    }

    /// What the API server dropped or changed in an object.
    fn round_trip(&mut self, object: &Value) -> Result<(), String> {
        let stored = self.store(object);
        self.remove(object);
        let stored = stored.map_err(|error| format!("is refused: {error}"))?;
        for part in ["spec", "status"] {
            if stored.get(part) != object.get(part) {
                let (sent, got) = (&object[part], &stored[part]);
                return Err(format!("{part} comes back changed\n  sent {sent}\n  got  {got}"));
            }
        }
        for part in ["labels", "annotations"] {
            if stored["metadata"].get(part) != object["metadata"].get(part) {
                return Err(format!("{part} come back changed"));
            }
        }
        Ok(())
    }

    /// Checks that a case is refused with its message.
    fn check_rejection(&mut self, case: &Value) -> Result<(), String> {
        let result = match case.get("before") {
            Some(before) => self.store(before).map_err(|error| format!("before: {error}"))?,
            None => json!({}),
        };
        drop(result);
        let refused = self.store(&case["object"]);
        self.remove(&case["object"]);
        match refused {
            Ok(_) => Err("is accepted".to_owned()),
            Err(error) if error.to_string().contains(case["message"].as_str().unwrap()) => Ok(()),
            Err(error) => Err(format!("is refused with other words: {error}")),
        }
    }
}

/// The cases in a directory, by file name.
fn cases(dir: &str) -> Vec<(String, Value)> {
    let dir = cache::source_root().join("tests/cases/api").join(dir);
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "json"));
    files.sort();
    let read =
        |file: &std::path::PathBuf| serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let name = |file: &std::path::PathBuf| file.file_name().unwrap().to_string_lossy().into_owned();
    files.iter().map(|file| (name(file), read(file))).collect()
}

/// Runs all cases against some CRDs; `knows` says which objects must come back unchanged.
fn check_cases(mut definitions: CrdFixture, knows: impl Fn(&str) -> bool) {
    let mut wrong = Vec::new();
    let accepted = cases("");
    assert!(accepted.len() > 50, "the cases are missing");
    for (name, object) in accepted.iter().filter(|(name, _)| knows(name)) {
        wrong.extend(definitions.round_trip(object).err().map(|what| format!("{name} {what}")));
    }
    for (name, case) in &cases("refused") {
        wrong.extend(
            definitions.check_rejection(case).err().map(|what| format!("refused/{name} {what}")),
        );
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn our_crds_preserve_every_object() {
    let cluster = Cluster::start().unwrap();
    cluster.install_our_crds().unwrap();
    check_cases(CrdFixture::new(cluster), |_| true);
}

#[test]
fn the_published_crds_preserve_every_object() {
    let cluster = Cluster::start().unwrap();
    cluster.install_published_crds().unwrap();
    // The feature set Default drops the fields of the other sets.
    check_cases(CrdFixture::new(cluster), |name| !name.ends_with("-preview.json"));
}
