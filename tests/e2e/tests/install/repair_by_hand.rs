//! What a person repairs stays repaired: on the host while the kubelet is down, before the guard returns to the config
//! before; and after a rollback of the health gate. In both cases the corrected config is tried, and so is the same one
//! when somebody asks for it.

use crate::install::existing_cluster::{POOL, annotations, file, is_done, pool_condition};
use crate::install::image;
use crate::install::support::{NAMESPACE, install};
use anyhow::{Context as _, Result, ensure};
use machinist_e2e::{Cluster, Lab, Machine, wait_for};
use serde_json::{Value, json};

const DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/90-bad.conf";
const HEALTH: &str = "/etc/machinist/health.yaml";
/// What the health check of the second part looks for. No config has it.
const REPAIRED: &str = "/var/lib/repaired";

/// A MachineConfig with files.
fn files(name: &str, files: &[(&str, &str)]) -> String {
    let files: Vec<Value> = files
        .iter()
        .map(|(path, text)| {
            let encoded: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
            json!({"path": path, "mode": 0o644, "contents": {"source": format!("data:,{encoded}")}})
        })
        .collect();
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}},
    })
    .to_string()
}

fn is_not_blocked(cluster: &Cluster) -> Result<()> {
    for type_ in ["RolloutBlocked", "NodeDegraded", "Degraded"] {
        let found = pool_condition(cluster, type_)?;
        ensure!(!found.starts_with("True"), "{type_}: {found}");
    }
    Ok(())
}

#[test]
fn a_config_is_tried_after_a_repair_by_hand() {
    let lab = Lab::new().unwrap();
    let cluster = Cluster::with_nodes(&lab).unwrap();
    let machines = cluster.boot_kubeadm_nodes(&["n2", "n3"]).unwrap();
    image::load(&lab, &cluster, &machines).unwrap();
    let run = || -> Result<()> {
        cluster.kubectl(&["create", "namespace", NAMESPACE])?;
        let url = format!("--from-literal=apiServerURL={}", cluster.url());
        let settings = ["-n", NAMESPACE, "create", "configmap", "machinist-settings", &url];
        cluster.kubectl(&[&settings[..], &["--from-literal=server=false"]].concat())?;
        install(&cluster)?;
        cluster.apply(POOL)?;
        cluster.apply(&file("50-file", "/etc/from-cluster"))?;
        all_done(&cluster, "")?;
        before_the_rollback(&cluster, &machines).context("before the rollback")?;
        after_the_rollback(&cluster, &machines).context("after the rollback")
    };
    if let Err(error) = run() {
        let nodes = ["n2", "n3"].map(|name| annotations(&cluster, name));
        let pool = cluster.kubectl(&["describe", "mcp", "compute"]);
        let daemon = machines[0].sh("journalctl -o cat -u machinist-guard -u kubelet | tail -40");
        eprintln!("{nodes:?}\n{}\n{}", pool.unwrap_or_default(), daemon.unwrap_or_default());
        panic!("{error:#}");
    }
}

/// Waits until both machines have a config other than this one.
fn all_done(cluster: &Cluster, before: &str) -> Result<()> {
    for name in ["n2", "n3"] {
        wait_for("the machine to have the next config", || {
            ensure!(annotations(cluster, name)?["currentConfig"] != before);
            is_done(cluster, name)
        })?;
    }
    wait_for("the pool to be well", || is_not_blocked(cluster).map(|()| true))
}

fn current(cluster: &Cluster, name: &str) -> Result<String> {
    let found = annotations(cluster, name)?["currentConfig"].clone();
    found.as_str().map(str::to_owned).context("no current config")
}

