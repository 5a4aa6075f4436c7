//! Nodes that kubeadm made: from observing to enforcing, kubelet settings and mirrors, a node that is registered again,
//! a config that is taken back while a budget holds a drain, a kubelet that breaks, and an uninstallation that leaves the
//! nodes as they were. The pool has no role label: it selects what is not a control plane.

use crate::install::image;
use crate::install::kubeadm_nodes::{self, NodeFiles};
use crate::install::support::{NAMESPACE, get, install, merge, wait_condition};
use anyhow::{Context as _, Result, ensure};
use machinist_e2e::{Cluster, Lab, Machine, wait_for};
use serde_json::{Value, json};

pub(super) const POOL: &str = r#"
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: compute, labels: {limits: "yes"}}
spec:
  nodeSelector: {matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}]}
  machineConfigSelector:
    matchExpressions: [{key: machineconfiguration.openshift.io/role, operator: In, values: [worker, compute]}]
"#;

pub(super) const GUARDED: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: guarded, namespace: default}
spec:
  selector: {matchLabels: {app: guarded}}
  template:
    metadata: {labels: {app: guarded}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {kubernetes.io/hostname: n2}
      containers: [{name: a, image: "localhost/busybox:1", imagePullPolicy: Never}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: guard, namespace: default}
spec: {minAvailable: 1, selector: {matchLabels: {app: guarded}}}
"#;

pub(super) fn file(name: &str, path: &str) -> String {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": path, "mode": 0o644, "contents": {"source": "data:,cluster"}},
        ]}}},
    })
    .to_string()
}

