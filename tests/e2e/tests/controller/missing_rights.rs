//! A controller whose role lacks a verb names it, in its log and in `/readyz`. Against a real kube-apiserver: its messages
//! name verb, resource and API group.

use super::fixture::openshift_pool;
use anyhow::ensure;
use machinist_e2e::cluster::Cluster;
use machinist_e2e::http_get::http_get;
use machinist_e2e::lab::LabProcess;
use machinist_e2e::{binary, wait_for, wait_with_timeout};
use std::process::Command;
use std::time::Duration;

const USER: &str = "restricted-controller";
/// How soon an administrator has to see which right is missing.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Everything but the resources that the tests are about.
const OTHER_RIGHTS: &str = r#"
- {apiGroups: ["coordination.k8s.io", "config.openshift.io", "operator.openshift.io", "apps", "policy"], resources: ["*"], verbs: ["*"]}
- {apiGroups: [""], resources: ["namespaces", "secrets", "configmaps", "events", "pods/eviction"], verbs: ["*"]}
"#;
const ALL_PODS: &str = r#"
- {apiGroups: [""], resources: ["pods"], verbs: ["*"]}
"#;
const PODS_WITHOUT_WATCH: &str = r#"
- {apiGroups: [""], resources: ["pods"], verbs: ["get", "list"]}
"#;
/// A machine that is to be drained, with a pod that no kubelet ends.
const DRAINED_MACHINE: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: default}
---
apiVersion: v1
kind: Node
metadata:
  name: n1
  labels: {node-role.kubernetes.io/worker: ""}
  annotations: {machineconfiguration.openshift.io/desiredDrain: drain-rendered-worker-1}
---
apiVersion: v1
kind: Pod
metadata: {name: app, namespace: default}
spec:
  nodeName: n1
  automountServiceAccountToken: false
  containers: [{name: app, image: "localhost/busybox:1"}]
"#;
const ALL_NODES: &str = r#"
- {apiGroups: [""], resources: ["nodes", "nodes/status"], verbs: ["*"]}
"#;
const ALL_OF_OUR_GROUP: &str = r#"
- {apiGroups: ["machineconfiguration.openshift.io"], resources: ["*"], verbs: ["*"]}
"#;
const NODES_WITHOUT_LIST: &str = r#"
- {apiGroups: [""], resources: ["nodes", "nodes/status"], verbs: ["get", "watch", "patch", "update"]}
"#;
const OUR_GROUP_WITHOUT_POOL_STATUS: &str = r#"
- apiGroups: ["machineconfiguration.openshift.io"]
  resources: ["machineconfigpools", "machineconfigs", "machineconfignodes", "machineconfignodes/status", "controllerconfigs", "controllerconfigs/status", "kubeletconfigs", "containerruntimeconfigs", "machineosconfigs", "machineosbuilds", "osimagestreams", "internalreleaseimages"]
  verbs: ["*"]
"#;

struct RestrictedController {
    cluster: Cluster,
    controller: LabProcess,
}

