//! The kit's machines: boot, exec, reboot, power cut and link cut.

use machinist_e2e::wait::wait_for;
use machinist_e2e::{Lab, Machine, measurements};
use std::thread;

fn check_lifecycle(machine: &Machine) {
    assert_eq!(machine.exec(&["hostname"]).unwrap().stdout_trimmed(), machine.name());
    assert_eq!(machine.exec(&["sh", "-c", "exit 7"]).unwrap().code, 7);
    assert_eq!(machine.failed_units().unwrap(), Vec::<String>::new());

    let before = machine.tree("/etc").unwrap();
    machine.write_file("/etc/motd", "hello\n").unwrap();
    assert_eq!(machine.read_file("/etc/motd").unwrap(), b"hello\n");
    assert_eq!(before.changes(&machine.tree("/etc").unwrap()), ["~/etc/motd"]);

    machine.reboot().unwrap();
    assert_eq!(machine.boots(), 2);
    assert_eq!(machine.read_file("/etc/motd").unwrap(), b"hello\n");

    machine.sh("touch /run/passing").unwrap();
    machine.power_cut().unwrap();
    assert!(!machine.is_on());
    machine.power_on().unwrap();
    assert!(!machine.exists("/run/passing").unwrap());
    assert_eq!(
        machine.sh("journalctl --list-boots | grep -c [0-9a-f]{32} -E").unwrap().trim(),
        "3"
    );
}

#[test]
fn three_machines_boot_reboot_and_lose_power_at_once() {
    let lab = Lab::new().unwrap();
    thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            let lab = &lab;
            scope.spawn(move || check_lifecycle(&lab.machine(name).boot().unwrap()));
        }
    });
}

#[test]
fn machines_reach_each_other_until_the_link_is_cut() {
    let lab = Lab::new().unwrap();
    let (a, b) = (lab.machine("a").boot().unwrap(), lab.machine("b").boot().unwrap());
    let reaches =
        |machine: &Machine| Ok(machine.exec(&["ping", "-c1", "-W1", b.address()])?.succeeded());
    a.wait_for("b to answer", reaches).unwrap();
    b.link_down().unwrap();
    assert!(!reaches(&a).unwrap());
    b.link_up().unwrap();
    a.wait_for("b to answer again", reaches).unwrap();
    assert!(a.exec(&["ping", "-c1", "-W5", &lab.address()]).unwrap().succeeded());
}

#[test]
fn a_machine_that_is_switched_off_stays_off() {
    let lab = Lab::new().unwrap();
    let machine = lab.machine("a").file("/etc/greeting", "hello");
    let machine = measurements::measure("machine-boot", || machine.boot()).unwrap();
    assert_eq!(machine.read_file("/etc/greeting").unwrap(), b"hello");
    machine.power_off().unwrap();
    let error = machine.wait_for("anything", |_| Ok(false)).unwrap_err();
    assert!(format!("{error:#}").contains("a is off"), "{error:#}");
}

/// A machine that goes down stops all its processes for an instant.
#[test]
fn a_command_that_was_stopped_and_resumed_ends() {
    let lab = Lab::new().unwrap();
    let machine = lab.machine("a").boot().unwrap();
    let script = "echo $$ >/run/stopped; kill -STOP $$; exit 7";
    let mut child = machine.command_inside(&["sh", "-c", script]).unwrap().spawn().unwrap();
    let is_stopped = "grep -q 'State:.T' /proc/$(cat /run/stopped)/status";
    machine
        .wait_for("the command to stop", |it| Ok(it.exec(&["sh", "-c", is_stopped])?.succeeded()))
        .unwrap();
    machine.sh("kill -CONT $(cat /run/stopped)").unwrap();
    let ended = wait_for("the command to end", || Ok(child.try_wait()?.is_some()));
    if ended.is_err() {
        child.kill().unwrap();
    }
    ended.unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
}