/// The annotations of a Node without their prefix.
pub(super) fn annotations(cluster: &Cluster, name: &str) -> Result<Value> {
    let node = get(cluster, &format!("/api/v1/nodes/{name}"))?;
    let all = node["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let short = |key: String| key.rsplit_once('/').map(|(_, name)| name.to_owned()).unwrap_or(key);
    Ok(all.into_iter().map(|(key, value)| (short(key), value)).collect())
}

/// A condition of the pool, as `status reason: message`.
pub(super) fn pool_condition(cluster: &Cluster, type_: &str) -> Result<String> {
    let path = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools/compute";
    let pool = get(cluster, path)?;
    let conditions = pool["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found = conditions.iter().find(|it| it["type"] == type_);
    Ok(found
        .map(|it| {
            format!("{} {}: {}", text(&it["status"]), text(&it["reason"]), text(&it["message"]))
        })
        .unwrap_or_default())
}

pub(super) fn is_done(cluster: &Cluster, name: &str) -> Result<bool> {
    let found = annotations(cluster, name)?;
    let current = found["currentConfig"].as_str().unwrap_or_default();
    let is_ours = current.starts_with("rendered-compute-");
    let done = is_ours && found["desiredConfig"] == current && found["state"] == "Done";
    ensure!(done, "{name}: {found}");
    Ok(true)
}

#[test]
fn an_existing_cluster_goes_from_observe_to_enforce() {
    let lab = Lab::new().unwrap();
    let cluster = Cluster::with_nodes(&lab).unwrap();
    let machines = cluster.boot_kubeadm_nodes(&["n1", "n2", "n3"]).unwrap();
    image::load(&lab, &cluster, &machines).unwrap();
    let run = || -> Result<()> {
        let before = NodeFiles::read(&machines)?;
        observe(&cluster, &machines).context("observe")?;
        enforce(&cluster, &machines).context("enforce")?;
        kubeadm_nodes::refuse_foreign_profile(&cluster, &machines).context("foreign profile")?;
        kubeadm_nodes::set_limits(&cluster, &machines).context("kubelet settings")?;
        kubeadm_nodes::set_mirrors(&cluster, &machines).context("mirrors")?;
        kubeadm_nodes::remove_profile(&cluster, &machines).context("remove the profile")?;
        register_again(&cluster, &machines[2]).context("register again")?;
        take_back(&cluster, &machines[1]).context("take back")?;
        break_kubelet(&cluster, &machines).context("break the kubelet")?;
        kubeadm_nodes::leave(&cluster, &machines).context("leave")?;
        before.check_unchanged(&machines).context("after the uninstallation")
    };
    if let Err(error) = run() {
        let nodes = ["n2", "n3"].map(|name| annotations(&cluster, name));
        let pods = cluster.kubectl(&["get", "pods", "-A", "-o", "wide"]);
        let pool = cluster.kubectl(&["describe", "mcp", "compute"]);
        eprintln!("{nodes:?}\n{}\n{}", pods.unwrap_or_default(), pool.unwrap_or_default());
        panic!("{error:#}");
    }
}

/// Every machine reports what would change, and nothing does.
fn observe(cluster: &Cluster, machines: &[Machine]) -> Result<()> {
    let boots: Vec<u32> = machines.iter().map(Machine::boots).collect();
    cluster.kubectl(&["label", "node", "n1", "node-role.kubernetes.io/control-plane="])?;
    cluster.kubectl(&["create", "namespace", NAMESPACE])?;
    let url = format!("--from-literal=apiServerURL={}", cluster.url());
    let settings = ["create", "configmap", "machinist-settings", &url];
    let more = ["--from-literal=mode=observe", "--from-literal=server=false", "-n", NAMESPACE];
    cluster.kubectl(&[&settings[..], &more[..]].concat())?;
    install(cluster)?;
    cluster.apply(POOL)?;
    cluster.apply(&file("50-file", "/etc/from-cluster"))?;
    for name in ["n2", "n3"] {
        wait_for("the machine to say what would change", || {
            let found = annotations(cluster, name)?;
            let text = found["observation"].as_str().unwrap_or_default();
            let expected = "would change /etc/from-cluster; then: Reboot; with a drain";
            ensure!(text.ends_with(expected), "{found}");
            Ok(true)
        })?;
    }
    wait_for("the pool to say so", || {
        let found = pool_condition(cluster, "Observing")?;
        ensure!(found.starts_with("True ObserveMode: n2: rendered-compute-"), "{found}");
        Ok(true)
    })?;
    for machine in &machines[1..] {
        for path in ["/etc/from-cluster", "/etc/machine-config-daemon"] {
            ensure!(!machine.exists(path)?, "{}: {path} was written", machine.name());
        }
    }
    let now: Vec<u32> = machines.iter().map(Machine::boots).collect();
    ensure!(now == boots, "machines were rebooted: {boots:?}, then {now:?}");
    Ok(())
}

/// One machine, then the pool.
fn enforce(cluster: &Cluster, machines: &[Machine]) -> Result<()> {
    cluster.kubectl(&["taint", "node", "n2", "machinist.dev/unconfigured=:NoSchedule"])?;
    cluster.kubectl(&["annotate", "node", "n2", "machinist.dev/mode=enforce", "--overwrite"])?;
    wait_for("one machine to have its config", || is_done(cluster, "n2"))?;
    wait_for("pods to be let onto it", || {
        Ok(!get(cluster, "/api/v1/nodes/n2")?["spec"].to_string().contains("unconfigured"))
    })?;
    ensure!(machines[1].read_file("/etc/from-cluster")? == b"cluster");
    ensure!(!machines[2].exists("/etc/from-cluster")?, "the other one is only observed");
    let settings = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/machinist-settings");
    merge(cluster, &settings, &json!({"data": {"mode": "enforce"}}))?;
    wait_for("the daemons to enforce", || {
        let args = cluster.kubectl(&[
            "-n",
            NAMESPACE,
            "get",
            "pods",
            "-l",
            "k8s-app=machine-config-daemon",
            "-o",
            "jsonpath={.items[*].spec.containers[0].args}",
        ])?;
        ensure!(args.matches("--mode=enforce").count() == 3, "{args}");
        Ok(!args.contains("--mode=observe"))
    })?;
    cluster.kubectl(&["annotate", "node", "n2", "n3", "machinist.dev/mode-"])?;
    wait_for("the other machine to have its config", || is_done(cluster, "n3"))?;
    let observed = annotations(cluster, "n3")?["observation"].clone();
    ensure!(observed.is_null(), "it is no longer observed: {observed}");
    wait_condition(cluster, "Degraded", "False")
}

/// A node that is deleted and registered again gets its config, and its pool goes on.
fn register_again(cluster: &Cluster, machine: &Machine) -> Result<()> {
    let boots = machine.boots();
    cluster.kubectl(&["delete", "node", machine.name()])?;
    machine.sh("systemctl restart kubelet")?;
    wait_for("the machine to have its config again", || is_done(cluster, machine.name()))?;
    cluster.kubectl(&["wait", "mcp/compute", "--for=condition=Updated", "--timeout=60s"])?;
    ensure!(machine.boots() == boots, "it has its config and was not rebooted");
    Ok(())
}

/// A config is taken back while a budget holds the drain for it.
fn take_back(cluster: &Cluster, machine: &Machine) -> Result<()> {
    cluster.apply(GUARDED)?;
    let available = ["deployment/guarded", "--for=condition=Available", "--timeout=60s"];
    cluster.kubectl(&[&["wait"], &available[..]].concat())?;
    let boots = machine.boots();
    cluster.apply(&file("60-second", "/etc/second"))?;
    wait_for("the pool to name what blocks it", || {
        let found = pool_condition(cluster, "RolloutBlocked")?;
        let names = ["True DisruptionBudget: node n2", "pod default/guarded-", "budget guard"];
        ensure!(names.iter().all(|name| found.contains(name)), "{found}");
        Ok(true)
    })?;
    cluster.kubectl(&["uncordon", "n2"])?;
    wait_for("an answer to the person who uncordons it", || {
        let events = cluster.kubectl(&["get", "events", "-o", "jsonpath={.items[*].message}"])?;
        ensure!(events.contains("Node n2 was uncordoned during its drain"), "{events}");
        Ok(true)
    })?;
    cluster.kubectl(&["delete", "mc", "60-second"])?;
    wait_for("the machine to be taken out of its drain", || {
        let node = get(cluster, "/api/v1/nodes/n2")?;
        ensure!(node["spec"]["unschedulable"] != true, "it is cordoned");
        is_done(cluster, "n2")
    })?;
    wait_for("the pool to go on", || {
        let found = pool_condition(cluster, "RolloutBlocked")?;
        ensure!(found.starts_with("False"), "{found}");
        is_done(cluster, "n3")
    })?;
    ensure!(!machine.exists("/etc/second")?, "the config was taken back");
    ensure!(machine.boots() == boots, "nothing was rebooted");
    cluster.kubectl(&[
        "get",
        "pod",
        "-l",
        "app=guarded",
        "--field-selector=status.phase=Running",
    ])?;
    Ok(())
}

/// A config whose kubelet does not start after the reboot: nobody starts the daemon, and the host comes back by itself.
fn break_kubelet(cluster: &Cluster, machines: &[Machine]) -> Result<()> {
    let (machine, other) = (&machines[1], &machines[2]);
    let (name, other_boots) = (machine.name(), other.boots());
    cluster.kubectl(&["delete", "deployment/guarded", "poddisruptionbudget/guard", "--wait"])?;
    let good = annotations(cluster, name)?["currentConfig"].clone();
    let (boots, dropin) = (machine.boots(), "/etc/systemd/system/kubelet.service.d/90-bad.conf");
    let bad = "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --no-such-flag\n";
    let health = "deadline: 15s\nstable: 1s\nunits: [systemd-journald.service]\n";
    let files = [(dropin, bad), ("/etc/machinist/health.yaml", health)];
    let files = files.map(|(path, text)| {
        let encoded: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        json!({"path": path, "mode": 0o644, "contents": {"source": format!("data:,{encoded}")}})
    });
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "70-bad", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}},
    });
    cluster.apply(&config.to_string())?;
    wait_for("the machine to come back and say why", || {
        let found = annotations(cluster, name)?;
        let reason = found["reason"].as_str().unwrap_or_default();
        ensure!(reason.contains("kubelet: it ran before the change"), "{found}");
        ensure!(found["state"] == "Degraded" && found["currentConfig"] == good, "{found}");
        Ok(true)
    })?;
    ensure!(machine.boots() == boots + 2, "one reboot into the config and one out of it");
    ensure!(other.boots() == other_boots, "the rollout stops at the first machine");
    wait_for("the node to be in service", || {
        let node = get(cluster, &format!("/api/v1/nodes/{name}"))?;
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_ready = conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
        ensure!(is_ready && node["spec"]["unschedulable"] != true, "{node}");
        Ok(true)
    })?;
    for path in [dropin, "/etc/systemd/system/machinist-guard.service", "/var/lib/machinist"] {
        ensure!(!machine.exists(path)?, "{path} is left");
    }
    // The corrected config is tried, although the one before it is remembered.
    cluster.apply(&file("70-bad", "/etc/corrected"))?;
    for machine in [machine, other] {
        wait_for("the corrected config", || {
            ensure!(annotations(cluster, machine.name())?["currentConfig"] != good);
            is_done(cluster, machine.name())
        })?;
        ensure!(machine.read_file("/etc/corrected")? == b"cluster");
    }
    Ok(())
}
