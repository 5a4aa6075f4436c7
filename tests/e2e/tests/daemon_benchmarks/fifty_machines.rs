//! Fifty machines in systemd-nspawn, each with its daemon: without a reboot, with all rebooting at once, and with ten
//! at a time. Measures the duration, and the memory of a machine and its daemon.

use crate::daemon::fixture::{HubFixture, file, files};
use machinist_e2e::rollout_checker::{ReactionTime, check};
use machinist_e2e::{Machine, WatchLog, measurements, wait_with_timeout};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MACHINES: usize = 50;
/// How many machines boot concurrently.
const PARALLEL_BOOTS: usize = 4;
const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(1200);

/// Every systemd needs several inotify instances, and the host's root user has 128: too few for this many machines.
fn raise_inotify_limits() {
    let setting = "/proc/sys/fs/inotify/max_user_instances";
    let now: u32 = fs::read_to_string(setting).unwrap().trim().parse().unwrap();
    if now < 8192 {
        fs::write(setting, "8192").unwrap();
    }
}

/// Boots the machines and joins them.
fn boot(fixture: &HubFixture) -> Vec<Machine> {
    let (next, machines) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..PARALLEL_BOOTS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= MACHINES {
                        return;
                    }
                    let machine = fixture.machine(&format!("m{number}"));
                    fixture.join(&machine);
                    machines.lock().unwrap().push(machine);
                }
            });
        }
    });
    machines.into_inner().unwrap()
}

/// How many machines have a config and are done with it, by state.
fn states(fixture: &HubFixture, config: &str) -> anyhow::Result<BTreeMap<String, usize>> {
    let list = fixture.request("GET", "/api/v1/nodes", &Value::Null)?;
    let mut states = BTreeMap::new();
    for node in list["items"].as_array().into_iter().flatten() {
        let annotations = &node["metadata"]["annotations"];
        let says = |key: &str| {
            annotations[format!("machineconfiguration.openshift.io/{key}")]
                .as_str()
                .unwrap_or_default()
        };
        let has = if says("currentConfig") == config { "" } else { " before" };
        *states.entry(format!("{}{has}", says("state"))).or_default() += 1;
    }
    Ok(states)
}

fn wait_all(fixture: &HubFixture, config: &str) {
    wait_with_timeout(ROLLOUT_TIMEOUT, &format!("all machines to have {config}"), || {
        let states = states(fixture, config)?;
        anyhow::ensure!(states == BTreeMap::from([("Done".to_owned(), MACHINES)]), "{states:?}");
        Ok(true)
    })
    .unwrap();
}

fn record_and_print(name: &str, what: &str, value: &str) {
    println!("{MACHINES} machines, {what}: {value}");
    measurements::record(&format!("daemon-fifty-{name}"), value).unwrap();
}

/// A rollout to the whole pool, checked with its watch log.
fn roll_out(fixture: &HubFixture, name: &str, what: &str, at_once: usize, text: &str) {
    fixture.patch_pool(&json!({"spec": {"maxUnavailable": at_once}}));
    let log = WatchLog::start(&fixture.client).unwrap();
    let start = Instant::now();
    let config = fixture.apply_config("50-file", &files(&[file("/etc/rolled", text)]));
    wait_all(fixture, &config);
    let took = start.elapsed();
    let violations = check(&log.stop().unwrap(), ReactionTime::default());
    assert!(violations.is_empty(), "{violations:?}");
    record_and_print(name, what, &format!("{:.1} s", took.as_secs_f64()));
}

#[test]
#[ignore = "benchmark: make bench"]
fn fifty_machines_at_once() {
    raise_inotify_limits();
    let fixture = HubFixture::start();
    let start = Instant::now();
    let machines = boot(&fixture);
    wait_all(&fixture, "mco-empty-mc");
    record_and_print(
        "boot",
        "booted and joined",
        &format!("{:.1} s", start.elapsed().as_secs_f64()),
    );

    fixture.set_node_disruption_policy(
        &json!({"files": [{"path": "/etc/rolled", "actions": [{"type": "None"}]}]}),
    );
    roll_out(&fixture, "file", "a file without a restart, 50 at once", 50, "one\n");
    assert!(machines.iter().all(|machine| machine.boots() == 1));
    fixture.set_node_disruption_policy(&json!({}));
    roll_out(&fixture, "restart-50", "a file with a restart, 50 at once", 50, "two\n");
    roll_out(&fixture, "restart-10", "a file with a restart, 10 at once", 10, "three\n");
    for machine in &machines {
        assert_eq!(machine.read_file("/etc/rolled").unwrap(), b"three\n", "{}", machine.name());
        assert_eq!(machine.boots(), 3, "{}", machine.name());
    }

    // The anonymous memory of each idle daemon, and the memory of each whole machine.
    let anonymous = "awk '/^RssAnon:/ { print $2 }' /proc/$(systemctl show -P MainPID machinist-daemon.service)/status";
    let mut daemons: Vec<u64> = Vec::new();
    for machine in &machines {
        let is_idle = |machine: &Machine| {
            let size: u64 = machine.sh(anonymous)?.trim().parse()?;
            anyhow::ensure!(
                size <= crate::daemon_benchmarks::IDLE_MEMORY_BUDGET_KIB,
                "{size} KiB of the daemon are anonymous"
            );
            daemons.push(size);
            Ok(true)
        };
        machine.wait_for("the daemon to become idle", is_idle).unwrap();
    }
    daemons.sort_unstable();
    let whole: u64 = machines.iter().map(Machine::memory).sum();
    let daemon = format!("{} KiB ({} KiB at most)", daemons[MACHINES / 2], daemons[MACHINES - 1]);
    record_and_print("daemon", "anonymous memory of an idle daemon", &daemon);
    let machine = format!("{} KiB", (whole >> 10) / u64::try_from(MACHINES).unwrap());
    record_and_print("machine", "memory of a whole machine", &machine);
}
