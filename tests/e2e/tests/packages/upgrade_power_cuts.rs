//! Power cuts during an upgrade of the Debian package: after the next boot the daemon runs, by itself or by its watchdog, and
//! the upgrade can be completed.
//!
//! `MACHINIST_ALL_FAULTS` cuts at every step that changes the disk, instead of at some.

use super::deb::package;
use super::run_script;
use crate::daemon::fixture::HubFixture;
use machinist_e2e::{Machine, SyscallFault, binary, command};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

const NODE: &str = "a";
/// How often the power is cut unless all steps are asked for.
const CUTS: u32 = 3;
/// What dpkg changes the disk with.
const CALLS: &str = "rename,link,unlink,fsync,sync_file_range";
const OLD: &str = "/root/old.deb";
const NEW: &str = "/root/new.deb";
const UNIT: &str = "/usr/lib/systemd/system/machinist-daemon.service";
const NEW_LINE: &str = "# of the new package";

/// A package like another one, with a newer version, another binary and another unit.
fn newer(old: &Path, directory: &Path) {
    let tree = directory.join("tree");
    command::run(Command::new("dpkg-deb").arg("-R").arg(old).arg(&tree)).unwrap();
    let edit = |name: &str, edit: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let path = tree.join(name);
        fs::write(&path, edit(fs::read(&path).unwrap())).unwrap();
    };
    edit("DEBIAN/control", &|text| {
        let text = String::from_utf8(text).unwrap();
        let version = text.lines().find(|line| line.starts_with("Version: ")).unwrap();
        text.replace(version, &format!("{version}+new")).into_bytes()
    });
    edit(&UNIT[1..], &|text| [text, format!("{NEW_LINE}\n").into_bytes()].concat());
    // Bytes after the end of an ELF file change nothing.
    edit("usr/bin/machinist", &|binary| [binary, b"new".to_vec()].concat());
    let out = directory.join("new.deb");
    let build = ["--root-owner-group", "-Zgzip", "-z1", "--build"];
    command::run(Command::new("dpkg-deb").args(build).arg(&tree).arg(out)).unwrap();
}

/// dpkg, seen by a tracer outside of the machine.
fn install(machine: &Machine, package: &str) -> Command {
    machine.command_inside(&["dpkg", "--install", package]).unwrap()
}

/// How often the busiest process makes each of the calls.
fn count_calls(machine: &Machine, log: &Path, package: &str) -> u32 {
    let dpkg = install(machine, package);
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e"]).arg(format!("trace={CALLS}")).arg("-o").arg(log);
    command::run(strace.arg(dpkg.get_program()).args(dpkg.get_args())).unwrap();
    let mut counts = BTreeMap::<&str, u32>::new();
    let text = fs::read_to_string(log).unwrap();
    for line in text.lines().filter(|line| line.contains('(')) {
        *counts.entry(line.split_once(' ').unwrap().0).or_default() += 1;
    }
    counts.into_values().max().unwrap()
}

#[track_caller]
fn wait_active(machine: &Machine, when: &str) {
    let waited = machine.wait_for(&format!("the daemon after {when}"), |machine| {
        Ok(machine.exec(&["systemctl", "is-active", "machinist-daemon"])?.succeeded())
    });
    if let Err(error) = waited {
        let log = "dpkg --audit; ls -l /usr/bin/machinist*; journalctl --no-pager -u 'machinist-*' | tail -60";
        panic!("{error:#}\n{}", machine.sh(log).unwrap_or_default());
    }
}

/// Which of the two packages the unit is from.
fn has_new_unit(machine: &Machine) -> bool {
    machine.exec(&["grep", "-q", NEW_LINE, UNIT]).unwrap().succeeded()
}

#[test]
fn a_power_cut_at_any_step_of_an_upgrade_leaves_a_daemon_that_runs() {
    let hub = HubFixture::start();
    let out = hub.lab.create_dir("packages").unwrap();
    run_script("deb", Some(&binary::machinist_binary().unwrap()), &out);
    let old = package(&out);
    newer(&old, &out);
    let machine = hub.lab.machine(NODE).disk(2048).boot().unwrap();
    machine.write_file(OLD, fs::read(&old).unwrap()).unwrap();
    machine.write_file(NEW, fs::read(out.join("new.deb")).unwrap()).unwrap();
    machine.sh(&format!("dpkg --install {OLD} 2>&1")).unwrap();
    hub.join(&machine);
    hub.wait_done(&machine, "mco-empty-mc");
    let last_good = "/var/lib/machinist/last-good/machinist-daemon.service";
    machine.wait_for("the last good copy", |machine| machine.exists(last_good)).unwrap();

    let steps = count_calls(&machine, &hub.lab.dir().join("strace"), NEW);
    assert!(has_new_unit(&machine));
    wait_active(&machine, "an upgrade");
    let all = std::env::var_os("MACHINIST_ALL_FAULTS").is_some();
    let cuts = if all { steps } else { CUTS };
    eprintln!("{cuts} cuts at {steps} steps");
    assert!(steps > 20, "{steps} steps");
    let mut seen = [0, 0];
    for cut in 0..cuts {
        let step = 1 + cut * (steps - 1) / (cuts - 1);
        // From one package to the other, and back.
        let package = if has_new_unit(&machine) { OLD } else { NEW };
        machine.sh("sync").unwrap();
        let fault = SyscallFault::kill(CALLS).nth(step);
        command::output(&mut fault.wrap(&install(&machine, package)).unwrap()).unwrap();
        machine.power_cut().unwrap();
        machine.power_on().unwrap();
        let when = format!("a power cut at step {step} of {steps}");
        wait_active(&machine, &when);
        let status = machine.exec(&["machinist", "daemon", "status"]).unwrap();
        assert_eq!(status.code, 0, "{when}: {status:?}");
        let size = machine.sh("stat -c %s /usr/bin/machinist").unwrap();
        assert!(size.trim().parse::<u64>().unwrap() > 1 << 20, "{when}: {size}");
        seen[usize::from(has_new_unit(&machine))] += 1;
        // dpkg completes what was interrupted; an installation takes most of the time of this test.
        if all || cut + 1 == cuts {
            let again = machine.exec(&["dpkg", "--install", package]).unwrap();
            assert!(again.succeeded(), "{when}: {again:?}");
            assert_eq!(machine.sh("dpkg --audit").unwrap(), "", "{when}");
            wait_active(&machine, &format!("the upgrade after {when}"));
        }
    }
    hub.wait_done(&machine, "mco-empty-mc");
    eprintln!("the unit was the old one {} times, the new one {} times", seen[0], seen[1]);
}
