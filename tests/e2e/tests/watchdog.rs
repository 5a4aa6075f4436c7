//! The daemon comes back by itself: after a power cut, and after its unit or binary was removed, masked or replaced.

use crate::daemon::fixture::HubFixture;
use machinist_e2e::Machine;

const NODE: &str = "a";
const UNIT: &str = "/etc/systemd/system/machinist-daemon.service";
/// The kit mounts `/usr/local/bin/machinist`, which cannot be removed.
const BINARY: &str = "/opt/machinist";

fn is_active(machine: &Machine) -> anyhow::Result<bool> {
    Ok(machine.exec(&["systemctl", "is-active", "machinist-daemon"])?.succeeded())
}

#[track_caller]
fn wait_active(machine: &Machine, after: &str) {
    let waited = machine.wait_for(&format!("the daemon after {after}"), is_active);
    if let Err(error) = waited {
        let log = "journalctl --no-pager -u 'machinist-*' | tail -60; systemctl list-timers --all";
        panic!("{error:#}\n{}", machine.sh(log).unwrap_or_default());
    }
}

#[test]
fn a_power_cut_right_after_join_does_no_harm() {
    let hub = HubFixture::start();
    let machine = hub.lab.machine(NODE).with_machinist().unwrap().disk(512).boot().unwrap();
    hub.join(&machine);
    machine.power_cut().unwrap();
    machine.power_on().unwrap();
    wait_active(&machine, "a power cut");
    hub.wait_done(&machine, "mco-empty-mc");
    let status = machine.exec(&["machinist", "daemon", "status"]).unwrap();
    assert_eq!(status.code, 0, "{status:?}");
}

#[test]
fn a_daemon_that_cannot_run_comes_back_by_itself() {
    let hub = HubFixture::start();
    // Two copies of a debug build fit.
    let machine = hub.lab.machine(NODE).with_machinist().unwrap().disk(1024).boot().unwrap();
    let timer = "/etc/systemd/system/machinist-watchdog.timer.d";
    // Instead of every minute.
    let often = "[Timer]\nOnCalendar=\nOnCalendar=*:*:0/2\nAccuracySec=100ms\n";
    machine.sh(&format!("mkdir -p {timer}; cp /usr/local/bin/machinist {BINARY}")).unwrap();
    machine.write_file(&format!("{timer}/often.conf"), often).unwrap();
    let (ca, token) = hub.join_credentials();
    machine.write_file("/run/ca.crt", ca).unwrap();
    machine.write_file("/run/token", token).unwrap();
    machine.sh(&format!("{} --binary {BINARY}", hub.join_command("/run"))).unwrap();
    hub.wait_done(&machine, "mco-empty-mc");
    machine
        .wait_for("the last good copy", |machine| {
            machine.exists("/var/lib/machinist/last-good/machinist-daemon.service")
        })
        .unwrap();

    // An administrator may stop it.
    machine.sh("systemctl stop machinist-daemon; sleep 6").unwrap();
    assert!(!is_active(&machine).unwrap());
    machine.sh("systemctl start machinist-daemon").unwrap();

    // Stopped first: if the watchdog runs right after the fault, it restores a running daemon, and a stop after that is
    // one of an administrator.
    let stop = "systemctl stop machinist-daemon";
    let reload = "systemctl daemon-reload";
    for (fault, command) in [
        ("a mask", format!("{stop}; ln -sf /dev/null {UNIT}; {reload}")),
        ("an empty unit", format!("{stop}; rm {UNIT}; touch {UNIT}; {reload}")),
        ("the removal of the unit", format!("{stop}; rm {UNIT}; {reload}")),
        ("the removal of the binary", format!("rm {BINARY}; systemctl restart machinist-daemon")),
        (
            "another binary",
            format!("rm {BINARY}; cp /bin/false {BINARY}; systemctl restart machinist-daemon"),
        ),
    ] {
        // The restart fails, as it should.
        let _ = machine.sh(&command);
        wait_active(&machine, fault);
        let unit = String::from_utf8(machine.read_file(UNIT).unwrap()).unwrap();
        assert!(unit.contains(BINARY), "{fault}: {unit}");
        machine.sh(&format!("cmp {BINARY} /usr/local/bin/machinist")).unwrap();
    }
    // An upgrade by hand that was not synced: what a power cut leaves of the new binary.
    for left in ["head -c 1000000 /usr/local/bin/machinist", "true"] {
        let upgrade = format!("rm {BINARY}; {left} >{BINARY}; chmod 755 {BINARY}; sync");
        machine.sh(&upgrade).unwrap();
        machine.power_cut().unwrap();
        machine.power_on().unwrap();
        wait_active(&machine, left);
        machine.sh(&format!("cmp {BINARY} /usr/local/bin/machinist")).unwrap();
    }
    machine
        .wait_for("an event", |_| {
            let events = hub.events(NODE);
            Ok(events.iter().any(|event| event.contains("DaemonRestored")))
        })
        .unwrap();

    // Nothing brings it back after it has left.
    machine.sh("machinist leave").unwrap();
    machine.sh("sleep 5").unwrap();
    assert!(!is_active(&machine).unwrap());
    let units = "/etc/systemd/system/machinist-*.service /etc/systemd/system/machinist-*.timer";
    let found = format!("ls -d /var/lib/machinist {units} 2>/dev/null || true");
    assert_eq!(machine.sh(&found).unwrap(), "");
}
