//! Image policies with the files of the Machine Config Operator, byte for byte, and an error where
//! it fails.

use std::collections::BTreeMap;

use machinist_core::api::MachineConfigPool;
use machinist_core::container_runtime::BaseFiles;
use machinist_core::container_runtime::registries::{RegistryInputs, generate};
use machinist_core::generated_config::decoded_files;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The template's `policy.json`. Its text is kept where only policies of namespaces exist.
const POLICY_JSON: &str = include_str!("container_runtime/policy.json");
const REGISTRIES_CONF: &str =
    "unqualified-search-registries = ['registry.access.redhat.com', 'docker.io']\n";

/// All files of a case by path, those of the template included.
fn files(case: &Value) -> Result<BTreeMap<String, String>, String> {
    fn typed<K: DeserializeOwned>(case: &Value, kind: &str) -> Vec<K> {
        let objects = case["objects"].as_array().unwrap().iter();
        let of_kind = objects.filter(|object| object["kind"] == kind);
        of_kind.map(|object| serde_json::from_value(object.clone()).unwrap()).collect()
    }
    let (image, mirrors) = (typed(case, "Image"), typed(case, "ImageDigestMirrorSet"));
    let (cluster, namespaced) = (typed(case, "ClusterImagePolicy"), typed(case, "ImagePolicy"));
    let release = format!(
        "release-registry.product.example.org/ocp/4.2-date-version@sha256:{}",
        "f".repeat(64)
    );
    let inputs = RegistryInputs {
        image: image.first(),
        digest_mirror_sets: mirrors.iter().collect(),
        cluster_image_policies: cluster.iter().collect(),
        image_policies: namespaced.iter().collect(),
        release_image: Some(&release),
        ..RegistryInputs::default()
    };
    let mut pool = MachineConfigPool::default();
    pool.metadata.name = Some("worker".to_owned());
    let base = BaseFiles {
        registries_conf: REGISTRIES_CONF.to_owned(),
        policy_json: POLICY_JSON.to_owned(),
        ..BaseFiles::default()
    };
    let made = generate(&inputs, &[(&pool, base)]).map_err(|error| error.to_string())?;
    let mut files = BTreeMap::from([
        ("/etc/containers/registries.conf".to_owned(), REGISTRIES_CONF.to_owned()),
        ("/etc/containers/policy.json".to_owned(), POLICY_JSON.to_owned()),
    ]);
    for file in decoded_files(&made.generated[0].machine_config).unwrap() {
        files.insert(file.path, String::from_utf8(file.contents).unwrap());
    }
    Ok(files)
}

#[test]
fn image_policies_give_the_same_bytes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/policies.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let mut failures = Vec::new();
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let (id, expect) = (&case["id"], &case["expect"]);
        match (files(&case), expect.get("files")) {
            (Ok(found), Some(files)) => {
                for (path, text) in files.as_object().unwrap() {
                    if found.get(path).map(String::as_str) != text.as_str() {
                        failures.push(format!("{id}: {path}\n{:?}\n{text}", found.get(path)));
                    }
                }
                failures.extend(
                    found
                        .keys()
                        .filter(|path| files.get(path).is_none())
                        .map(|path| format!("{id}: {path} is not expected")),
                );
            }
            (Ok(_), None) => failures.push(format!("{id}: expected {}", expect["error"])),
            (Err(error), Some(_)) => failures.push(format!("{id}: unexpected: {error}")),
            (Err(error), None) => {
                // Of several scopes MCO names any, as Go walks a map.
                let reason = error.split("is n").last().unwrap_or_default();
                let reason = reason.split(" (").next().unwrap_or_default();
                if !expect["error"].as_str().unwrap().contains(reason) {
                    failures.push(format!("{id}: {reason:?} expected {}", expect["error"]));
                }
            }
        }
    }
    let count = failures.len();
    assert!(failures.is_empty(), "{count} differ:\n{}", failures.join("\n"));
}
