//! What differs on nodes that kubeadm made: which profile fits them, settings that reach the running kubelet, mirrors, and
//! that nothing is left of it. Part of the test in `existing_cluster`.

use crate::install::existing_cluster::{GUARDED, annotations, file, is_done, pool_condition};
use crate::install::support::{NAMESPACE, deploy, get, merge};
use anyhow::{Context as _, Result, ensure};
use machinist_e2e::machine::FileTree;
use machinist_e2e::{Cluster, Machine, wait_for};
use serde_json::{Value, json};

const LIMITS: &str = r#"
apiVersion: machineconfiguration.openshift.io/v1
kind: KubeletConfig
metadata: {name: limits}
spec:
  machineConfigPoolSelector: {matchLabels: {limits: "yes"}}
  kubeletConfig: {maxPods: 42, evictionHard: {memory.available: 50Mi}, nodeStatusReportFrequency: 7m}
"#;

const MIRRORS: &str = r#"
apiVersion: config.openshift.io/v1
kind: ImageDigestMirrorSet
metadata: {name: mirrors}
spec: {imageDigestMirrors: [{source: upstream.invalid, mirrors: [mirror.invalid/proxy]}]}
"#;

/// The directories of an administrator.
const WATCHED: [&str; 3] = ["/etc", "/usr/local", "/root"];

/// The files of all nodes, in the directories of an administrator.
pub(super) struct NodeFiles(Vec<Vec<FileTree>>);

impl NodeFiles {
    pub(super) fn read(machines: &[Machine]) -> Result<Self> {
        let read = |machine: &Machine| WATCHED.iter().map(|dir| machine.tree(dir)).collect();
        Ok(Self(machines.iter().map(read).collect::<Result<_>>()?))
    }

    pub(super) fn check_unchanged(&self, machines: &[Machine]) -> Result<()> {
        let now = Self::read(machines)?;
        for ((machine, before), now) in machines.iter().zip(&self.0).zip(&now.0) {
            for (before, now) in before.iter().zip(now) {
                let changes = before.changes(now);
                ensure!(changes.is_empty(), "{}: {changes:?}", machine.name());
            }
        }
        Ok(())
    }
}

fn set_profile(cluster: &Cluster, profile: &str) -> Result<()> {
    let settings = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/machinist-settings");
    merge(cluster, &settings, &json!({"data": {"profile": profile}}))
}

/// The settings of a running kubelet.
pub(super) fn configz(cluster: &Cluster, node: &str) -> Result<Value> {
    Ok(get(cluster, &format!("/api/v1/nodes/{node}/proxy/configz"))?["kubeletconfig"].clone())
}

/// The profile that replaces kubeadm's files reaches no node, and the pool says why.
pub(super) fn refuse_foreign_profile(cluster: &Cluster, machines: &[Machine]) -> Result<()> {
    let node = get(cluster, "/api/v1/nodes/n2")?;
    let host = node["metadata"]["annotations"]["machinist.dev/host"].as_str().unwrap_or_default();
    ensure!(host.contains("\"installer\":\"kubeadm\""), "{host}");
    let kubeconfigs: Vec<Vec<u8>> = machines
        .iter()
        .map(|machine| machine.read_file("/etc/kubernetes/kubelet.conf"))
        .collect::<Result<_>>()?;
    let good = annotations(cluster, "n2")?["currentConfig"].clone();
    set_profile(cluster, "kubernetes")?;
    wait_for("the pool to say that its nodes are not for the profile", || {
        let found = pool_condition(cluster, "RolloutBlocked")?;
        let names = ["True ", "node n2 would refuse", "node n3 would refuse", "made by kubeadm"];
        ensure!(names.iter().all(|name| found.contains(name)), "{found}");
        Ok(true)
    })?;
    // A config that is assigned by hand is refused by the daemon.
    let pool = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools/compute";
    let foreign = get(cluster, pool)?["spec"]["configuration"]["name"].clone();
    let foreign = foreign.as_str().context("the pool has no config")?.to_owned();
    let desired = format!("machineconfiguration.openshift.io/desiredConfig={foreign}");
    cluster.kubectl(&["annotate", "node", "n2", "--overwrite", &desired])?;
    wait_for("the daemon to refuse it", || {
        let found = annotations(cluster, "n2")?;
        let reason = found["reason"].as_str().unwrap_or_default();
        ensure!(reason.contains("set the profile kubeadm or none"), "{found}");
        Ok(true)
    })?;
    for (machine, before) in machines.iter().zip(kubeconfigs) {
        let name = machine.name();
        ensure!(machine.read_file("/etc/kubernetes/kubelet.conf")? == before, "{name}");
        ensure!(!machine.exists("/etc/sysctl.d/90-kubernetes.conf")?, "{name}");
    }
    ensure!(annotations(cluster, "n2")?["currentConfig"] == good, "it keeps its config");
    Ok(())
}

