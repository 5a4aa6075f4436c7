//! The API client against a hub in the same process: paged lists, watches that resume, waiting for objects.
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

async fn create_node(client: &ApiClient, name: &str) -> Value {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    client.write(Method::POST, NODES, ACCEPT_JSON, &node).await.unwrap().body
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

#[tokio::test]
async fn served_kinds_are_discovered() {
    let (_hub, client) = hub_client(StoreOptions::default()).await;
    let all = client.resources().await.unwrap();
    let path = |word: &str| all.by_name(word).unwrap().path(None, None);
    assert_eq!(path("no"), NODES);
    assert_eq!(path("mcp"), "/apis/machineconfiguration.openshift.io/v1/machineconfigpools");
    assert_eq!(path("events"), "/api/v1/events");
    assert!(all.by_name("secret").unwrap().namespaced);
}

#[tokio::test]
async fn a_list_is_read_with_all_pages() {
    let (_hub, client) = hub_client(StoreOptions::default()).await;
    for index in 0..1001 {
        create_node(&client, &format!("node-{index:04}")).await;
    }
    let list = client.list_as(NODES, ACCEPT_JSON).await.unwrap();
    let names: Vec<&str> = list["items"].as_array().unwrap().iter().map(name).collect();
    let expected: Vec<String> = (0..1001).map(|index| format!("node-{index:04}")).collect();
    assert_eq!(names, expected);
    let table = client.list_as(NODES, ACCEPT_TABLE).await.unwrap();
    assert_eq!(table["rows"].as_array().unwrap().len(), 1001);
}

#[tokio::test]
async fn waiting_for_an_object() {
    let (_hub, client) = hub_client(StoreOptions::default()).await;
    let all = client.resources().await.unwrap();
    let nodes: &ServedResource = all.by_name("nodes").unwrap();
    // The object is created after the first check has failed, and then changed.
    let (looked, mut seen) = (oneshot::channel(), Vec::new());
    let mut looked_sender = Some(looked.0);
    let waiting = client.until(nodes, None, "late", |object| {
        seen.push(object.map(|object| object["spec"]["unschedulable"] == true));
        looked_sender.take().map(|sender| sender.send(()));
        (seen.last() == Some(&Some(true))).then_some(())
    });
    let acting = async {
        looked.1.await.unwrap();
        create_node(&client, "other").await;
        create_node(&client, "late").await;
        let cordon = json!({"spec": {"unschedulable": true}});
        client.write(Method::PATCH, &format!("{NODES}/late"), MERGE_PATCH, &cordon).await.unwrap();
    };
    let (waited, ()) = tokio::join!(waiting, acting);
    waited.unwrap();
    assert_eq!(seen, [None, Some(false), Some(true)]);
}

/// A watch that the server ends is resumed: no change is missed or delivered twice.
#[tokio::test]
async fn a_watch_resumes() {
    let (_hub, client) = hub_client(StoreOptions::default()).await;
    let list = client.get(NODES).await.unwrap();
    let path = format!("{NODES}?timeoutSeconds=1");
    let mut watch = ObjectWatch::new(&client, path, ACCEPT_JSON, revision(&list).unwrap());
    let writer = client.clone();
    let writing = tokio::spawn(async move {
        for index in 0..25 {
            create_node(&writer, &format!("node-{index:02}")).await;
            // Spread over more than one connection of the watch.
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
async fn an_expired_resource_version_ends_the_watch() {
    let (_hub, client) = hub_client(StoreOptions { history: 4, ..StoreOptions::default() }).await;
    let first = create_node(&client, "first").await;
    for index in 0..20 {
        create_node(&client, &format!("node-{index}")).await;
    }
    let mut watch =
        ObjectWatch::new(&client, NODES.to_owned(), ACCEPT_JSON, revision(&first).unwrap());
    assert_eq!(watch.next().await.unwrap(), None);
}

#[tokio::test]
async fn errors_contain_the_message_of_the_server() {
    let (_hub, client) = hub_client(StoreOptions::default()).await;
    let error = client.get(&format!("{NODES}/none")).await.unwrap_err();
    assert_eq!(status_code(&error), Some(404));
    assert_eq!(error.to_string(), "nodes \"none\" not found (NotFound)");
}
