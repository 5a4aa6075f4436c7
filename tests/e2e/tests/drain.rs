//! The drain loop of the controller on a real Kubernetes cluster: kubelet, containerd, scheduler, budgets.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use machinist_e2e::lab::LabProcess;
use machinist_e2e::{Cluster, Lab, binary, block_on, wait_with_timeout};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);

/// Every kind of pod that a drain meets, on one node: owned by a DaemonSet, protected by a budget, ignoring SIGTERM,
/// unmanaged with local storage.
const PODS: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: daemon, namespace: default}
spec:
  selector: {matchLabels: {app: daemon}}
  template:
    metadata: {labels: {app: daemon}}
    spec:
      tolerations: [{operator: Exists}]
      containers: [{name: app, image: "localhost/busybox:1", imagePullPolicy: Never}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: guarded, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: guarded}}
  template:
    metadata: {labels: {app: guarded}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {here: "yes"}
      containers: [{name: app, image: "localhost/busybox:1", imagePullPolicy: Never}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: guard, namespace: default}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: guarded}}
---
apiVersion: v1
kind: Pod
metadata: {name: deaf, namespace: default, labels: {app: deaf}}
spec:
  terminationGracePeriodSeconds: 2
  nodeSelector: {here: "yes"}
  containers:
  - name: app
    image: localhost/busybox:1
    imagePullPolicy: Never
    command: [/bin/busybox, sh, -c, "trap '' TERM; while true; do sleep 1; done"]
    volumeMounts: [{name: scratch, mountPath: /scratch}]
  volumes: [{name: scratch, emptyDir: {}}]
"#;

/// A static pod of the kubelet.
const STATIC: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: static, namespace: default, labels: {app: static}}
spec:
  containers: [{name: app, image: "localhost/busybox:1", imagePullPolicy: Never}]
"#;

fn controller(lab: &Lab, cluster: &Cluster) -> LabProcess {
    let mut controller = Command::new(binary::machinist_binary().unwrap());
    controller.args(["controller", "--metrics-listen-address", "127.0.0.1:0", "--kubeconfig"]);
    controller.arg(cluster.kubeconfig());
    lab.spawn("controller", &controller).unwrap()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> Result<()>) {
    let mut last = None;
    let result = wait_with_timeout(DRAIN_TIMEOUT, what, || {
        last = holds().err();
        Ok(last.is_none())
    });
    assert!(result.is_ok(), "{result:?}: {last:?}");
}

fn get(cluster: &Cluster, kind: &str, name: &str) -> Result<Value> {
    Ok(serde_json::from_str(&cluster.kubectl(&["get", kind, name, "-o", "json"])?)?)
}

/// The labels of the pods on the node that are not terminating.
fn pods(cluster: &Cluster) -> Result<Vec<String>> {
    let api = Api::<Pod>::namespaced(cluster.client(), "default");
    let list = block_on(api.list(&ListParams::default().fields("spec.nodeName=n1")))?;
    let app = |pod: Pod| pod.metadata.labels.and_then(|mut labels| labels.remove("app"));
    let mut apps: Vec<String> = list.items.into_iter().filter_map(app).collect();
    apps.sort();
    Ok(apps)
}

#[test]
fn a_drain_respects_budgets_names_blocking_pods_and_ignores_daemon_sets() {
    let lab = Lab::new().unwrap();
    let cluster = Cluster::with_nodes(&lab).unwrap();
    cluster.install_published_crds().unwrap();
    let node = cluster.boot_node("n1").unwrap();
    cluster
        .kubectl(&["label", "node", "n1", "here=yes", "node-role.kubernetes.io/worker="])
        .unwrap();
    node.write_file("/etc/kubernetes/manifests/static.yaml", STATIC).unwrap();
    let adopt = "echo 'staticPodPath: /etc/kubernetes/manifests' >>/etc/kubernetes/kubelet.yaml; systemctl restart kubelet";
    node.sh(adopt).unwrap();
    cluster.apply(PODS).unwrap();
    cluster.apply(
        r#"{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker"}, "spec": {
        "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
        "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}}}}"#,
    )
    .unwrap();
    wait_until("all pods to run", || {
        let out = cluster.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].status.phase}"])?;
        ensure!(out.split_whitespace().filter(|phase| *phase == "Running").count() == 4, "{out}");
        Ok(())
    });
    let _controller = controller(&lab, &cluster);

    let request = |verb: &str| {
        let request =
            format!("machineconfiguration.openshift.io/desiredDrain={verb}-rendered-worker-1");
        cluster.kubectl(&["annotate", "--overwrite", "node", "n1", &request]).unwrap();
    };
    let answered = |verb: &str| -> Result<()> {
        let node = get(&cluster, "node", "n1")?;
        let key = "machineconfiguration.openshift.io/lastAppliedDrain";
        let applied = node["metadata"]["annotations"][key].clone();
        ensure!(applied == format!("{verb}-rendered-worker-1"), "{applied}");
        Ok(())
    };
    request("drain");
    wait_until("everyone but the guarded to leave", || {
        let apps = pods(&cluster)?;
        ensure!(apps == ["daemon", "guarded", "static"], "{apps:?}");
        Ok(())
    });
    // The budget blocks one eviction, and its name is reported long before the drain times out.
    wait_until("the blocker to be named", || {
        let events = cluster.kubectl(&["get", "events", "-o", "jsonpath={.items[*].message}"])?;
        ensure!(events.contains("blocked by budget guard"), "{events}");
        Ok(())
    });
    assert!(answered("drain").is_err(), "a drain that is held is not acknowledged");
    let cordoned = get(&cluster, "node", "n1").unwrap()["spec"]["unschedulable"].clone();
    assert_eq!(cordoned, true);

    cluster.kubectl(&["delete", "poddisruptionbudget", "guard"]).unwrap();
    wait_until("the drain to be acknowledged", || answered("drain"));
    assert_eq!(pods(&cluster).unwrap(), ["daemon", "static"]);
    wait_until("the machine's own object to say so", || {
        let object = get(&cluster, "machineconfignode", "n1")?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let drained = conditions.iter().find(|condition| condition["type"] == "Drained");
        ensure!(drained.is_some_and(|drained| drained["status"] == "True"), "{conditions:?}");
        Ok(())
    });

    request("uncordon");
    wait_until("the machine to take pods again", || {
        answered("uncordon")?;
        let spec = get(&cluster, "node", "n1")?["spec"].clone();
        ensure!(spec["unschedulable"].is_null() || spec["unschedulable"] == false, "{spec}");
        ensure!(pods(&cluster)?.contains(&"guarded".to_owned()), "it is not back");
        Ok(())
    });
}
