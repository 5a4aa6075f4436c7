//! A ContainerRuntimeConfig on nodes that kubeadm made: what kubelet and containerd know arrives in both, what they do
//! not know is named on the object, and so is a node whose containerd reads no drop-ins. Deleting the object takes all
//! of it back.

use crate::install::existing_cluster::{POOL, annotations, is_done};
use crate::install::image;
use crate::install::kubeadm_nodes::{NodeFiles, configz};
use crate::install::support::{NAMESPACE, get, install};
use anyhow::{Result, ensure};
use machinist_e2e::{Cluster, Lab, Machine, wait_for};
use serde_json::json;

const SETTINGS: &str = r#"
apiVersion: machineconfiguration.openshift.io/v1
kind: ContainerRuntimeConfig
metadata: {name: runtime}
spec:
  machineConfigPoolSelector: {matchLabels: {limits: "yes"}}
  containerRuntimeConfig: {pidsLimit: 300, logSizeMax: 16Ki, logLevel: debug, overlaySize: 8G, defaultRuntime: crun}
"#;

/// Writes more than logSizeMax, slowly enough to be rotated more than once.
const TALKER: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: talker, namespace: default}
spec:
  nodeName: n2
  terminationGracePeriodSeconds: 0
  containers:
  - name: a
    image: "localhost/busybox:1"
    imagePullPolicy: Never
    command: [/bin/busybox, sh, -c, "while true; do echo 0123456789012345678901234567890123456789; /bin/busybox usleep 2000; done"]
"#;

#[test]
fn settings_of_the_container_runtime_reach_kubelet_and_containerd() {
    let lab = Lab::new().unwrap();
    let cluster = Cluster::with_nodes(&lab).unwrap();
    let machines = cluster.boot_kubeadm_nodes(&["n2", "n3"]).unwrap();
    image::load(&lab, &cluster, &machines).unwrap();
    let run = || -> Result<()> {
        // An administrator's containerd reads drop-ins on one of the nodes, as that of version 2.2 does by default.
        machines[0].sh(
            r#"sed -i '1i imports = ["/etc/containerd/conf.d/*.toml"]' /etc/containerd/config.toml"#,
        )?;
        prepare(&cluster, &machines)?;
        let before = NodeFiles::read(&machines)?;
        apply(&cluster, &machines)?;
        take_back(&cluster, &machines)?;
        before.check_unchanged(&machines)
    };
    if let Err(error) = run() {
        let objects = cluster.kubectl(&["get", "ctrcfg,mcp", "-o", "yaml"]).unwrap_or_default();
        let nodes = ["n2", "n3"].map(|name| annotations(&cluster, name));
        let boots: Vec<u32> = machines.iter().map(Machine::boots).collect();
        eprintln!("{objects}\n{nodes:?}\n{boots:?}");
        panic!("{error:#}");
    }
}

/// Installs with the profile of the nodes; one config gives both machines something to start from.
fn prepare(cluster: &Cluster, machines: &[Machine]) -> Result<()> {
    cluster.kubectl(&["create", "namespace", NAMESPACE])?;
    let url = format!("--from-literal=apiServerURL={}", cluster.url());
    let settings = ["-n", NAMESPACE, "create", "configmap", "machinist-settings", &url];
    let more = ["--from-literal=profile=kubeadm", "--from-literal=server=false"];
    cluster.kubectl(&[&settings[..], &more[..]].concat())?;
    install(cluster)?;
    cluster.apply(POOL)?;
    for machine in machines {
        // A first config may come before the templates are rendered.
        wait_for("the machine to have the profile", || {
            let drop_in = "/etc/kubernetes/kubelet.conf.d/50-machinist.conf";
            ensure!(machine.exists(drop_in)?, "{}: no {drop_in}", machine.name());
            is_done(cluster, machine.name())
        })?;
    }
    Ok(())
}