impl RestrictedController {
    fn start(rules: &[&str]) -> Self {
        let cluster = Cluster::start().unwrap();
        cluster.install_published_crds().unwrap();
        for pool in ["master", "worker"] {
            cluster.apply(&openshift_pool(pool).to_string()).unwrap();
        }
        let rules = rules.concat();
        let roles = format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {USER}}}\nrules:{rules}---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {USER}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {USER}}}\n\
             subjects: [{{kind: User, name: {USER}, apiGroup: rbac.authorization.k8s.io}}]\n"
        );
        cluster.apply(&roles).unwrap();
        let mut command = Command::new(binary::machinist_binary().unwrap());
        command.args(["controller", "--metrics-listen", &metrics_address(&cluster)]);
        command.args(["--lease-duration", "5s", "--lease-renew-deadline", "3s"]);
        command.args(["--lease-retry-period", "500ms", "--kubeconfig"]);
        command.arg(cluster.kubeconfig_as(USER, &[]).unwrap());
        let controller = cluster.lab().spawn("controller", &command).unwrap();
        Self { cluster, controller }
    }

    fn readyz(&self) -> anyhow::Result<String> {
        http_get(&metrics_address(&self.cluster), "/readyz")
    }

    /// Waits until the log and `/readyz` have all of these words in one line.
    fn wait_for_report(&self, words: &[&str]) {
        let has_it = |text: &str| {
            text.lines().any(|line| words.iter().all(|word| line.replace('\\', "").contains(word)))
        };
        wait_with_timeout(REPORT_TIMEOUT, &format!("a report of {words:?}"), || {
            let (readyz, log) = (self.readyz()?, self.controller.log());
            ensure!(has_it(&readyz), "/readyz says {readyz}");
            ensure!(has_it(&log), "the log says {log}");
            Ok(true)
        })
        .unwrap();
    }

    fn grant(&self, rules: &str) {
        let role = format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {USER}-rest}}\nrules:{rules}---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {USER}-rest}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {USER}-rest}}\n\
             subjects: [{{kind: User, name: {USER}, apiGroup: rbac.authorization.k8s.io}}]\n"
        );
        self.cluster.apply(&role).unwrap();
    }

    fn wait_until_ready(&self) {
        wait_for("/readyz without failures", || {
            let readyz = self.readyz()?;
            ensure!(readyz.contains(" 200 ") && readyz.ends_with("leading"), "{readyz}");
            Ok(true)
        })
        .unwrap();
    }
}

fn metrics_address(cluster: &Cluster) -> String {
    format!("{}:8797", cluster.lab().loopback())
}

#[test]
fn a_missing_right_to_list_nodes_is_named_and_keeps_the_controller_unready() {
    let site = RestrictedController::start(&[
        OTHER_RIGHTS,
        ALL_PODS,
        ALL_OF_OUR_GROUP,
        NODES_WITHOUT_LIST,
    ]);
    site.wait_for_report(&["cannot list resource \"nodes\" in API group \"\""]);
    assert!(site.readyz().unwrap().contains(" 503 "));
    site.grant(ALL_NODES);
    site.wait_until_ready();
    assert!(site.controller.log().contains("a task works again"));
}

/// The pods of a machine are watched only while it is drained.
#[test]
fn a_missing_right_to_watch_the_pods_of_a_drain_is_named() {
    let site = RestrictedController::start(&[
        OTHER_RIGHTS,
        PODS_WITHOUT_WATCH,
        ALL_NODES,
        ALL_OF_OUR_GROUP,
    ]);
    site.cluster.apply(DRAINED_MACHINE).unwrap();
    site.wait_for_report(&["/api/v1/pods", "cannot watch resource \"pods\""]);
    site.grant(ALL_PODS);
    site.wait_until_ready();
}

#[test]
fn a_missing_right_to_write_the_pool_status_is_named_and_becomes_an_event() {
    let site = RestrictedController::start(&[
        OTHER_RIGHTS,
        ALL_PODS,
        ALL_NODES,
        OUR_GROUP_WITHOUT_POOL_STATUS,
    ]);
    let right = "cannot patch resource \"machineconfigpools/status\" in API group \"machineconfiguration.openshift.io\"";
    site.wait_for_report(&[right, "worker"]);
    wait_for("an event on the pool", || {
        let events = site.cluster.kubectl(&["get", "events", "-n", "default", "-o", "json"])?;
        let events: serde_json::Value = serde_json::from_str(&events)?;
        let is_it = |event: &serde_json::Value| {
            event["reason"] == "WriteFailed"
                && event["involvedObject"]["name"] == "worker"
                && event["message"].as_str().is_some_and(|text| text.contains(right))
        };
        ensure!(events["items"].as_array().into_iter().flatten().any(is_it), "{events}");
        Ok(true)
    })
    .unwrap();
    // Once per change of the failure, not once a second.
    let warnings = site.controller.log().matches("a task fails and is retried").count();
    assert!(warnings < 10, "{warnings} warnings");
    site.grant(ALL_OF_OUR_GROUP);
    site.wait_until_ready();
}
