//! The API through real clients in the same process: verbs, metadata rules and errors.
use crate::support;

use http::StatusCode;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use support::{TestHub, api, status, test_object};

#[tokio::test]
async fn an_object_from_create_to_delete() {
    let server = TestHub::start().await;
    let things: Api<DynamicObject> = api(&server, "things");
    let made =
        things.create(&PostParams::default(), &test_object("a", json!({"size": 1}))).await.unwrap();
    assert_eq!(made.metadata.generation, Some(1));
    assert!(made.metadata.uid.is_some() && made.metadata.creation_timestamp.is_some());
    assert!(made.data.get("status").is_none(), "only the status subresource writes the status");
    let again =
        things.create(&PostParams::default(), &test_object("a", json!({}))).await.unwrap_err();
    assert_eq!(status(again), (409, "AlreadyExists".into()));

    let mut changed = made.clone();
    changed.data["spec"]["size"] = 2.into();
    let changed = things.replace("a", &PostParams::default(), &changed).await.unwrap();
    assert_eq!(changed.metadata.generation, Some(2));
    assert_eq!(changed.metadata.uid, made.metadata.uid);
    let late = things.replace("a", &PostParams::default(), &made).await.unwrap_err();
    assert_eq!(status(late), (409, "Conflict".into()));
    let same = things.replace("a", &PostParams::default(), &changed).await.unwrap();
    assert_eq!(same.metadata.resource_version, changed.metadata.resource_version);

    let patch = json!({"status": {"ready": true}});
    let patched =
        things.patch_status("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(patched.data["status"]["ready"], true);
    assert_eq!(patched.metadata.generation, Some(2), "a status change does not increment it");
    let patch = json!({"spec": {"size": 3}, "status": {"ready": false}});
    let patched = things.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(patched.data["status"]["ready"], true, "only the status subresource writes it");
    assert_eq!(patched.metadata.generation, Some(3));

    things.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(status(things.get("a").await.unwrap_err()), (404, "NotFound".into()));
}

#[tokio::test]
async fn a_finalizer_holds_an_object() {
    let server = TestHub::start().await;
    let things = api(&server, "things");
    let mut object = test_object("a", json!({}));
    object.metadata.finalizers = Some(vec!["g.io/hold".into()]);
    things.create(&PostParams::default(), &object).await.unwrap();
    let left = things.delete("a", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(left.metadata.deletion_timestamp.is_some());
    assert_eq!(left.metadata.generation, Some(2));
    let more = json!({"metadata": {"finalizers": ["g.io/hold", "g.io/more"]}});
    let error = things.patch("a", &PatchParams::default(), &Patch::Merge(&more)).await.unwrap_err();
    assert_eq!(status(error), (422, "Invalid".into()));
    let none = json!({"metadata": {"finalizers": null}});
    things.patch("a", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    assert_eq!(status(things.get("a").await.unwrap_err()).0, 404);
}

#[tokio::test]
async fn deletes_have_preconditions() {
    let server = TestHub::start().await;
    let things = api(&server, "things");
    let made = things.create(&PostParams::default(), &test_object("a", json!({}))).await.unwrap();
    let with = |uid: &str| DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.into()), resource_version: None }),
        ..DeleteParams::default()
    };
    let error = things.delete("a", &with("other")).await.unwrap_err();
    assert_eq!(status(error), (409, "Conflict".into()));
    things.delete("a", &with(&made.metadata.uid.unwrap())).await.unwrap();
}

#[tokio::test]
async fn owned_objects_are_garbage_collected() {
    let server = TestHub::start().await;
    let things = api(&server, "things");
    let owner =
        things.create(&PostParams::default(), &test_object("owner", json!({}))).await.unwrap();
    let mut owned = test_object("owned", json!({}));
    owned.metadata.owner_references = Some(vec![
        serde_json::from_value(json!({
            "apiVersion": "g.io/v1", "kind": "Thing", "name": "owner",
            "uid": owner.metadata.uid.unwrap(), "blockOwnerDeletion": true
        }))
        .unwrap(),
    ]);
    things.create(&PostParams::default(), &owned).await.unwrap();
    things.delete("owner", &DeleteParams::foreground()).await.unwrap();
    support::wait_until("both are deleted", async || {
        things.list(&ListParams::default()).await.unwrap().items.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let server = TestHub::start().await;
    let things = api(&server, "things");
    for (name, color) in [("a", "red"), ("b", "red"), ("c", "blue")] {
        let mut object = test_object(name, json!({}));
        object.metadata.labels = Some([("color".to_owned(), color.to_owned())].into());
        things.create(&PostParams::default(), &object).await.unwrap();
    }
    let red = ListParams::default().labels("color=red");
    assert_eq!(things.list(&red).await.unwrap().items.len(), 2);
    things.delete_collection(&DeleteParams::default(), &red).await.unwrap();
    let left = things.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].metadata.name.as_deref(), Some("c"));
}

