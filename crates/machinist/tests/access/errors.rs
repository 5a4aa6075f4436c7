//! Errors show nobody what they may not read: every kind × every write × every way to make it fail, as those with the
//! fewest rights.
use machinist::up::initial_objects;
use machinist_hub::Hub;
use machinist_hub::auth::{BOOTSTRAP_GROUP, UserInfo};
use machinist_hub::built_in;
use machinist_hub::kind_registry::ResourceKind;
use serde_json::{Value, json};

use super::fixture::{create, request, send, start};

/// In an annotation and in a field of every object that somebody else has.
const MARK: &str = "swordfish";

fn kinds() -> Vec<ResourceKind> {
    let crds = initial_objects::crd_objects().unwrap();
    let all = built_in::kinds().into_iter().chain(crds.iter().flat_map(built_in::from_crd));
    // Nobody writes definitions. The others read their own ones of these, which includes those named `other`.
    all.filter(|kind| kind.plural != "customresourcedefinitions").collect()
}

fn collection(kind: &ResourceKind) -> String {
    let root = match kind.group.as_str() {
        "" => format!("/api/{}", kind.version),
        group => format!("/apis/{group}/{}", kind.version),
    };
    let namespace = if kind.namespaced { "/namespaces/default" } else { "" };
    format!("{root}{namespace}/{}", kind.plural)
}

fn object(kind: &ResourceKind) -> Value {
    let mut object = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": {"name": "other", "annotations": {"x": MARK}},
    });
    if kind.kind == "Event" {
        let field = if kind.group.is_empty() { "involvedObject" } else { "regarding" };
        object[field] = json!({"apiVersion": "v1", "kind": "Node", "name": "other"});
    }
    object
}

/// Stores an object of a kind. Many kinds need a spec that is of no interest here.
async fn store(hub: &Hub, kind: &ResourceKind) -> bool {
    let path = collection(kind);
    request(hub, UserInfo::admin(), "POST", &path, object(kind)).await.0 == 201
}

/// Writes that fail in as many ways as there are checks.
fn attacks(kind: &ResourceKind) -> Vec<(&'static str, String, &'static str, Value)> {
    const JSON: &str = "application/json-patch+json";
    const MERGE: &str = "application/merge-patch+json";
    const STRATEGIC: &str = "application/strategic-merge-patch+json";
    const APPLY: &str = "application/apply-patch+yaml";
    let all = collection(kind);
    let one = format!("{all}/other");
    let with = |query: &str| format!("{one}?{query}");
    let unknown = json!({"unknown": 1, "metadata": {"unknown": 1}});
    let wrong = json!({"metadata": {"annotations": 1}});
    let guess = json!([{"op": "test", "path": "/metadata/annotations/x", "value": MARK}]);
    let copy = json!([{"op": "copy", "from": "/metadata/annotations", "path": "/metadata/x"}]);
    let mut apply = object(kind);
    apply["metadata"] = json!({"name": "other", "annotations": {"x": "y"}});
    let mut empty = apply.clone();
    empty["metadata"] = json!({"name": "other", "uid": "y", "resourceVersion": "1"});
    let mut all = vec![
        ("POST", all.clone(), "application/json", apply.clone()),
        ("PUT", one.clone(), "application/json", apply.clone()),
        ("PUT", with("fieldValidation=Strict"), "application/json", unknown.clone()),
        ("PUT", one.clone(), "application/json", empty),
        ("DELETE", one.clone(), "application/json", Value::Null),
        ("DELETE", one.clone(), "application/json", json!({"preconditions": {"uid": "y"}})),
        ("DELETE", all, "application/json", Value::Null),
        ("PATCH", with("fieldValidation=Strict"), JSON, copy),
        ("PATCH", one.clone(), JSON, guess),
    ];
    for (media, patch) in [(MERGE, unknown.clone()), (MERGE, wrong.clone()), (MERGE, json!({}))] {
        all.push(("PATCH", with("fieldValidation=Strict"), media, patch.clone()));
        all.push(("PATCH", with("fieldValidation=Strict"), STRATEGIC, patch));
    }
    let deletion = json!({"metadata": {"$patch": "x"}, "$retainKeys": ["a"]});
    all.push(("PATCH", one.clone(), STRATEGIC, deletion));
    for force in ["", "&force=true", "&dryRun=All", "&fieldValidation=Strict"] {
        all.push(("PATCH", with(&format!("fieldManager=m{force}")), APPLY, apply.clone()));
    }
    all
}

#[tokio::test]
async fn no_error_shows_what_its_reader_may_not_see() {
    let hub = start().await;
    let mut stored = 0;
    let users = [
        UserInfo::node("w1"),
        UserInfo::new("system:bootstrap:b", [BOOTSTRAP_GROUP.to_owned()]),
        UserInfo::new("system:node:w1", []),
    ];
    for kind in &kinds() {
        stored += usize::from(store(&hub, kind).await);
        for user in &users {
            for (method, path, media, body) in attacks(kind) {
                let (code, text) =
                    send(&hub, user.clone(), method, &path, body, media, "*/*").await;
                let what = format!("{} {method} {path} {media}: {code}", user.user);
                assert!(code < 500 && code != 429, "{what} {text}");
                assert!(!text.contains(MARK), "{what} {text}");
                // Whoever may not read an object does not learn from the code what is in it.
                let is_create = method == "POST" && code != 403;
                assert!(is_create || matches!(code, 400 | 403 | 404 | 405 | 415), "{what} {text}");
            }
        }
    }
    assert!(stored >= 8, "only {stored} kinds have an object");
    hub.stop().await;
}

/// The answers to a right and to a wrong guess about the Event of another machine are the same.
#[tokio::test]
async fn a_patch_is_no_oracle() {
    let hub = start().await;
    let path = "/api/v1/namespaces/default/events";
    let kinds = kinds();
    let event = kinds.iter().find(|kind| kind.kind == "Event" && kind.group.is_empty()).unwrap();
    create(&hub, path, object(event)).await;
    let mut answers = Vec::new();
    for guess in [MARK, "wrong"] {
        let patch = json!([
            {"op": "test", "path": "/metadata/annotations/x", "value": guess},
            {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        ]);
        let media = "application/json-patch+json";
        let one = format!("{path}/other");
        answers.push(send(&hub, UserInfo::node("w1"), "PATCH", &one, patch, media, "*/*").await);
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].0, 403, "{answers:?}");
    hub.stop().await;
}
