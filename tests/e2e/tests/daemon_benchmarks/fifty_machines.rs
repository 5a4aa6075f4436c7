//! Fifty machines in systemd-nspawn, each with its daemon: without a restart, with all restarting at once, and with ten
//! at a time. How long it takes, and what a machine and its daemon have in memory.

use crate::site::{HubFixture, file, files};
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
/// As many are booted beside each other.
const PARALLEL_BOOTS: usize = 4;
const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(1200);

/// Every systemd wants some inotify instances, and the host's root has 128: not enough for so many machines.
fn raise_inotify_limits() {
    let setting = "/proc/sys/fs/inotify/max_user_instances";
    let now: u32 = fs::read_to_string(setting).unwrap().trim().parse().unwrap();
    if now < 8192 {
        fs::write(setting, "8192").unwrap();
    }
}

/// Boots the machines and has them join.
fn boot(site: &HubFixture) -> Vec<Machine> {
    let (next, machines) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..PARALLEL_BOOTS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= MACHINES {
                        return;
                    }
                    let machine = site.machine(&format!("m{number}"));
                    site.join(&machine);
                    machines.lock().unwrap().push(machine);
                }
            });
        }
    });
    machines.into_inner().unwrap()
}

/// How many machines have a config and are done with it, by state.
fn states(site: &HubFixture, config: &str) -> anyhow::Result<BTreeMap<String, usize>> {
    let list = site.request("GET", "/api/v1/nodes", &Value::Null)?;
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

fn wait_all(site: &HubFixture, config: &str) {
    wait_with_timeout(ROLLOUT_TIMEOUT, &format!("all machines to have {config}"), || {
        let states = states(site, config)?;
        anyhow::ensure!(states == BTreeMap::from([("Done".to_owned(), MACHINES)]), "{states:?}");
        Ok(true)
    })
    .unwrap();
}

fn record_and_print(name: &str, what: &str, value: &str) {
    println!("{MACHINES} machines, {what}: {value}");
    measurements::record(&format!("daemon-fifty-{name}"), value).unwrap();
}

/// A rollout to the whole pool, judged by its watch log.
fn roll_out(site: &HubFixture, name: &str, what: &str, at_once: usize, text: &str) {
    site.patch_pool(&json!({"spec": {"maxUnavailable": at_once}}));
    let log = WatchLog::start(&site.client).unwrap();
    let start = Instant::now();
    let config = site.apply_config("50-file", &files(&[file("/etc/rolled", text)]));
    wait_all(site, &config);
    let took = start.elapsed();
    let violations = check(&log.stop().unwrap(), ReactionTime::default());
    assert!(violations.is_empty(), "{violations:?}");
    record_and_print(name, what, &format!("{:.1} s", took.as_secs_f64()));
}

#[test]
#[ignore = "a figure: make bench"]
fn fifty_machines_at_once() {
    raise_inotify_limits();
    let site = HubFixture::start();
    let start = Instant::now();
    let machines = boot(&site);
    wait_all(&site, "mco-empty-mc");
    record_and_print(
        "boot",
        "booted and joined",
        &format!("{:.1} s", start.elapsed().as_secs_f64()),
    );

    site.set_node_disruption_policy(
        &json!({"files": [{"path": "/etc/rolled", "actions": [{"type": "None"}]}]}),
    );
    roll_out(&site, "file", "a file without a restart, 50 at once", 50, "one\n");
    assert!(machines.iter().all(|machine| machine.boots() == 1));
    site.set_node_disruption_policy(&json!({}));
    roll_out(&site, "restart-50", "a file with a restart, 50 at once", 50, "two\n");
    roll_out(&site, "restart-10", "a file with a restart, 10 at once", 10, "three\n");
    for machine in &machines {
        assert_eq!(machine.read_file("/etc/rolled").unwrap(), b"three\n", "{}", machine.name());
        assert_eq!(machine.boots(), 3, "{}", machine.name());
    }

    // What the daemon of a machine has in memory when it rests, and the whole machine.
    let resident = "ps -o rss= -p $(systemctl show -P MainPID machinist-daemon.service)";
    let mut daemons: Vec<u64> = Vec::new();
    for machine in &machines {
        let rests = |machine: &Machine| {
            let size: u64 = machine.sh(resident)?.trim().parse()?;
            anyhow::ensure!(size <= 10 << 10, "{size} KB are resident");
            daemons.push(size);
            Ok(true)
        };
        machine.wait_for("the daemon to rest", rests).unwrap();
    }
    daemons.sort_unstable();
    let whole: u64 = machines.iter().map(Machine::memory).sum();
    let figure = format!("{} KB ({} KB at most)", daemons[MACHINES / 2], daemons[MACHINES - 1]);
    record_and_print("daemon", "resident memory of a daemon that rests", &figure);
    let figure = format!("{} KB", (whole >> 10) / u64::try_from(MACHINES).unwrap());
    record_and_print("machine", "memory of a whole machine", &figure);
}