/// More than are deleted at a time, and some that only get a mark.
#[tokio::test]
async fn a_large_collection_is_deleted_in_order() {
    let server = TestHub::start().await;
    let things = api(&server, "things");
    let names: Vec<String> = (0..600).map(|index| format!("t{index:03}")).collect();
    for (index, name) in names.iter().enumerate() {
        let mut object = test_object(name, json!({}));
        object.metadata.finalizers = (index % 100 == 50).then(|| vec!["g.io/keep".to_owned()]);
        things.create(&PostParams::default(), &object).await.unwrap();
    }
    let list = things.list(&ListParams::default().limit(1)).await.unwrap();
    let revision = list.metadata.resource_version.unwrap();
    let all = ListParams::default();
    things.delete_collection(&DeleteParams::default(), &all).await.unwrap();
    let path =
        format!("/apis/g.io/v1/things?watch=true&timeoutSeconds=1&resourceVersion={revision}");
    let (_, events) = server.send("GET", &path, &[], String::new()).await;
    let events = events
        .as_str()
        .unwrap()
        .lines()
        .map(|line| -> Value { serde_json::from_str(line).unwrap() });
    let changed: Vec<(String, bool)> = events
        .map(|event| {
            let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
            (name, event["type"] == "DELETED")
        })
        .collect();
    let marked = |index: usize| index % 100 == 50;
    let expected: Vec<(String, bool)> =
        names.into_iter().enumerate().map(|(index, name)| (name, !marked(index))).collect();
    assert_eq!(changed, expected);
    assert_eq!(things.list(&all).await.unwrap().items.len(), 6, "those that are marked");
}

#[tokio::test]
async fn pages_are_views_of_one_revision() {
    let server = TestHub::start().await;
    let things = api(&server, "things");
    for index in 0..7 {
        let object = test_object(&format!("t{index}"), json!({}));
        things.create(&PostParams::default(), &object).await.unwrap();
    }
    let first = things.list(&ListParams::default().limit(3)).await.unwrap();
    assert_eq!((first.items.len(), first.metadata.remaining_item_count), (3, Some(4)));
    things.delete("t5", &DeleteParams::default()).await.unwrap();
    things.create(&PostParams::default(), &test_object("t9", json!({}))).await.unwrap();
    let mut names = Vec::new();
    let mut token = first.metadata.continue_.clone();
    while let Some(next) = token.filter(|token| !token.is_empty()) {
        let page =
            things.list(&ListParams::default().limit(3).continue_token(&next)).await.unwrap();
        assert_eq!(page.metadata.resource_version, first.metadata.resource_version);
        names.extend(page.items.into_iter().filter_map(|object| object.metadata.name));
        token = page.metadata.continue_;
    }
    assert_eq!(names, ["t3", "t4", "t5", "t6"]);
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let server = TestHub::start().await;
    let things = api(&server, "things");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let made = things.create(&dry, &test_object("a", json!({}))).await.unwrap();
    assert!(made.metadata.uid.is_some());
    assert!(things.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn schemas_default_prune_and_validate() {
    let server = TestHub::start().await;
    let things = api(&server, "things");
    let made =
        things.create(&PostParams::default(), &test_object("a", json!({"odd": 1}))).await.unwrap();
    assert_eq!(made.data["spec"], json!({"size": 5}), "5 is the default; odd is unknown");
    let error = things
        .create(&PostParams::default(), &test_object("b", json!({"size": "large"})))
        .await
        .unwrap_err();
    assert_eq!(status(error), (422, "Invalid".into()));
    let error =
        things.create(&PostParams::default(), &test_object("A_b", json!({}))).await.unwrap_err();
    let kube::Error::Api(error) = error else { panic!("{error}") };
    assert!(error.message.contains("a lowercase RFC 1123 subdomain"), "{}", error.message);
    let body = json!({
        "apiVersion": "g.io/v1", "kind": "Thing", "metadata": {"name": "c"}, "spec": {"odd": 1}
    });
    let path = "/apis/g.io/v1/things?fieldValidation=Strict";
    let (code, response) = server.send("POST", path, &[], body.to_string()).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{response}");
    assert!(
        response["message"].as_str().unwrap().ends_with("unknown field \"spec.odd\""),
        "{response}"
    );
}

#[tokio::test]
async fn namespaces_hold_their_objects() {
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
    let server = TestHub::start().await;
    let client = server.client();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "n");
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    let error = maps.create(&PostParams::default(), &map).await.unwrap_err();
    assert_eq!(status(error), (404, "NotFound".into()));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let space = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    let space = namespaces.create(&PostParams::default(), &space).await.unwrap();
    assert_eq!(space.status.unwrap().phase.as_deref(), Some("Active"));
    maps.create(&PostParams::default(), &map).await.unwrap();
    namespaces.delete("n", &DeleteParams::default()).await.unwrap();
    support::wait_until("the namespace is removed", async || {
        namespaces.get_opt("n").await.unwrap().is_none()
    })
    .await;
    assert!(maps.get_opt("a").await.unwrap().is_none());
    let error = namespaces.delete("default", &DeleteParams::default()).await.unwrap_err();
    assert_eq!(status(error), (403, "Forbidden".into()));
}

/// Method, path, headers, body and the expected code.
type RequestCase<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], String, u16);

