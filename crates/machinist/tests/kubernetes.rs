//! The API client against a hub in process: pages, resumed watches, waiting for an object.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests may panic")]

use http::Method;
use machinist::kubernetes::request::{ACCEPT_JSON, ACCEPT_TABLE, MERGE_PATCH, status_code};
use machinist::kubernetes::watch::{ObjectWatch, WatchEvent, revision};
use machinist::kubernetes::{ApiClient, ServedResource};
use machinist::up::initial_objects;
use machinist_hub::auth::UserInfo;
use machinist_hub::store::{Store, StoreOptions};
use machinist_hub::{Hub, HubConfig};
use serde_json::{Value, json};
use tokio::sync::oneshot;

const NODES: &str = "/api/v1/nodes";

async fn hub_client(options: StoreOptions) -> (Hub, ApiClient) {
    let settings =
        HubConfig { crds: initial_objects::crd_objects().unwrap(), ..HubConfig::default() };
    let hub = Hub::start(Store::in_memory(options), settings).await.unwrap();
    let client = kube::Client::new(hub.router_as(UserInfo::admin()), "default");
    (hub, ApiClient::new(client))
}

async fn create_node(home: &ApiClient, name: &str) -> Value {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    home.write(Method::POST, NODES, ACCEPT_JSON, &node).await.unwrap().body
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

#[tokio::test]
async fn discovery_lists_the_served_resources() {
    let (_hub, home) = hub_client(StoreOptions::default()).await;
    let all = home.resources().await.unwrap();
    let path = |word: &str| all.by_name(word).unwrap().path(None, None);
    assert_eq!(path("no"), NODES);
    assert_eq!(path("mcp"), "/apis/machineconfiguration.openshift.io/v1/machineconfigpools");
    assert_eq!(path("events"), "/api/v1/events");
    assert!(all.by_name("secret").unwrap().namespaced);
}

#[tokio::test]
async fn a_list_is_read_with_all_its_pages() {
    let (_hub, home) = hub_client(StoreOptions::default()).await;
    for index in 0..1001 {
        create_node(&home, &format!("node-{index:04}")).await;
    }
    let list = home.list_as(NODES, ACCEPT_JSON).await.unwrap();
    let names: Vec<&str> = list["items"].as_array().unwrap().iter().map(name).collect();
    let expected: Vec<String> = (0..1001).map(|index| format!("node-{index:04}")).collect();
    assert_eq!(names, expected);
    let table = home.list_as(NODES, ACCEPT_TABLE).await.unwrap();
    assert_eq!(table["rows"].as_array().unwrap().len(), 1001);
}

#[tokio::test]
async fn an_object_is_waited_for() {
    let (_hub, home) = hub_client(StoreOptions::default()).await;
    let all = home.resources().await.unwrap();
    let nodes: &ServedResource = all.by_name("nodes").unwrap();
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
        create_node(&home, "other").await;
        create_node(&home, "late").await;
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
    let (_hub, home) = hub_client(StoreOptions::default()).await;
    let list = home.get(NODES).await.unwrap();
    let path = format!("{NODES}?timeoutSeconds=1");
    let mut watch = ObjectWatch::new(&home, path, ACCEPT_JSON, revision(&list).unwrap());
    let writer = home.clone();
    let writing = tokio::spawn(async move {
        for index in 0..25 {
            create_node(&writer, &format!("node-{index:02}")).await;
            // Spread over more than one life of the watch.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    });
    let mut seen = Vec::new();
    while seen.len() < 25 {
        match watch.next().await.unwrap() {
            Some(WatchEvent::Applied(object)) => seen.push(name(&object).to_owned()),
            Some(WatchEvent::Bookmark(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    writing.await.unwrap();
    let expected: Vec<String> = (0..25).map(|index| format!("node-{index:02}")).collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_resource_version_that_is_too_old_ends_the_watch() {
    let (_hub, home) = hub_client(StoreOptions { history: 4, ..StoreOptions::default() }).await;
    let first = create_node(&home, "first").await;
    for index in 0..20 {
        create_node(&home, &format!("node-{index}")).await;
    }
    let mut watch =
        ObjectWatch::new(&home, NODES.to_owned(), ACCEPT_JSON, revision(&first).unwrap());
    assert_eq!(watch.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_refusal_has_the_message_of_the_server() {
    let (_hub, home) = hub_client(StoreOptions::default()).await;
    let error = home.get(&format!("{NODES}/none")).await.unwrap_err();
    assert_eq!(status_code(&error), Some(404));
    assert_eq!(error.to_string(), "nodes \"none\" not found (NotFound)");
}
