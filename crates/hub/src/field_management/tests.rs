//! Writes by several managers: what the object and its managers are afterwards.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{ApplyError, FieldManagement, FieldWriter};
use crate::kind_registry::ResourceKind;

/// A kind with every kind of list, an untyped part and a status.
fn things() -> FieldManagement {
    let mut kind = built_in("ConfigMap");
    kind.group = "g.io".to_owned();
    kind.kind = "Thing".to_owned();
    kind.built_in = false;
    kind.status_subresource = true;
    let port = json!({"type": "object", "properties": {
        "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": {"type": "string"},
    }});
    kind.schema = Some(json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "ports": {"type": "array", "items": port, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"]},
            "steps": {"type": "array", "items": {"type": "string"}},
            "selector": {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"},
            "config": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "properties": {"size": {"type": "integer"}}},
    }}));
    FieldManagement::new(&kind).unwrap()
}

fn built_in(name: &str) -> ResourceKind {
    crate::built_in::kinds().into_iter().find(|kind| kind.kind == name).unwrap()
}

fn writer(manager: &str) -> FieldWriter<'_> {
    FieldWriter { manager, subresource: "", now: Timestamp::from_second(1_000_000_000).unwrap() }
}

fn thing(spec: &Value) -> Value {
    json!({"apiVersion": "g.io/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec})
}

/// Applies specs in turn; the first creates the object.
fn apply_all(steps: &[(&str, Value)]) -> Value {
    let things = things();
    steps
        .iter()
        .fold(None, |live: Option<Value>, (manager, spec)| {
            let applied = things.apply(&writer(manager), live.as_ref(), &thing(spec), false);
            Some(applied.unwrap_or_else(|error| panic!("{manager}: {error:?}")))
        })
        .unwrap()
}

/// The fields of a manager.
fn owned(object: &Value, manager: &str, operation: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let entry = entries
        .into_iter()
        .find(|entry| entry["manager"] == manager && entry["operation"] == operation);
    entry.map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

#[test]
fn an_applier_removes_what_it_gives_up_and_only_that() {
    let object = apply_all(&[
        ("a", json!({"size": 1, "tags": ["x", "y"], "config": {"k": {"n": 1, "m": 2}}})),
        ("b", json!({"tags": ["y", "z"], "steps": ["s"]})),
        ("a", json!({"config": {"k": {"m": 2}}})),
    ]);
    assert_eq!(
        object["spec"],
        json!({"tags": ["y", "z"], "steps": ["s"], "config": {"k": {"m": 2}}})
    );
    assert_eq!(
        owned(&object, "a", "Apply"),
        json!({"f:spec": {"f:config": {"f:k": {".": {}, "f:m": {}}}}})
    );
    assert_eq!(
        owned(&object, "b", "Apply"),
        json!({"f:spec": {"f:tags": {"v:\"y\"": {}, "v:\"z\"": {}}, "f:steps": {}}})
    );
}

#[test]
fn items_of_a_map_list_have_their_owners_and_keep_the_applied_order() {
    let object = apply_all(&[
        ("a", json!({"ports": [{"port": 1, "name": "one"}, {"port": 2}]})),
        ("b", json!({"ports": [{"port": 3, "protocol": "UDP"}, {"port": 2, "protocol": "TCP"}]})),
    ]);
    assert_eq!(
        object["spec"]["ports"],
        json!([{"port": 1, "name": "one"}, {"port": 3, "protocol": "UDP"}, {"port": 2, "protocol": "TCP"}])
    );
    let owned = owned(&object, "b", "Apply");
    let item = &owned["f:spec"]["f:ports"][r#"k:{"port":2,"protocol":"TCP"}"#];
    assert_eq!(*item, json!({".": {}, "f:port": {}, "f:protocol": {}}));
}

#[test]
fn a_conflict_names_managers_and_fields_and_force_takes_them() {
    let things = things();
    let live = apply_all(&[("a", json!({"size": 1, "selector": {"k": "v"}}))]);
    let wanted = thing(&json!({"size": 2, "selector": {"k": "w"}}));
    let Err(ApplyError::Conflicts(conflicts)) =
        things.apply(&writer("b"), Some(&live), &wanted, false)
    else {
        panic!("no conflict");
    };
    assert_eq!(
        conflicts.message(),
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.selector\n- .spec.size"
    );
    assert_eq!(
        conflicts.causes()[1],
        json!({"reason": "FieldManagerConflict", "message": "conflict with \"a\"", "field": ".spec.size"})
    );
    let forced = things.apply(&writer("b"), Some(&live), &wanted, true).unwrap();
    assert_eq!(forced["spec"], wanted["spec"]);
    assert_eq!(owned(&forced, "a", "Apply"), Value::Null);
    // The same values are no conflict: both own them.
    let shared = things.apply(&writer("c"), Some(&forced), &wanted, false).unwrap();
    assert_eq!(owned(&shared, "b", "Apply"), owned(&shared, "c", "Apply"));
}

#[test]
fn updates_own_what_they_change_and_take_it_from_appliers() {
    let things = things();
    let live = apply_all(&[("a", json!({"size": 1, "tags": ["x"]}))]);
    let mut new = live.clone();
    new["spec"]["size"] = json!(2);
    new["status"] = json!({"size": 2});
    things.track(&writer("editor"), Some(&live), &mut new);
    assert_eq!(owned(&new, "editor", "Update"), json!({"f:spec": {"f:size": {}}}));
    assert_eq!(owned(&new, "a", "Apply"), json!({"f:spec": {"f:tags": {"v:\"x\"": {}}}}));
    let mut status = new.clone();
    status["status"] = json!({"size": 3});
    let status_writer = FieldWriter { subresource: "status", ..writer("editor") };
    things.track(&status_writer, Some(&new), &mut status);
    let entries = status["metadata"]["managedFields"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["subresource"] == "status").unwrap();
    assert_eq!(entry["fieldsV1"], json!({"f:status": {"f:size": {}}}));
}

#[test]
fn managers_can_be_reset_and_are_capped() {
    let things = things();
    let mut live = apply_all(&[("a", json!({"size": 1}))]);
    for index in 0..30 {
        let mut new = live.clone();
        new["metadata"]["labels"][format!("l{index}")] = json!("1");
        let name = format!("m{index:02}");
        things.track(&writer(&name), Some(&live), &mut new);
        live = new;
    }
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 11, "ten updaters and an applier: {entries:?}");
    assert!(entries.iter().any(|entry| entry["manager"] == "ancient-changes"));
    let mut reset = live.clone();
    reset["metadata"]["managedFields"] = json!([]);
    things.track(&writer("x"), Some(&live), &mut reset);
    assert_eq!(reset["metadata"].get("managedFields"), None);
    // What nobody tracked belongs to no one's name, so that the first applier does not remove it.
    let applied =
        things.apply(&writer("b"), Some(&reset), &thing(&json!({"tags": ["t"]})), false).unwrap();
    assert_eq!(applied["spec"], json!({"size": 1, "tags": ["t"]}));
    assert!(owned(&applied, "before-first-apply", "Update")["f:spec"]["f:size"].is_object());
}

#[test]
fn kubectl_takes_over_what_it_applied_on_the_clients_side() {
    let things = things();
    let mut created = thing(&json!({"size": 1, "steps": ["s"]}));
    let last = json!({"apiVersion": "g.io/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"size": 1, "steps": ["s"]}});
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    created["metadata"]["annotations"] = json!({annotation: last.to_string()});
    let mut live = created.clone();
    things.track(&writer("kubectl-client-side-apply"), None, &mut live);
    let wanted = thing(&json!({"size": 2, "steps": ["s"]}));
    let conflict = things.apply(&writer("other"), Some(&live), &wanted, false);
    assert!(matches!(conflict, Err(ApplyError::Conflicts(_))), "{conflict:?}");
    let applied = things.apply(&writer("kubectl"), Some(&live), &wanted, false).unwrap();
    assert_eq!(applied["spec"]["size"], 2);
    let text = applied["metadata"]["annotations"][annotation].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), wanted);
}

#[test]
fn what_does_not_fit_is_refused_with_its_place() {
    let things = things();
    for (spec, error) in [
        (json!({"odd": 1}), ".spec.odd: field not declared in schema"),
        (json!({"size": "x"}), ".spec.size: expected numeric (int or float), got string"),
        (json!({"tags": ["x", "x"]}), ".spec.tags: duplicate entries for key [=\"x\"]"),
        (
            json!({"ports": [1]}),
            ".spec.ports: element 0: associative list with keys may not have non-map elements",
        ),
    ] {
        let Err(ApplyError::Mismatch(text)) =
            things.apply(&writer("a"), None, &thing(&spec), false)
        else {
            panic!("{error}");
        };
        let start = "failed to create typed patch object (/a; g.io/v1, Kind=Thing): ";
        assert_eq!(text.strip_prefix(start), Some(error), "{text}");
    }
    let mut other = thing(&json!({}));
    other["kind"] = json!("Other");
    let error = things.apply(&writer("a"), None, &other, false);
    assert_eq!(
        error,
        Err(ApplyError::Malformed("invalid object type: g.io/v1, Kind=Other".to_owned()))
    );
}

#[test]
fn an_apply_of_the_same_changes_nothing() {
    let things = things();
    let spec = json!({"size": 1, "tags": ["x"], "ports": [{"port": 1}], "config": {"a": [1, {"b": null}]}});
    let live = apply_all(&[("a", spec.clone())]);
    let later = FieldWriter { now: Timestamp::from_second(2_000_000_000).unwrap(), ..writer("a") };
    assert_eq!(things.apply(&later, Some(&live), &thing(&spec), false).unwrap(), live);
}
