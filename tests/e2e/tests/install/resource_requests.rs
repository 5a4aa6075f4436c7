//! What the components of an installation use on real nodes, compared with the requests in their manifests. The nightly
//! step `resources` runs this with a release binary; docs/performance.md has the results.

use crate::install::existing_cluster::{POOL, file, is_done};
use crate::install::image;
use crate::install::support::{CONTROLLER, DAEMON, NAMESPACE, OPERATOR, SERVER, install};
use anyhow::{Context as _, Result, ensure};
use machinist_e2e::{Cluster, Lab, Machine, measurements, wait_for};
use serde_json::Value;
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

/// How long an idle installation is watched.
const IDLE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// A pod of a component.
struct ComponentPod<'a> {
    component: String,
    machine: &'a Machine,
    uid: String,
    /// In MiB.
    memory_request: u64,
    /// In thousandths of a core.
    cpu_request: u64,
}

/// What a pod uses now.
#[derive(Debug, Clone, Copy, Default)]
struct PodUsage {
    /// Without the part of the page cache that the kernel takes back first: what an eviction compares with the request.
    working_set: u64,
    /// Since its start.
    processor: Duration,
}

impl ComponentPod<'_> {
    fn usage(&self) -> Result<PodUsage> {
        let below = |controller: &str| {
            format!("/sys/fs/cgroup/{controller}/kubepods/burstable/pod{}", self.uid)
        };
        let (memory, processor) = (below("memory"), below("cpuacct"));
        let text = self.machine.sh(&format!(
            "cat {memory}/memory.usage_in_bytes; sed -n 's/^total_inactive_file //p' {memory}/memory.stat; cat {processor}/cpuacct.usage"
        ))?;
        let numbers: Vec<u64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
        let [all, inactive, nanoseconds] = numbers[..] else { anyhow::bail!("{text}") };
        Ok(PodUsage {
            working_set: all.saturating_sub(inactive),
            processor: Duration::from_nanos(nanoseconds),
        })
    }
}

/// The pods of all components.
fn pods<'a>(cluster: &Cluster, machines: &'a [Machine]) -> Result<Vec<ComponentPod<'a>>> {
    let list = cluster.kubectl(&["-n", NAMESPACE, "get", "pods", "-o", "json"])?;
    let list: Value = serde_json::from_str(&list)?;
    let pods = list["items"].as_array().context("no pods")?;
    let read = |pod: &Value| -> Result<ComponentPod<'a>> {
        let text = |pointer: &str| {
            pod.pointer(pointer).and_then(Value::as_str).context(pointer.to_owned())
        };
        let requests = "/spec/containers/0/resources/requests";
        let node = text("/spec/nodeName")?;
        Ok(ComponentPod {
            component: text("/metadata/labels/k8s-app")?.to_owned(),
            machine: machines
                .iter()
                .find(|machine| machine.name() == node)
                .context("no machine")?,
            uid: text("/metadata/uid")?.to_owned(),
            memory_request: text(&format!("{requests}/memory"))?.trim_end_matches("Mi").parse()?,
            cpu_request: text(&format!("{requests}/cpu"))?.trim_end_matches('m').parse()?,
        })
    };
    pods.iter().map(read).collect()
}

/// The usage of the pod of each component that uses most.
#[derive(Debug, Default)]
struct ComponentUsage {
    idle: u64,
    rollout: u64,
    idle_cpu: u64,
    rollout_cpu: u64,
    memory_request: u64,
    cpu_request: u64,
}

/// Thousandths of a core.
fn share(used: Duration, time: Duration) -> u64 {
    u64::try_from(used.as_micros() * 1000 / time.as_micros().max(1)).unwrap_or(u64::MAX)
}

#[test]
#[ignore = "a measurement: scripts/resources"]
fn the_components_stay_within_their_requests() {
    let lab = Lab::new().unwrap();
    let cluster = Cluster::with_nodes(&lab).unwrap();
    let machines = cluster.boot_kubeadm_nodes(&["n1", "n2", "n3"]).unwrap();
    image::load(&lab, &cluster, &machines).unwrap();
    cluster.kubectl(&["label", "node", "n1", "node-role.kubernetes.io/control-plane="]).unwrap();
    cluster.kubectl(&["create", "namespace", NAMESPACE]).unwrap();
    let url = format!("--from-literal=apiServerURL={}", cluster.url());
    let settings = ["-n", NAMESPACE, "create", "configmap", "machinist-settings", &url];
    cluster.kubectl(&settings).unwrap();
    install(&cluster).unwrap();
    cluster.apply(POOL).unwrap();
    cluster.apply(&file("50-file", "/etc/from-cluster")).unwrap();
    let all_done = |path: &str| -> Result<()> {
        for machine in &machines[1..] {
            wait_for("the machine to have its config", || {
                ensure!(machine.exists(path)?, "{}: no {path}", machine.name());
                is_done(&cluster, machine.name())
            })?;
        }
        Ok(())
    };
    all_done("/etc/from-cluster").unwrap();
    let all = pods(&cluster, &machines).unwrap();
    let mut found: BTreeMap<String, ComponentUsage> = BTreeMap::new();

    let start = Instant::now();
    let before: Vec<PodUsage> = all.iter().map(|pod| pod.usage().unwrap()).collect();
    thread::sleep(IDLE); // an idle minute is what is measured
    for (pod, before) in all.iter().zip(&before) {
        let now = pod.usage().unwrap();
        let usage = found.entry(pod.component.clone()).or_default();
        (usage.memory_request, usage.cpu_request) = (pod.memory_request, pod.cpu_request);
        usage.idle = usage.idle.max(now.working_set / MIB);
        usage.idle_cpu =
            usage.idle_cpu.max(share(now.processor - before.processor, start.elapsed()));
    }

    // A rollout that restarts nothing, so that the pods stay the same.
    let start = Instant::now();
    let before: Vec<PodUsage> = all.iter().map(|pod| pod.usage().unwrap()).collect();
    cluster.apply(&file("60-motd", "/etc/motd.d/machinist")).unwrap();
    all_done("/etc/motd.d/machinist").unwrap();
    for (pod, before) in all.iter().zip(&before) {
        let now = pod.usage().unwrap();
        let usage = found.entry(pod.component.clone()).or_default();
        usage.rollout = usage.rollout.max(now.working_set / MIB);
        usage.rollout_cpu =
            usage.rollout_cpu.max(share(now.processor - before.processor, start.elapsed()));
    }

    for component in [OPERATOR, CONTROLLER, SERVER, DAEMON] {
        assert!(found.contains_key(component), "no pod of {component}: {:?}", found.keys());
    }
    for (component, usage) in &found {
        let ComponentUsage { idle, rollout, idle_cpu, rollout_cpu, memory_request, cpu_request } =
            usage;
        let text = format!(
            "{component}: {idle} MiB and {idle_cpu}m idle, {rollout} MiB and {rollout_cpu}m in a rollout; requests {memory_request} MiB and {cpu_request}m"
        );
        println!("{text}");
        measurements::record(&format!("resources-{component}"), text).unwrap();
    }
    for (component, usage) in &found {
        let most = usage.idle.max(usage.rollout);
        assert!(most <= usage.memory_request, "{component} uses {most} MiB: {usage:?}");
        assert!(usage.idle_cpu <= usage.cpu_request, "{component} is not idle: {usage:?}");
    }
}
