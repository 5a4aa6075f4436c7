//! A host that is short of something: no `/tmp`, no open files, no space, little memory and processor time, a systemd that
//! reloads all the time, and a reboot by someone else. The daemon never exits, and the machine converges.

use super::fixture::{InterferenceFixture, NODE};
use machinist_e2e::Machine;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

const DAEMON_PID: &str = "systemctl show -P MainPID machinist-daemon.service";
/// Several times what the daemon needs, and far below what it would take without a limit on reading a whole config often.
const MEMORY_LIMIT: u64 = 64 << 20;
/// A twentieth of a processor, in microseconds of 100 ms.
const CPU_QUOTA: u32 = 5000;

/// The process ID of the daemon as the host of the machine sees it.
pub(super) fn host_pid(machine: &Machine) -> u32 {
    let inside = machine.sh(DAEMON_PID).unwrap().trim().to_owned();
    let leader = machine.root().unwrap();
    let namespace = |process: &Path| fs::read_link(process.join("ns/pid")).ok();
    let own = namespace(leader.parent().unwrap());
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let mut found = processes.filter(|process| own.is_some() && namespace(process) == own);
    let daemon = found.find(|process| {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        let ids = status.lines().find(|line| line.starts_with("NSpid:")).unwrap_or_default();
        ids.split_whitespace().last() == Some(&inside)
    });
    daemon.unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap()
}

/// Limits the daemon as `MemoryMax` and `CPUQuota` of its service do. Machines of the kit have no controllers of their own
/// where the host uses cgroup v1, so the group is made from the outside. Returns the groups.
fn limit_daemon(machine: &Machine) -> Vec<PathBuf> {
    let pid = host_pid(machine);
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let mut made = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap(), fields.next().unwrap());
        for (controller, file, limit) in [
            ("memory", "memory.limit_in_bytes", MEMORY_LIMIT.to_string()),
            ("cpu", "cpu.cfs_quota_us", CPU_QUOTA.to_string()),
        ] {
            if controllers.split(',').any(|one| one == controller) {
                let group = PathBuf::from(format!("/sys/fs/cgroup/{controller}{path}/limited"));
                fs::create_dir_all(&group).unwrap();
                fs::write(group.join(file), limit).unwrap();
                fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap();
                made.push(group);
            }
        }
    }
    made
}

#[test]
fn a_host_that_is_short_of_something_converges() {
    let fixture = InterferenceFixture::start(None);
    let machine = &fixture.machine;
    fixture.desire("first", &[("/etc/one", "first\n")]);
    fixture.hub.wait_done(machine, "first");

    machine.sh("umount -l /tmp 2>/dev/null || true; rm -rf /tmp").unwrap();
    fixture.desire("no-tmp", &[("/etc/one", "no-tmp\n")]);
    fixture.hub.wait_done(machine, "no-tmp");
    machine.sh("mkdir -m 1777 /tmp").unwrap();

    // Whatever the daemon opens fails, files and connections alike.
    machine.sh(&format!("prlimit --pid $({DAEMON_PID}) --nofile=8:")).unwrap();
    fixture.desire("few-files", &[("/etc/one", "few-files\n")]);
    machine.sh("sleep 5").unwrap();
    fixture.assert_daemon_never_exited();
    machine.sh(&format!("prlimit --pid $({DAEMON_PID}) --nofile=1024:")).unwrap();
    fixture.hub.wait_done(machine, "few-files");

    machine.sh("dd if=/dev/zero of=/var/fill bs=256k 2>/dev/null || true; sync").unwrap();
    machine.sh("dd if=/dev/zero of=/var/fill2 bs=1k 2>/dev/null || true; sync").unwrap();
    let large = "large\n".repeat(50_000);
    fixture.desire("full", &[("/etc/one", &large), ("/etc/two", "full\n")]);
    fixture.wait_degraded(&["No space left"]);
    assert_eq!(fixture.read("/etc/one"), "few-files\n");
    assert!(!machine.exists("/etc/two").unwrap());
    machine.sh("rm -f /var/fill /var/fill2").unwrap();
    fixture.hub.wait_done(machine, "full");
    assert_eq!(fixture.read("/etc/one"), large);

    let reload = "while :; do systemctl daemon-reload; sleep 0.02; done";
    machine.sh(&format!("systemd-run -q --unit=reloads sh -c '{reload}'")).unwrap();
    fixture.desire("reloads", &[("/etc/one", "reloads\n")]);
    fixture.hub.wait_done(machine, "reloads");
    machine.sh("systemctl stop reloads.service").unwrap();

    let limits = "[Service]\nMemoryMax=64M\nCPUQuota=5%\n";
    let drop_in = "/run/systemd/system/machinist-daemon.service.d/limits.conf";
    machine.write_file(drop_in, limits).unwrap();
    machine.sh("systemctl daemon-reload").unwrap();
    let groups = limit_daemon(machine);
    eprintln!("limited by {groups:?}");
    fixture.desire("limited", &[("/etc/one", &large), ("/etc/two", "limited\n")]);
    fixture.hub.wait_done(machine, "limited");
    fixture.assert_daemon_never_exited();

    // The daemon orders a reboot, and an administrator another one.
    let boots = machine.boots();
    fixture.desire("reboots", &[("/etc/reboots", "reboots\n")]);
    machine
        .wait_for("the file before the reboot", |machine| machine.exists("/etc/reboots"))
        .unwrap();
    let _ = machine.exec(&["systemctl", "--no-block", "reboot"]);
    fixture.hub.wait_done(machine, "reboots");
    assert!((1..=2).contains(&(machine.boots() - boots)), "{} boots", machine.boots() - boots);
    assert_eq!(fixture.hub.annotation(NODE, "desiredDrain"), "uncordon-reboots");
    fixture.assert_daemon_never_exited();
}