/// The machine with a bad kubelet is repaired on its console, long before the guard would.
fn before_the_rollback(cluster: &Cluster, machines: &[Machine]) -> Result<()> {
    let good = current(cluster, "n2")?;
    let boots: Vec<u32> = machines.iter().map(Machine::boots).collect();
    let bad = "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --no-such-flag\n";
    let health = "deadline: 5m\nstable: 1s\nunits: [systemd-journald.service]\n";
    cluster.apply(&files("70-bad", &[(DROP_IN, bad), (HEALTH, health)]))?;
    let mut broken = None;
    wait_for("one machine to boot with a kubelet that does not start", || {
        let is_broken = |machine: &&Machine| {
            let shown =
                machine.sh("systemctl show -p NRestarts --value kubelet").unwrap_or_default();
            machine.exists(DROP_IN).unwrap_or_default()
                && shown.trim().parse::<u32>().is_ok_and(|restarts| restarts > 1)
        };
        broken = machines.iter().find(is_broken);
        Ok(broken.is_some())
    })?;
    let broken = broken.context("no machine")?;
    broken.sh(&format!("rm {DROP_IN} && systemctl daemon-reload && systemctl restart kubelet"))?;
    cluster.wait_ready(broken)?;
    cluster.apply(&files("70-bad", &[("/etc/corrected", "corrected")]))?;
    all_done(cluster, &good)?;
    for (machine, before) in machines.iter().zip(boots) {
        let name = machine.name();
        ensure!(machine.read_file("/etc/corrected")? == b"corrected", "{name}");
        ensure!(!machine.exists(DROP_IN)?, "{name}: the bad drop-in is back");
        ensure!(machine.boots() <= before + 2, "{name}: {before}, then {}", machine.boots());
    }
    let journal = broken.sh("journalctl -o cat -u machinist-guard")?;
    ensure!(!journal.contains("rolling back"), "{journal}");
    Ok(())
}

/// A config whose health check needs what only a person can bring: it fails, the person brings it, and the same config
/// succeeds on request. Then the config is corrected as well.
fn after_the_rollback(cluster: &Cluster, machines: &[Machine]) -> Result<()> {
    let good = current(cluster, "n2")?;
    cluster.kubectl(&["annotate", "mcp", "compute", "machinist.dev/max-failures=0"])?;
    let health = |deadline: u32| {
        format!(
            "deadline: {deadline}s\nstable: 1s\ncommands:\n- run: [/usr/bin/test, -e, {REPAIRED}]\n"
        )
    };
    cluster.apply(&files("80-gate", &[("/etc/gated", "1"), (HEALTH, &health(5))]))?;
    let mut failed = None;
    wait_for("one machine to roll back and say why", || {
        for machine in machines {
            let found = annotations(cluster, machine.name())?;
            let reason = found["reason"].as_str().unwrap_or_default().to_owned();
            if found["state"] == "Degraded" && reason.contains("rolled back to") {
                ensure!(found["currentConfig"] == good.as_str(), "{found}");
                failed = found["failed-config"].as_str().map(|config| (machine, config.to_owned()));
            }
        }
        Ok(failed.is_some())
    })?;
    let (machine, bad) = failed.context("no machine")?;
    wait_for("the pool to stop its rollout", || {
        let found = pool_condition(cluster, "RolloutBlocked")?;
        ensure!(found.contains("is remembered as bad"), "{found}");
        Ok(true)
    })?;
    // The same config, after the repair: it is requested on the pool and on the machine.
    for machine in machines {
        machine.sh(&format!("touch {REPAIRED}"))?;
    }
    cluster.kubectl(&["annotate", "mcp", "compute", "machinist.dev/bad-configs-"])?;
    let retry = format!("machinist.dev/retry={bad}");
    cluster.kubectl(&["annotate", "node", machine.name(), &retry])?;
    all_done(cluster, &good)?;
    ensure!(current(cluster, "n2")? == bad, "the config that had failed");
    for machine in machines {
        ensure!(machine.read_file("/etc/gated")? == b"1", "{}", machine.name());
        let failed = "/etc/machine-config-daemon/machinist-failed.json";
        ensure!(!machine.exists(failed)?, "{}: {failed} is left", machine.name());
        machine.sh(&format!("rm {REPAIRED}"))?;
    }
    // And a corrected one, on machines that have failed before: nobody has to ask.
    cluster.apply(&files("80-gate", &[("/etc/gated", "2")]))?;
    all_done(cluster, &bad)?;
    for machine in machines {
        ensure!(machine.read_file("/etc/gated")? == b"2", "{}", machine.name());
    }
    Ok(())
}