fn apply(cluster: &Cluster, machines: &[Machine]) -> Result<()> {
    let boots: Vec<u32> = machines.iter().map(Machine::boots).collect();
    cluster.apply(SETTINGS)?;
    for (machine, reads_drop_ins) in machines.iter().zip([true, false]) {
        let name = machine.name();
        wait_for("the running kubelet to have the settings", || {
            let found = configz(cluster, name)?;
            ensure!(
                found["podPidsLimit"] == 300 && found["containerLogMaxSize"] == "16Ki",
                "{name}: {} {}",
                found["podPidsLimit"],
                found["containerLogMaxSize"]
            );
            is_done(cluster, name)
        })?;
        let dump = machine.sh("containerd config dump | grep -A6 '^\\[debug\\]'")?;
        ensure!(dump.contains("level = \"debug\"") == reads_drop_ins, "{name}: {dump}");
        let lines = machine.sh("journalctl -u containerd -o cat | grep -c level=debug || true")?;
        ensure!((lines.trim() != "0") == reads_drop_ins, "{name}: {lines} lines of debugging");
    }
    let now: Vec<u32> = machines.iter().map(Machine::boots).collect();
    ensure!(now == boots, "restarts of services are enough: {boots:?}, then {now:?}");
    wait_for("the object to name what has no effect", || {
        let object = "/apis/machineconfiguration.openshift.io/v1/containerruntimeconfigs/runtime";
        let conditions = get(cluster, object)?["status"]["conditions"].clone();
        let all = conditions.as_array().cloned().unwrap_or_default();
        let types: Vec<_> = all.iter().filter_map(|it| it["type"].as_str()).collect();
        ensure!(types.ends_with(&["Warning", "Success"]), "{conditions}");
        let warning = all[all.len() - 2]["message"].as_str().unwrap_or_default().to_owned();
        for expected in [
            ".overlaySize: no effect: containerd cannot limit",
            ".defaultRuntime: no effect: ",
            ".pidsLimit: containerd has no limit for a container: ",
            ".logLevel: no effect on n3: /etc/containerd/config.toml there does not read",
        ] {
            ensure!(warning.contains(expected), "{warning}");
        }
        Ok(true)
    })?;
    limits_hold(cluster, &machines[0])
}

/// The kubelet's limit is in the kernel, and it rotates a log that grows.
fn limits_hold(cluster: &Cluster, machine: &Machine) -> Result<()> {
    cluster.apply(TALKER)?;
    let pod = cluster.wait_pod("default", "talker", 0)?;
    let uid = pod.metadata.uid.unwrap_or_default();
    let limit =
        machine.sh(&format!("cat /sys/fs/cgroup/pids/kubepods/besteffort/pod{uid}/pids.max"))?;
    ensure!(limit.trim() == "300", "{limit}");
    wait_for("the log to be rotated", || {
        let files = machine.sh(&format!("ls /var/log/pods/default_talker_{uid}/a"))?;
        Ok(files.lines().count() > 1)
    })?;
    cluster.kubectl(&["delete", "pod", "talker"]).map(drop)
}

fn take_back(cluster: &Cluster, machines: &[Machine]) -> Result<()> {
    cluster.kubectl(&["delete", "ctrcfg", "runtime", "--timeout=60s"])?;
    for machine in machines {
        let name = machine.name();
        wait_for("the kubelet to have its own settings", || {
            let found = configz(cluster, name)?;
            ensure!(found["podPidsLimit"] == json!(-1), "{name}: {}", found["podPidsLimit"]);
            ensure!(
                found["containerLogMaxSize"] == "10Mi",
                "{name}: {}",
                found["containerLogMaxSize"]
            );
            is_done(cluster, name)
        })?;
        ensure!(!machine.exists("/etc/containerd/conf.d")?, "{name}: the directory is left");
        let dump = machine.sh("containerd config dump | grep -A6 '^\\[debug\\]'")?;
        ensure!(!dump.contains("level = \"debug\""), "{name}: {dump}");
    }
    Ok(())
}