#[tokio::test]
async fn bad_requests_get_a_status_with_the_cause() {
    let server = TestHub::start().await;
    let yaml = [("content-type", "application/yaml")];
    let proto = [("content-type", "application/vnd.kubernetes.protobuf")];
    let apply = [("content-type", "application/apply-patch+yaml")];
    let only_proto = [("accept", "application/vnd.kubernetes.protobuf")];
    let things = "/apis/g.io/v1/things";
    let one = "/apis/g.io/v1/things/a";
    let good = "apiVersion: g.io/v1\nkind: Thing\nmetadata: {name: a}\n";
    let none: &[(&str, &str)] = &[];
    let table: Vec<RequestCase<'_>> = vec![
        ("POST", things, &yaml, good.into(), 201),
        ("POST", things, none, "{".into(), 400),
        ("POST", things, none, "[]".into(), 400),
        ("POST", things, none, json!({"kind": "Thing"}).to_string(), 400),
        ("POST", things, none, json!({"apiVersion": "g.io/v2", "kind": "Thing"}).to_string(), 400),
        ("POST", things, &proto, "k8s".into(), 415),
        ("PATCH", one, &apply, "{}".into(), 422),
        ("PATCH", one, none, "{}".into(), 415),
        ("GET", one, &only_proto, String::new(), 406),
        ("GET", "/apis/g.io/v1/things?limit=x", none, String::new(), 400),
        ("GET", "/apis/g.io/v1/things?labelSelector=a%20b", none, String::new(), 400),
        ("GET", "/apis/g.io/v1/things?fieldSelector=spec.a%3D1", none, String::new(), 400),
        ("GET", "/apis/g.io/v1/nothings", none, String::new(), 404),
        ("GET", "/apis/g.io/v1/things/..%2fa", none, String::new(), 404),
        ("GET", "/apis/g.io/v1//things", none, String::new(), 404),
        ("GET", "/apis/g.io/v1/things/a/scale", none, String::new(), 404),
        ("POST", one, none, "{}".into(), 405),
        ("POST", "/api/v1/configmaps", none, "{}".into(), 405),
        ("POST", things, none, " ".repeat(3 * 1024 * 1024 + 1), 413),
        (
            "DELETE",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.g.io",
            none,
            String::new(),
            403,
        ),
    ];
    for (method, path, headers, body, expected) in table {
        let (code, response) = server.send(method, path, headers, body).await;
        assert_eq!(code.as_u16(), expected, "{method} {path}: {response}");
        if expected >= 400 {
            assert_eq!(response["kind"], "Status", "{method} {path}: {response}");
            assert_eq!(response["code"], expected);
        }
    }
}

#[tokio::test]
async fn tables_and_metadata_alone() {
    let server = TestHub::start().await;
    let things = api(&server, "things");
    things.create(&PostParams::default(), &test_object("a", json!({}))).await.unwrap();
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];
    for path in ["/apis/g.io/v1/things", "/apis/g.io/v1/things/a"] {
        let (_, response) = server.send("GET", path, &table, String::new()).await;
        assert_eq!(response["kind"], "Table", "{response}");
        assert_eq!(response["columnDefinitions"][0]["name"], "Name");
        assert_eq!(response["rows"][0]["cells"][0], "a");
    }
    let partial = [("accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")];
    let (_, response) = server.send("GET", "/apis/g.io/v1/things/a", &partial, String::new()).await;
    assert_eq!(response["kind"], "PartialObjectMetadata");
    assert_eq!(response["spec"], Value::Null);
}

