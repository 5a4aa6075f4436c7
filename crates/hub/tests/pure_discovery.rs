//! Discovery and OpenAPI documents, compared with those that kube-apiserver returned for the same
//! kinds.
use crate::pure;

use std::fs;

use machinist_hub::kind_registry::EMPTY_KINDS;
use machinist_hub::{discovery, openapi};
use serde_json::{Value, json};

fn recorded() -> Value {
    let path = pure::root().join("tests/cases/hub/discovery.json");
    let text = fs::read_to_string(path).expect("the record is there");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Kinds of workloads are served too, and always empty.
fn without_workloads(mut value: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(fields) => fields.values_mut().for_each(walk),
            Value::Array(items) => {
                items.retain(|item| {
                    let name = item["name"].as_str().or(item["resource"].as_str());
                    let name = name.or(item["metadata"]["name"].as_str()).unwrap_or_default();
                    let is_empty = |(group, _, plural, ..): &(&str, &str, &str, &str, bool)| {
                        name == *plural || (name == *group && group.len() > 1)
                    };
                    !EMPTY_KINDS.iter().any(is_empty)
                });
                items.iter_mut().for_each(walk);
            }
            _ => {}
        }
    }
    walk(&mut value);
    value
}

#[test]
fn groups_and_resources_match_kube_apiserver() {
    let record = recorded();
    let registry = pure::registry();
    let groups = without_workloads(discovery::api_groups(registry));
    assert_eq!(groups["groups"], record["apis"]);
    for (name, wanted) in record["lists"].as_object().expect("lists") {
        let (group, version) = name.split_once('/').unwrap_or(("", name));
        let ours = discovery::resource_list(registry, group, version).expect("it is served");
        assert_eq!(without_workloads(ours), without_workloads(wanted.clone()), "{name}");
    }
    for (legacy, name) in [(true, "agg_api"), (false, "agg_apis")] {
        let ours = discovery::aggregated_discovery(registry, legacy);
        assert_eq!(without_workloads(ours), without_workloads(record[name].clone()));
    }
    assert_eq!(discovery::resource_list(registry, "none", "v1"), None);
    let group =
        discovery::api_group(registry, "machineconfiguration.openshift.io").expect("served");
    assert_eq!(group["preferredVersion"]["version"], "v1");
    assert_eq!((&group["kind"], &group["apiVersion"]), (&json!("APIGroup"), &json!("v1")));
    assert_eq!(discovery::api_group(registry, "none"), None);
    assert_eq!(discovery::api_versions()["versions"], json!(["v1"]));
}

/// Checks that every reference of a document resolves.
fn check_references(document: &Value, value: &Value) {
    match value {
        Value::Object(fields) => {
            if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                let pointer = reference.trim_start_matches('#');
                assert!(document.pointer(pointer).is_some(), "{reference} does not resolve");
            }
            fields.values().for_each(|value| check_references(document, value));
        }
        Value::Array(items) => items.iter().for_each(|item| check_references(document, item)),
        _ => {}
    }
}

#[test]
fn documents_are_complete() {
    let registry = pure::registry();
    let index = openapi::v3_index(registry);
    let paths = index["paths"].as_object().expect("paths");
    assert!(paths.contains_key("api/v1"));
    for (name, entry) in paths {
        let address = entry["serverRelativeURL"].as_str().expect("an address");
        assert!(address.starts_with(&format!("/openapi/v3/{name}?hash=")), "{address}");
        let document = openapi::v3_document(registry, name).expect("what the index names is there");
        check_references(&document, &document);
    }
    assert_eq!(openapi::v3_document(registry, "apis/none/v1"), None);
    let document = openapi::v2_document(registry);
    check_references(&document, &document);
}

/// kubectl reads here whether the server supports field validation and dry runs.
#[test]
fn patch_operations_declare_their_parameters() {
    let registry = pure::registry();
    for kind in registry.kinds().filter(|kind| discovery::verbs(kind).contains(&"patch")) {
        let root = if kind.group.is_empty() { "api" } else { "apis" };
        let name = format!("{root}/{}", kind.api_version());
        let document = openapi::v3_document(registry, &name).expect("it is served");
        let operations = document["paths"].as_object().expect("paths").values();
        let wanted = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let patch = operations
            .map(|item| &item["patch"])
            .find(|patch| patch["x-kubernetes-group-version-kind"] == wanted)
            .unwrap_or_else(|| panic!("{} can be patched", kind.kind));
        let parameters: Vec<&Value> = patch["parameters"]
            .as_array()
            .expect("parameters")
            .iter()
            .map(|p| &p["name"])
            .collect();
        assert!(parameters.contains(&&json!("fieldValidation")), "{}", kind.kind);
        assert!(parameters.contains(&&json!("dryRun")), "{}", kind.kind);
    }
}