/// The profile for kubeadm: settings of a KubeletConfig reach the running kubelet, beside those of kubeadm.
pub(super) fn set_limits(cluster: &Cluster, machines: &[Machine]) -> Result<()> {
    let boots: Vec<u32> = machines.iter().map(Machine::boots).collect();
    set_profile(cluster, "kubeadm")?;
    cluster.apply(LIMITS)?;
    for name in ["n2", "n3"] {
        wait_for("the running kubelet to have the settings", || {
            let found = configz(cluster, name)?;
            let is_set = found["maxPods"] == 42
                && found["evictionHard"]["memory.available"] == "50Mi"
                && found["nodeStatusReportFrequency"] == "7m0s";
            ensure!(is_set, "{name}: {found}");
            Ok(true)
        })?;
        let found = configz(cluster, name)?;
        for (field, expected) in [
            // The settings of kubeadm, and a flag of the administrator.
            ("syncFrequency", json!("5s")),
            ("nodeStatusUpdateFrequency", json!("2s")),
            ("cgroupDriver", json!("cgroupfs")),
            ("maxOpenFiles", json!(1_000_001)),
        ] {
            ensure!(found[field] == expected, "{name}: {field}: {}", found[field]);
        }
        wait_for("the machine to be done", || is_done(cluster, name))?;
    }
    let now: Vec<u32> = machines.iter().map(Machine::boots).collect();
    ensure!(now == boots, "a restart of the kubelet is enough: {boots:?}, then {now:?}");
    Ok(())
}

/// Mirrors reach containerd, and go again.
pub(super) fn set_mirrors(cluster: &Cluster, machines: &[Machine]) -> Result<()> {
    let hosts = "/etc/containerd/certs.d/upstream.invalid/hosts.toml";
    cluster.apply(MIRRORS)?;
    for machine in &machines[1..] {
        wait_for("containerd to know the mirror", || {
            let text = String::from_utf8(machine.read_file(hosts).unwrap_or_default())?;
            ensure!(text.contains("[host.\"https://mirror.invalid/v2/proxy\"]"), "{text}");
            Ok(true)
        })?;
        wait_for("the machine to be done", || is_done(cluster, machine.name()))?;
    }
    cluster.kubectl(&["delete", "imagedigestmirrorset/mirrors"])?;
    for machine in &machines[1..] {
        wait_for("the mirror to go", || {
            is_done(cluster, machine.name())?;
            Ok(!machine.exists(hosts)?)
        })?;
    }
    Ok(())
}

/// Removing the profile removes what it generated, although the KubeletConfig stays.
pub(super) fn remove_profile(cluster: &Cluster, machines: &[Machine]) -> Result<()> {
    set_profile(cluster, "none")?;
    for machine in &machines[1..] {
        let name = machine.name();
        wait_for("the kubelet to have kubeadm's settings alone", || {
            let found = configz(cluster, name)?;
            ensure!(found["maxPods"] == 110, "{name}: {}", found["maxPods"]);
            is_done(cluster, name)
        })?;
        for path in [
            "/etc/kubernetes/kubelet.conf.d/50-machinist.conf",
            "/etc/systemd/system/kubelet.service.d/50-machinist.conf",
        ] {
            ensure!(!machine.exists(path)?, "{name}: {path} is left");
        }
    }
    cluster.kubectl(&["delete", "kubeletconfig/limits"])?;
    Ok(())
}

/// The administrator takes back every config, and removes the system in the middle of an update.
pub(super) fn leave(cluster: &Cluster, machines: &[Machine]) -> Result<()> {
    cluster.kubectl(&["delete", "mc", "50-file", "70-bad"])?;
    for machine in machines {
        wait_for("nothing of a config to be left", || {
            for path in ["/etc/from-cluster", "/etc/corrected", "/etc/machine-config-daemon"] {
                ensure!(!machine.exists(path)?, "{}: {path} is left", machine.name());
            }
            Ok(true)
        })?;
    }
    for name in ["n2", "n3"] {
        wait_for("the machine to be done", || is_done(cluster, name))?;
    }
    cluster.apply(GUARDED)?;
    let available = ["deployment/guarded", "--for=condition=Available", "--timeout=60s"];
    cluster.kubectl(&[&["wait"], &available[..]].concat())?;
    cluster.apply(&file("90-late", "/etc/late"))?;
    let is_cordoned = || -> Result<bool> {
        Ok(get(cluster, "/api/v1/nodes/n2")?["spec"]["unschedulable"] == true)
    };
    wait_for("the drain of n2 to be held", is_cordoned)?;
    let own = "/apis/operator.openshift.io/v1/machineconfigurations/cluster";
    merge(cluster, own, &json!({"spec": {"managementState": "Removed"}}))?;
    wait_for("the machine to be uncordoned", || Ok(!is_cordoned()?))?;
    wait_for("the components to go", || {
        let pods = cluster.kubectl(&["-n", NAMESPACE, "get", "deploy,ds", "-o", "name"])?;
        ensure!(pods.trim() == "deployment.apps/machine-config-operator", "{pods}");
        Ok(true)
    })?;
    let system = deploy("system").display().to_string();
    let delete = ["delete", "-k", &system, "--ignore-not-found", "--timeout=120s"];
    cluster.kubectl(&delete)?;
    for name in ["n1", "n2", "n3"] {
        let node = get(cluster, &format!("/api/v1/nodes/{name}"))?;
        ensure!(node["spec"]["unschedulable"] != true, "{name} is cordoned");
    }
    Ok(())
}
