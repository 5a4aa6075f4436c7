//! A machine may write only its own Node and MachineConfigNode, tested with real tokens of daemons.

use crate::install::support::{DAEMON, NAMESPACE, client, install, token};
use kube::Client;
use machinist_e2e::{Cluster, block_on, wait_for};
use serde_json::{Value, json};

const NODES: &str = "/api/v1/nodes";
const REPORTS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfignodes";
const STATE_ANNOTATION: &str = "machineconfiguration.openshift.io/state";

fn nodes_and_pods() -> String {
    let mut manifests = String::new();
    for name in ["n1", "n2"] {
        manifests += &format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, annotations: {{others: kept}}, labels: {{zone: a}}}}\n---\n\
             apiVersion: v1\nkind: Pod\nmetadata: {{name: daemon-{name}, namespace: {NAMESPACE}}}\nspec:\n  \
             nodeName: {name}\n  serviceAccountName: {DAEMON}\n  containers: [{{name: d, image: none}}]\n---\n"
        );
    }
    manifests
}

fn report(name: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigNode",
        "metadata": {"name": name},
        "spec": {
            "node": {"name": name}, "pool": {"name": "worker"},
            "configVersion": {"desired": "not-yet-set"},
        },
    })
}

/// Writes an object. Returns the code and text of an error, or `None`.
fn write(client: &Client, method: &str, path: &str, body: &Value) -> Option<(u16, String)> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(serde_json::to_vec(body).unwrap())
        .unwrap();
    match block_on(client.request::<Value>(request)) {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some((status.code, status.message.clone())),
        Err(error) => panic!("{method} {path}: {error}"),
    }
}

fn assert_forbidden(response: Option<(u16, String)>, why: &str) {
    let (code, message) = response.unwrap_or_else(|| panic!("it was let through; expected: {why}"));
    assert!(code == 403 && message.contains(why), "{code} {message}; expected: {why}");
}

#[test]
fn a_daemon_writes_only_its_own_node_and_machine_config_node() {
    let cluster = Cluster::start().unwrap();
    install(&cluster).unwrap();
    cluster.apply(&nodes_and_pods()).unwrap();
    let own = client(&cluster, &token(&cluster, DAEMON, Some("daemon-n1")).unwrap()).unwrap();
    let annotate = |key: &str| json!({"metadata": {"annotations": {key: "x"}}});
    let (n1, n2) = (format!("{NODES}/n1"), format!("{NODES}/n2"));
    // A new policy takes effect with a delay.
    let other = || write(&own, "PATCH", &n2, &annotate(STATE_ANNOTATION));
    wait_for("the policy to be in force", || Ok(other().is_some())).unwrap();
    assert_forbidden(other(), "the daemon of machine n1 may not write Node n2");

    assert_eq!(write(&own, "PATCH", &n1, &annotate(STATE_ANNOTATION)), None);
    assert_eq!(write(&own, "PATCH", &n1, &annotate("machinist.dev/restart-pending")), None);
    assert_eq!(
        write(&own, "PATCH", &n1, &json!({"metadata": {"annotations": {STATE_ANNOTATION: null}}})),
        None
    );
    assert_forbidden(
        write(&own, "PATCH", &n1, &annotate("others")),
        "only annotations that begin with",
    );
    let taken = json!({"metadata": {"annotations": {"others": null}}});
    assert_forbidden(write(&own, "PATCH", &n1, &taken), "only annotations that begin with");
    for more in [
        json!({"metadata": {"labels": {"node-role.kubernetes.io/master": ""}}}),
        json!({"metadata": {"labels": {"zone": null}}}),
        json!({"metadata": {"finalizers": ["a.example/b"]}}),
        json!({"spec": {"unschedulable": true}}),
        json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
    ] {
        assert_forbidden(write(&own, "PATCH", &n1, &more), "nothing but annotations");
    }
    // RBAC already refuses these.
    let forbidden = "forbidden";
    assert_forbidden(write(&own, "DELETE", &n1, &json!({})), forbidden);
    assert_forbidden(
        write(&own, "PATCH", &format!("{n1}/status"), &json!({"status": {}})),
        forbidden,
    );

    assert_eq!(write(&own, "POST", REPORTS, &report("n1")), None);
    let why = "the daemon of machine n1 may not write MachineConfigNode n2";
    assert_forbidden(write(&own, "POST", REPORTS, &report("n2")), why);
    let second = client(&cluster, &token(&cluster, DAEMON, Some("daemon-n2")).unwrap()).unwrap();
    assert_eq!(write(&second, "POST", REPORTS, &report("n2")), None);
    let point = json!({"spec": {"configVersion": {"desired": "rendered-worker-1"}}});
    assert_eq!(write(&own, "PATCH", &format!("{REPORTS}/n1"), &point), None);
    assert_forbidden(write(&own, "PATCH", &format!("{REPORTS}/n2"), &point), why);
    let status = json!({"status": {"observedGeneration": 1}});
    assert_eq!(write(&own, "PATCH", &format!("{REPORTS}/n1/status"), &status), None);
    assert_forbidden(write(&own, "PATCH", &format!("{REPORTS}/n2/status"), &status), why);

    // A token that is not bound to a pod belongs to no node.
    let loose = client(&cluster, &token(&cluster, DAEMON, None).unwrap()).unwrap();
    let why = "the daemon of no machine may not write";
    assert_forbidden(write(&loose, "PATCH", &n1, &annotate(STATE_ANNOTATION)), why);
    assert_forbidden(write(&loose, "POST", REPORTS, &report("n3")), why);
    // The policy does not restrict anybody else.
    assert_eq!(write(&cluster.client(), "PATCH", &n2, &annotate("others")), None);

    let second = "apiVersion: operator.openshift.io/v1\nkind: MachineConfiguration\n\
                  metadata: {name: other}\nspec: {managementState: Managed}\n";
    let error = format!("{:#}", cluster.apply(second).unwrap_err());
    assert!(error.contains("it must be named cluster"), "{error}");
}