#[tokio::test]
async fn definitions_can_be_read() {
    let server = TestHub::start().await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.g.io";
    let (code, response) = server.send("GET", path, &[], String::new()).await;
    assert_eq!(code, StatusCode::OK, "{response}");
    assert_eq!(response["status"]["conditions"][1]["type"], "Established");
}

#[tokio::test]
async fn protobuf_is_read_for_built_in_kinds() {
    let server = TestHub::start().await;
    let proto = [("content-type", "application/vnd.kubernetes.protobuf")];
    let path = "/api/v1/namespaces/default/configmaps";
    // An envelope with its type, then metadata with a name, then one data entry.
    let body = "k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x0d\x0a\x03\x0a\x01a\x12\x06\x0a\x01k\x12\x01v";
    let (code, made) = server.send("POST", path, &proto, body.to_owned()).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    assert_eq!(made["data"], json!({"k": "v"}));
    let (code, _) = server.send("POST", "/apis/g.io/v1/things", &proto, body.to_owned()).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn there_are_no_pods() {
    let server = TestHub::start().await;
    let (code, list) = server.send("GET", "/api/v1/pods?limit=500", &[], String::new()).await;
    assert_eq!((code, &list["items"]), (StatusCode::OK, &json!([])));
    let watch = "/api/v1/pods?watch=true&resourceVersion=1&timeoutSeconds=1";
    let (code, events) = server.send("GET", watch, &[], String::new()).await;
    assert_eq!((code, events), (StatusCode::OK, json!("")));
    for (method, path, expected) in [
        ("POST", "/api/v1/namespaces/default/pods", 405),
        ("PUT", "/apis/apps/v1/namespaces/default/deployments/a", 405),
        ("PATCH", "/apis/batch/v1/namespaces/default/jobs/a", 405),
        ("GET", "/api/v1/namespaces/default/services/a", 404),
        ("DELETE", "/api/v1/namespaces/default/services/a", 404),
        ("DELETE", "/api/v1/namespaces/default/services", 200),
        ("GET", "/apis/networking.k8s.io/v1/ingresses", 200),
        ("POST", "/api/v1/namespaces/default/pods/a/exec", 404),
    ] {
        let json = [("content-type", "application/json")];
        let (code, body) = server.send(method, path, &json, "{}".to_owned()).await;
        assert_eq!(code.as_u16(), expected, "{method} {path}: {body}");
        let message = body["message"].as_str().unwrap_or_default();
        assert_eq!(message.contains("a hub runs no workloads"), expected == 405, "{message}");
    }
}

#[tokio::test]
async fn events_have_two_forms() {
    let server = TestHub::start().await;
    let event = json!({
        "metadata": {"name": "e"}, "regarding": {"kind": "Node", "name": "a"}, "note": "hello",
        "reason": "Test", "type": "Normal", "reportingController": "c",
        "reportingInstance": "i", "action": "Test", "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    let newer = "/apis/events.k8s.io/v1/namespaces/default/events";
    let older = "/api/v1/namespaces/default/events";
    let (code, made) = server.send("POST", newer, &[], event.to_string()).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    assert_eq!(made["note"], "hello");
    let (_, found) = server.send("GET", &format!("{older}/e"), &[], String::new()).await;
    assert_eq!((&found["message"], &found["apiVersion"]), (&json!("hello"), &json!("v1")));
    assert_eq!(found["involvedObject"]["name"], "a");
    let (_, list) = server.send("GET", newer, &[], String::new()).await;
    assert_eq!(list["items"][0]["regarding"]["name"], "a", "{list}");
    let patch = json!({"note": "again"}).to_string();
    let merge = [("content-type", "application/merge-patch+json")];
    let (_, found) = server.send("PATCH", &format!("{newer}/e"), &merge, patch).await;
    assert_eq!(found["note"], "again", "{found}");
    let (_, found) = server.send("GET", &format!("{older}/e"), &[], String::new()).await;
    assert_eq!(found["message"], "again");
    let (code, _) = server.send("DELETE", &format!("{newer}/e"), &[], String::new()).await;
    assert_eq!(code, StatusCode::OK);
}
