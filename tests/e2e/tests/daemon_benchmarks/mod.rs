//! The costs of the daemon: many files on a real disk, one file of a running machine, fifty machines at once, and being
//! idle. Measurements need an optimised binary and an idle host, so these run with `make bench`.

mod fifty_machines;
mod one_file;

use machinist_e2e::{ApiServer, Lab, LoopDisk, binary, command, measurements, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A MachineConfig of a thousand files of about a kilobyte, a hundred per directory.
fn thousand_files_config(dir: &Path, name: &str) -> PathBuf {
    let file = |number: usize| {
        let text = format!("{name}-{number:04}-").repeat(90);
        let path = format!("/etc/many/{}/{number}", number / 100);
        json!({"path": path, "contents": {"source": format!("data:,{text}")}})
    };
    let files: Vec<Value> = (0..1000).map(file).collect();
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}}
    });
    let path = dir.join(format!("{name}.json"));
    fs::write(&path, config.to_string()).unwrap();
    path
}

/// Applies a config to a root and returns the duration.
fn apply_once(root: &Path, config: &Path, what: &str) -> Duration {
    let mut once = Command::new(binary::machinist_binary().unwrap());
    once.args(["once", "-o", "json", "--root"]).arg(root).arg("-f").arg(config);
    let begin = Instant::now();
    command::run(&mut once).unwrap();
    let took = begin.elapsed();
    println!("{what}: {took:?}");
    measurements::record(&format!("once-{}", what.replace([' ', ','], "-")), format!("{took:?}"))
        .unwrap();
    took
}

#[test]
#[ignore = "benchmark: make bench"]
fn a_thousand_files_take_two_seconds_at_most() {
    let lab = Lab::on_disk().unwrap();
    let disk = LoopDisk::new(&lab, "disk", 256).unwrap();
    let root = disk.path().join("root");
    fs::create_dir_all(root.join("etc")).unwrap();
    let [first, second] = ["first", "second"].map(|name| thousand_files_config(lab.dir(), name));
    for (what, config, budget) in [
        ("1,000 files written", &first, 2),
        ("1,000 files replaced", &second, 2),
        ("1,000 files as they should be", &second, 1),
    ] {
        let took = apply_once(&root, config, what);
        assert!(took < Duration::from_secs(budget), "{what}: {took:?}");
    }
}

/// The anonymous memory that an idle daemon may have, in KiB. Clean file pages do not count: the kernel
/// reclaims them when it needs memory.
const IDLE_MEMORY_BUDGET_KIB: u64 = 3 << 10;

/// The system calls that an idle daemon may make in a minute.
const IDLE_CALLS_BUDGET: usize = 400;

/// A field of `/proc/PID/status`, in KiB.
fn status(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "benchmark: make bench"]
fn an_idle_daemon_uses_no_cpu() {
    let api_server = ApiServer::hub().unwrap();
    let lab = Lab::on_disk().unwrap();
    let root = lab.create_dir("root").unwrap();
    fs::create_dir_all(root.join("etc")).unwrap();
    let mut daemon = Command::new(binary::machinist_binary().unwrap());
    daemon.args(["daemon", "start", "--node-name", "idle", "--register", "--root"]).arg(&root);
    daemon.args(["--label", "node-role.kubernetes.io/worker=", "--kubeconfig"]);
    daemon.arg(api_server.kubeconfig());
    let mut process = lab.spawn("daemon", &daemon).unwrap();
    let state = r"jsonpath={.metadata.annotations.machineconfiguration\.openshift\.io/state}";
    wait_for("the machine to be done", || {
        process.check_alive()?;
        let output = api_server.kubectl(&["get", "node", "idle", "-o", state])?;
        Ok(output.stdout.trim() == "Done")
    })
    .unwrap();
    let pid = process.id();
    // The threads that the start needed are gone after a while.
    wait_for("the daemon to become idle", || {
        let anonymous = status(pid, "RssAnon:");
        anyhow::ensure!(
            anonymous <= IDLE_MEMORY_BUDGET_KIB,
            "{anonymous} KiB are anonymous, the budget is {IDLE_MEMORY_BUDGET_KIB} KiB"
        );
        Ok(true)
    })
    .unwrap();
    let log = lab.dir().join("calls");
    let mut strace = Command::new("timeout");
    strace.args(["--signal=INT", "60", "strace", "-f", "-qq", "-o"]).arg(&log);
    strace.args(["-p", &pid.to_string()]);
    command::output(&mut strace).unwrap();
    let calls = fs::read_to_string(&log).unwrap();
    // The system call that was in progress at the start does not count.
    let count = calls.lines().filter(|line| !line.contains("resumed")).count();
    let (resident, anonymous) = (status(pid, "VmRSS:"), status(pid, "RssAnon:"));
    println!(
        "idle: {count} system calls in a minute, {anonymous} KiB anonymous, {resident} KiB resident"
    );
    measurements::record("daemon-idle-calls", count).unwrap();
    measurements::record(
        "daemon-idle-memory",
        format!("{anonymous} KiB anonymous ({resident} KiB resident)"),
    )
    .unwrap();
    // The lease is renewed six times; nothing else is periodic.
    assert!(count <= IDLE_CALLS_BUDGET, "{count} system calls in an idle minute:\n{calls}");
    assert!(anonymous <= IDLE_MEMORY_BUDGET_KIB, "{anonymous} KiB");
}
