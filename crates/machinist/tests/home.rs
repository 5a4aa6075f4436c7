//! Asking a home: pages, watches that go on, waiting for an object. The home is a hub in process.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests may panic")]

use http::Method;
use machinist::home::request::{JSON, MERGE_PATCH, TABLE, refused};
use machinist::home::watch::{Event, Watch, revision};
use machinist::home::{Home, Resource};
use machinist::up::contents;
use machinist_hub::auth::Identity;
use machinist_hub::store::{Options, Store};
use machinist_hub::{Hub, Settings};
use serde_json::{Value, json};
use tokio::sync::oneshot;

const NODES: &str = "/api/v1/nodes";

async fn home(options: Options) -> (Hub, Home) {
    let settings = Settings { crds: contents::definitions().unwrap(), ..Settings::default() };
    let hub = Hub::start(Store::in_memory(options), settings).await.unwrap();
    let client = kube::Client::new(hub.router_as(Identity::admin()), "default");
    (hub, Home::new(client))
}

async fn make(home: &Home, name: &str) -> Value {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    home.write(Method::POST, NODES, JSON, &node).await.unwrap().body
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

#[tokio::test]
async fn a_home_tells_its_kinds() {
    let (_hub, home) = home(Options::default()).await;
    let all = home.resources().await.unwrap();
    let path = |word: &str| all.named(word).unwrap().path(None, None);
    assert_eq!(path("no"), NODES);
    assert_eq!(path("mcp"), "/apis/machineconfiguration.openshift.io/v1/machineconfigpools");
    assert_eq!(path("events"), "/api/v1/events");
    assert!(all.named("secret").unwrap().namespaced);
}

#[tokio::test]
async fn a_list_is_read_with_all_its_pages() {
    let (_hub, home) = home(Options::default()).await;
    for index in 0..1001 {
        make(&home, &format!("node-{index:04}")).await;
    }
    let list = home.list_as(NODES, JSON).await.unwrap();
    let names: Vec<&str> = list["items"].as_array().unwrap().iter().map(name).collect();
    let expected: Vec<String> = (0..1001).map(|index| format!("node-{index:04}")).collect();
    assert_eq!(names, expected);
    let table = home.list_as(NODES, TABLE).await.unwrap();
    assert_eq!(table["rows"].as_array().unwrap().len(), 1001);
}

#[tokio::test]
async fn an_object_is_waited_for() {
    let (_hub, home) = home(Options::default()).await;
    let all = home.resources().await.unwrap();
    let nodes: &Resource = all.named("nodes").unwrap();
    // Only when it has been looked for in vain it is made, and only then changed.
    let (looked, mut seen) = (oneshot::channel(), Vec::new());
    let mut looked_sender = Some(looked.0);
    let waiting = home.until(nodes, None, "late", |object| {
        seen.push(object.map(|object| object["spec"]["unschedulable"] == true));
        looked_sender.take().map(|sender| sender.send(()));
        (seen.last() == Some(&Some(true))).then_some(())
    });
    let acting = async {
        looked.1.await.unwrap();
        make(&home, "other").await;
        make(&home, "late").await;
        let cordon = json!({"spec": {"unschedulable": true}});
        home.write(Method::PATCH, &format!("{NODES}/late"), MERGE_PATCH, &cordon).await.unwrap();
    };
    let (waited, ()) = tokio::join!(waiting, acting);
    waited.unwrap();
    assert_eq!(seen, [None, Some(false), Some(true)]);
}

/// A watch that the server ends goes on where it was: nothing is missed, nothing comes twice.
#[tokio::test]
async fn a_watch_goes_on() {
    let (_hub, home) = home(Options::default()).await;
    let list = home.get(NODES).await.unwrap();
    let path = format!("{NODES}?timeoutSeconds=1");
    let mut watch = Watch::new(&home, path, JSON, revision(&list).unwrap());
    let writer = home.clone();
    let writing = tokio::spawn(async move {
        for index in 0..25 {
            make(&writer, &format!("node-{index:02}")).await;
            // Spread over more than one life of the watch.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    });
    let mut seen = Vec::new();
    while seen.len() < 25 {
        match watch.next().await.unwrap() {
            Some(Event::Set(object)) => seen.push(name(&object).to_owned()),
            Some(Event::Bookmark(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    writing.await.unwrap();
    let expected: Vec<String> = (0..25).map(|index| format!("node-{index:02}")).collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_revision_that_is_too_old_is_told() {
    let (_hub, home) = home(Options { history: 4, ..Options::default() }).await;
    let first = make(&home, "first").await;
    for index in 0..20 {
        make(&home, &format!("node-{index}")).await;
    }
    let mut watch = Watch::new(&home, NODES.to_owned(), JSON, revision(&first).unwrap());
    assert_eq!(watch.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_refusal_is_told_in_the_words_of_the_server() {
    let (_hub, home) = home(Options::default()).await;
    let error = home.get(&format!("{NODES}/none")).await.unwrap_err();
    assert_eq!(refused(&error), Some(404));
    assert_eq!(error.to_string(), "nodes \"none\" not found (NotFound)");
}
