//! What machines and viewers see: machines the configs of their own pool, viewers no contents.
use machinist_hub::Hub;
use machinist_hub::auth::UserInfo;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixture::{
    GROUP, SECRET, controller, create, machine_config, request, request_as, start, viewer,
};

async fn get(hub: &Hub, user: UserInfo, path: &str) -> u16 {
    request(hub, user, "GET", path, Value::Null).await.0
}

/// The names in a list or in the events of a watch.
async fn names(hub: &Hub, user: UserInfo, path: &str) -> Vec<String> {
    let (code, text) = request(hub, user, "GET", path, Value::Null).await;
    assert_eq!(code, 200, "{path}: {text}");
    let mut found: Vec<String> = text
        .split("\"name\":\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .filter(|name| name.starts_with("rendered-") || name.starts_with("99-") || *name == "extra")
        .map(str::to_owned)
        .collect();
    found.dedup();
    found
}

fn config_path(name: &str) -> String {
    format!("{GROUP}/machineconfigs/{name}")
}

async fn annotate(hub: &Hub, user: UserInfo, node: &str, config: &str) -> u16 {
    let key = "machineconfiguration.openshift.io/desiredConfig";
    let patch = json!({"metadata": {"annotations": {key: config}}});
    request(hub, user, "PATCH", &format!("/api/v1/nodes/{node}"), patch).await.0
}

/// A machine must not read the configs of other pools, which may contain their secrets.
#[tokio::test]
async fn a_machine_reads_only_the_configs_of_its_own_pool() {
    let hub = start().await;
    let machine = || UserInfo::node("w1");
    let all = format!("{GROUP}/machineconfigs");
    assert_eq!(get(&hub, machine(), &config_path("rendered-worker-1")).await, 200);
    for other in ["rendered-master-1", "99-worker-motd", "missing"] {
        assert_eq!(get(&hub, machine(), &config_path(other)).await, 403, "{other}");
        let named = format!("{all}?fieldSelector=metadata.name%3D{other}");
        assert_eq!(get(&hub, machine(), &named).await, 403, "{other}");
        let named = format!("{named}&watch=true&timeoutSeconds=1");
        assert_eq!(get(&hub, machine(), &named).await, 403, "{other}");
    }
    let own = ["rendered-worker-1"];
    for query in [
        "",
        "?limit=1",
        "?resourceVersion=0",
        "?watch=true&timeoutSeconds=1",
        "?watch=true&timeoutSeconds=1&resourceVersion=1",
        "?labelSelector=!x",
        "?fieldSelector=metadata.name!%3Dx",
    ] {
        assert_eq!(names(&hub, machine(), &format!("{all}{query}")).await, own, "{query}");
    }
    for accept in [
        "application/json;as=Table;g=meta.k8s.io;v=v1",
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    ] {
        let (code, text) = request_as(&hub, machine(), "GET", &all, Value::Null, accept).await;
        assert_eq!(code, 200);
        assert!(text.contains("rendered-worker-1") && !text.contains("master"), "{text}");
    }
    let (_, pools) =
        request(&hub, machine(), "GET", &format!("{GROUP}/machineconfigpools"), Value::Null).await;
    assert!(pools.contains("\"worker\"") && !pools.contains("\"master\""), "{pools}");
    assert_eq!(get(&hub, machine(), &format!("{GROUP}/machineconfigpools/master")).await, 403);
    assert_eq!(get(&hub, machine(), &format!("{GROUP}/controllerconfigs")).await, 403);
    assert_eq!(get(&hub, machine(), &format!("{GROUP}/controllerconfigs/other")).await, 403);
    let own = format!("{GROUP}/controllerconfigs/machine-config-controller");
    assert_eq!(get(&hub, machine(), &own).await, 404, "allowed, and there is none");
}

/// A machine writes its own Node: naming a config there must not make it readable.
#[tokio::test]
async fn a_machine_does_not_assign_itself_a_config() {
    let hub = start().await;
    let other = config_path("rendered-master-1");
    assert_eq!(annotate(&hub, UserInfo::node("w1"), "w1", "rendered-master-1").await, 200);
    assert_eq!(get(&hub, UserInfo::node("w1"), &other).await, 403);
    // A write of the controller to the same Node does not turn it into an assignment.
    let label = json!({"metadata": {"labels": {"zone": "a"}}});
    let patched = request(&hub, controller(), "PATCH", "/api/v1/nodes/w1", label).await;
    assert_eq!(patched.0, 200);
    assert_eq!(get(&hub, UserInfo::node("w1"), &other).await, 403);
    // What the controller assigns can be read, and what it assigned before, for a rollback.
    create(&hub, &format!("{GROUP}/machineconfigs"), machine_config("extra", None)).await;
    assert_eq!(annotate(&hub, controller(), "w1", "extra").await, 200);
    assert_eq!(get(&hub, UserInfo::node("w1"), &config_path("extra")).await, 200);
    assert_eq!(annotate(&hub, controller(), "w1", "rendered-worker-1").await, 200);
    assert_eq!(get(&hub, UserInfo::node("w1"), &config_path("extra")).await, 200);
    assert_eq!(get(&hub, UserInfo::node("m1"), &config_path("extra")).await, 403);
}

/// A viewer must not see contents, in any form in which objects are sent.
#[tokio::test]
async fn a_viewer_sees_no_contents() {
    let hub = start().await;
    let mut copied = machine_config("98-copied", None);
    copied["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": copied.to_string()});
    create(&hub, &format!("{GROUP}/machineconfigs"), copied).await;
    let all = format!("{GROUP}/machineconfigs");
    let one = config_path("98-copied");
    let json = "application/json";
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    for (path, accept) in [
        (one.clone(), json),
        (format!("{one}?pretty=true"), json),
        (one.clone(), "application/yaml"),
        (format!("{one}?includeObject=Object"), table),
        (one.clone(), "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
        (all.clone(), json),
        (format!("{all}?limit=1"), json),
        (all.clone(), "application/yaml"),
        (format!("{all}?includeObject=Object"), table),
        (format!("{all}?watch=true&timeoutSeconds=1"), json),
        (format!("{all}?watch=true&timeoutSeconds=1&includeObject=Object"), table),
    ] {
        let (code, text) = request_as(&hub, viewer(), "GET", &path, Value::Null, accept).await;
        assert_eq!(code, 200, "{path} {accept}: {text}");
        assert!(!text.contains("SECRET-CONTENT"), "{path} {accept}: {text}");
        let seen = request_as(&hub, UserInfo::admin(), "GET", &path, Value::Null, accept).await.1;
        assert!(seen.len() >= text.len(), "the administrator sees at least as much: {path}");
    }
    let (_, text) = request(&hub, viewer(), "GET", &one, Value::Null).await;
    assert!(text.contains("/etc/secret") && text.contains("a.service"), "the outline: {text}");
    let (_, text) = request(&hub, UserInfo::admin(), "GET", &one, Value::Null).await;
    assert!(text.contains(SECRET), "{text}");
    assert_eq!(get(&hub, viewer(), &format!("{GROUP}/controllerconfigs")).await, 403);
    assert_eq!(get(&hub, viewer(), "/api/v1/secrets").await, 403);
}

/// What any machine does to its own Node, it reads no config of another pool.
#[derive(Debug, Clone)]
enum NodeAction {
    Annotate(&'static str),
    Label(&'static str),
    Delete,
    Create(&'static str),
    /// Server-side apply, which creates the Node if there is none.
    Apply(&'static str),
    ControllerTouch(u8),
}

fn action() -> impl Strategy<Value = NodeAction> {
    let configs = prop_oneof![Just("rendered-master-1"), Just("rendered-worker-1")];
    let roles = || prop_oneof![Just("master"), Just("worker"), Just("infra")];
    prop_oneof![
        configs.prop_map(NodeAction::Annotate),
        roles().prop_map(NodeAction::Label),
        Just(NodeAction::Delete),
        roles().prop_map(NodeAction::Create),
        roles().prop_map(NodeAction::Apply),
        any::<u8>().prop_map(NodeAction::ControllerTouch),
    ]
}

async fn act(hub: &Hub, action: &NodeAction) {
    let (own, machine) = ("/api/v1/nodes/w1", UserInfo::node("w1"));
    let role = |role: &str| json!({format!("node-role.kubernetes.io/{role}"): ""});
    match action {
        NodeAction::Annotate(config) => {
            annotate(hub, machine, "w1", config).await;
        }
        NodeAction::Label(name) => {
            let patch = json!({"metadata": {"labels": role(name)}});
            request(hub, machine, "PATCH", own, patch).await;
        }
        NodeAction::Delete => {
            request(hub, machine, "DELETE", own, Value::Null).await;
        }
        NodeAction::Create(name) => {
            let key = "machineconfiguration.openshift.io/desiredConfig";
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {
                "name": "w1", "labels": role(name), "annotations": {key: "rendered-master-1"},
            }});
            request(hub, machine, "POST", "/api/v1/nodes", node).await;
        }
        NodeAction::Apply(name) => {
            let key = "machineconfiguration.openshift.io/desiredConfig";
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {
                "name": "w1", "labels": role(name), "annotations": {key: "rendered-master-1"},
            }});
            let path = format!("{own}?fieldManager=me&force=true");
            request(hub, machine, "PATCH", &path, node).await;
        }
        NodeAction::ControllerTouch(number) => {
            let patch = json!({"metadata": {"labels": {"touched": number.to_string()}}});
            request(hub, controller(), "PATCH", own, patch).await;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]
    #[test]
    fn no_sequence_of_writes_opens_another_pool(
        actions in proptest::collection::vec(action(), 1..12)
    ) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let hub = start().await;
            for action in &actions {
                act(&hub, action).await;
                let other = config_path("rendered-master-1");
                assert_eq!(get(&hub, UserInfo::node("w1"), &other).await, 403, "{actions:?}");
            }
            hub.stop().await;
        });
    }
}
