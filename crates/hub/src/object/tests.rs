//! Tests of the metadata rules.

use serde_json::json;

use super::*;

fn kind(built_in: bool, status: bool) -> ResourceKind {
    ResourceKind {
        group: "g.io".into(),
        version: "v1".into(),
        kind: "Thing".into(),
        list_kind: "ThingList".into(),
        plural: "things".into(),
        singular: "thing".into(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: false,
        status_subresource: status,
        schema: None,
        built_in,
        columns: Vec::new(),
        scale: None,
        selectable_fields: Vec::new(),
        defined: None,
    }
}

fn server_metadata() -> ServerMetadata {
    ServerMetadata { uid: "u".into(), now: "2026-01-01T00:00:00Z".into(), suffix: "bcdfg".into() }
}

#[test]
fn the_revision_is_inserted_without_decoding() {
    let object = json!({"kind": "Thing", "metadata": {"name": "a", "resourceVersion": "1"}});
    let stored = encode(&object).unwrap();
    assert_eq!(stored, r#"{"metadata":{"name":"a"},"kind":"Thing"}"#);
    let mut out = BytesMut::new();
    write_with_revision(&mut out, &stored, 7);
    assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), decode(&stored, 7).unwrap());
    let mut out = BytesMut::new();
    write_with_revision(&mut out, &encode(&json!({})).unwrap(), 7);
    assert_eq!(out, r#"{"metadata":{"resourceVersion":"7"}}"#);
}

#[test]
fn a_new_object_gets_its_metadata() {
    let mut object = json!({
        "metadata": {"generateName": "a-", "uid": "mine", "generation": 9, "deletionTimestamp": "x"},
        "status": {"a": 1}
    });
    prepare_create(&kind(false, true), &mut object, &server_metadata());
    assert_eq!(
        object,
        json!({"metadata": {
            "generateName": "a-", "name": "a-bcdfg", "uid": "u", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z"
        }})
    );
}

#[test]
fn object_and_status_are_written_separately() {
    let old = json!({"metadata": {"name": "a", "generation": 1, "labels": {"a": "b"}}, "spec": 1, "status": 1});
    let sent = json!({"metadata": {"name": "a", "generation": 5}, "spec": 2, "status": 2});
    let crd = kind(false, true);
    let mut new = sent.clone();
    prepare_update(&crd, ObjectPart::Object, &old, &mut new);
    update_generation(&crd, &old, &mut new);
    assert_eq!(new, json!({"metadata": {"name": "a", "generation": 2}, "spec": 2, "status": 1}));
    let mut new = sent.clone();
    prepare_update(&crd, ObjectPart::Status, &old, &mut new);
    update_generation(&crd, &old, &mut new);
    let mut expected = old.clone();
    expected["status"] = 2.into();
    assert_eq!(new, expected);
    let plain = kind(false, false);
    let mut new = sent;
    prepare_update(&plain, ObjectPart::Object, &old, &mut new);
    update_generation(&plain, &old, &mut new);
    assert_eq!(new, json!({"metadata": {"name": "a", "generation": 2}, "spec": 2, "status": 2}));
}

#[test]
fn storage_keys() {
    let mut thing = kind(true, false);
    assert_eq!(storage_key(&thing, None, "a"), "/g.io/things/-/a");
    thing.namespaced = true;
    thing.group = String::new();
    assert_eq!(storage_key(&thing, Some("n"), "a"), "/core/things/n/a");
    assert_eq!(storage_key(&thing, Some("n"), ""), "/core/things/n/");
    assert_eq!(storage_key(&thing, None, ""), "/core/things/");
}

#[test]
fn a_deleted_object_rejects_new_finalizers() {
    let old = json!({"metadata": {"deletionTimestamp": "x", "finalizers": ["a"]}});
    let new = json!({"metadata": {"resourceVersion": "1", "finalizers": ["a", "b"]}});
    let errors = validate_metadata_update(&old, &new);
    assert_eq!(errors.len(), 1);
    assert!(errors[0].to_string().contains(r#"[]string{"b"}"#), "{}", errors[0]);
}

#[test]
fn names_are_validated() {
    let texts = |object: Value| -> Vec<String> {
        validate_metadata(&kind(false, true), &object).iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        texts(json!({"metadata": {}})),
        ["metadata.name: Required value: name or generateName is required"]
    );
    let found = texts(json!({"metadata": {"name": "A_b"}}));
    assert!(
        found[0].starts_with(
            "metadata.name: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain must consist of"
        ),
        "{found:?}"
    );
    assert_eq!(
        texts(json!({"metadata": {"name": "a", "namespace": "b"}})),
        ["metadata.namespace: Forbidden: not allowed on this type"]
    );
    assert_eq!(
        texts(json!({"metadata": {"name": "a", "labels": {"a": "-", "b/c/d": ""}}})).len(),
        2
    );
}
