//! Watches through the API: where they start, what they return, how they end.
use crate::support;

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::runtime::watcher::{self, Event};
use machinist_hub::store::StoreOptions;
use serde_json::{Value, json};
use support::{TestHub, api, test_object};

/// The events of a watch that ends by its timeout.
async fn events(server: &TestHub, query: &str) -> Vec<Value> {
    let path = format!("/apis/g.io/v1/things?watch=true&timeoutSeconds=1&{query}");
    let (_, response) = server.send("GET", &path, &[], String::new()).await;
    match response {
        Value::String(text) => {
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        }
        one => vec![one],
    }
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn where_watches_start() {
    let server = TestHub::start().await;
    let things = api(&server, "things");
    things.create(&PostParams::default(), &test_object("a", json!({}))).await.unwrap();
    let list = things.list(&ListParams::default()).await.unwrap();
    let revision = list.metadata.resource_version.unwrap();
    things.create(&PostParams::default(), &test_object("b", json!({}))).await.unwrap();

    assert_eq!(types(&events(&server, "").await), ["ADDED", "ADDED"]);
    let found = events(&server, &format!("resourceVersion={revision}")).await;
    assert_eq!(types(&found), ["ADDED"]);
    assert_eq!(found[0]["object"]["metadata"]["name"], "b");
    let found = events(
        &server,
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    )
    .await;
    assert_eq!(types(&found), ["ADDED", "ADDED", "BOOKMARK", "BOOKMARK"]);
    let annotations = &found[2]["object"]["metadata"]["annotations"];
    assert_eq!(annotations["k8s.io/initial-events-end"], "true");
    let found = events(&server, "fieldSelector=metadata.name%3Db").await;
    assert_eq!(types(&found), ["ADDED"]);
}

#[tokio::test]
async fn an_object_that_stops_matching_is_deleted() {
    let server = TestHub::start().await;
    let things = api(&server, "things");
    let mut object = test_object("a", json!({}));
    object.metadata.labels = Some([("color".to_owned(), "red".to_owned())].into());
    things.create(&PostParams::default(), &object).await.unwrap();
    let params = WatchParams::default().labels("color=red").timeout(5);
    let mut stream = things.watch(&params, "0").await.unwrap().boxed();
    let WatchEvent::Added(_) = stream.try_next().await.unwrap().unwrap() else {
        panic!("not added")
    };
    let blue = json!({"metadata": {"labels": {"color": "blue"}}});
    let now = things.patch("a", &PatchParams::default(), &Patch::Merge(&blue)).await.unwrap();
    let WatchEvent::Deleted(left) = stream.try_next().await.unwrap().unwrap() else {
        panic!("not deleted")
    };
    assert_eq!(left.metadata.labels.unwrap()["color"], "red");
    assert_eq!(left.metadata.resource_version, now.metadata.resource_version);
}

#[tokio::test]
async fn an_expired_revision_is_reported_in_the_stream() {
    let server = TestHub::start_with(StoreOptions { history: 5, ..StoreOptions::default() }).await;
    let things = api(&server, "things");
    for index in 0..20 {
        let name = format!("t{index}");
        things.create(&PostParams::default(), &test_object(&name, json!({}))).await.unwrap();
    }
    let found = events(&server, "resourceVersion=3").await;
    assert_eq!(types(&found), ["ERROR"]);
    assert_eq!(
        (&found[0]["object"]["code"], &found[0]["object"]["reason"]),
        (&json!(410), &json!("Expired"))
    );
    let list = ListParams::default().limit(1);
    let token = things.list(&list).await.unwrap().metadata.continue_.unwrap();
    for index in 20..40 {
        let name = format!("t{index}");
        things.create(&PostParams::default(), &test_object(&name, json!({}))).await.unwrap();
    }
    let error = things.list(&list.continue_token(&token)).await.unwrap_err();
    assert_eq!(support::status(error), (410, "Expired".into()));
}

#[tokio::test]
async fn a_kube_watcher_stays_in_sync() {
    let server = TestHub::start().await;
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let things = api(&server, "things");
        let name = format!("n{}", config.timeout.unwrap_or(1));
        let mut stream = watcher::watcher(things.clone(), config).boxed();
        loop {
            if let Event::InitDone = stream.try_next().await.unwrap().unwrap() {
                break;
            }
        }
        things.create(&PostParams::default(), &test_object(&name, json!({}))).await.unwrap();
        let Event::Apply(object) = stream.try_next().await.unwrap().unwrap() else { panic!() };
        assert_eq!(object.metadata.name.as_deref(), Some(name.as_str()));
        things.delete(&name, &DeleteParams::default()).await.unwrap();
        let Event::Delete(_) = stream.try_next().await.unwrap().unwrap() else { panic!() };
    }
}

#[tokio::test]
async fn a_watch_ends_when_the_hub_stops() {
    let server = TestHub::start().await;
    let things = api(&server, "things");
    let stream = things.watch(&WatchParams::default(), "0").await.unwrap();
    let hub = server.hub.clone();
    tokio::spawn(async move { hub.stop().await });
    let all = tokio::time::timeout(Duration::from_secs(5), stream.collect::<Vec<_>>()).await;
    assert!(all.unwrap().is_empty());
}