/// A config whose unit reloads systemd, one that stops SSH, and one that stops the network for good.
#[test]
fn a_config_that_cuts_the_machine_off_is_reported_when_the_network_is_back() {
    let fixture = InterferenceFixture::start(None);
    let machine = &fixture.machine;
    let restart = |unit: &str| {
        let restart = json!({"type": "Restart", "restart": {"serviceName": unit}});
        json!({"name": unit, "actions": [restart]})
    };
    let none = json!({"name": "ssh.service", "actions": [{"type": "None"}]});
    let units = [restart("reloader.service"), restart("net-cut.service"), none];
    fixture.hub.set_node_disruption_policy(&json!({"units": units}));
    let oneshot = |command: &str| {
        format!("[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart={command}\n")
    };
    let desire = |name: &str, units: &serde_json::Value| {
        fixture.hub.create_unselected_config(name, &json!({"systemd": {"units": units}}));
        fixture.hub.annotate(NODE, &[("desiredConfig", name)]);
    };

    let reloader = json!({"name": "reloader.service",
        "contents": oneshot("/bin/systemctl daemon-reload")});
    desire("reloader", &json!([reloader]));
    fixture.hub.wait_done(machine, "reloader");
    assert_eq!(machine.sh("systemctl is-active reloader.service").unwrap(), "active\n");

    let no_ssh = json!({"name": "ssh.service", "mask": true});
    desire("no-ssh", &json!([reloader, no_ssh]));
    fixture.hub.wait_done(machine, "no-ssh");
    let status = machine.sh("systemctl is-enabled ssh.service || true").unwrap();
    assert_eq!(status, "masked\n");

    let net_cut = json!({"name": "net-cut.service",
        "contents": oneshot("/bin/ip link set host0 down")});
    desire("no-network", &json!([reloader, no_ssh, net_cut]));
    machine
        .wait_for("the network to be gone", |machine| {
            Ok(machine.sh("ip -o link show host0")?.contains("state DOWN"))
        })
        .unwrap();
    machine.sh("sleep 5").unwrap();
    // Someone with a console sees what the machine has, and why.
    let status = machine.exec(&["machinist", "daemon", "status"]).unwrap();
    assert!(status.stdout.contains("no-network"), "{status:?}");
    fixture.assert_daemon_never_exited();
    machine.sh("ip link set host0 up").unwrap();
    fixture.hub.wait_done(machine, "no-network");
    fixture.assert_daemon_never_exited();
}
