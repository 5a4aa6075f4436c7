//! A hub, and machines whose daemon is a file of their own: that of the kit cannot be replaced.

use std::fs;
use std::process::Command;
use std::thread;

use crate::daemon::fixture::HubFixture;
use machinist_e2e::command::ExitOutput;
use machinist_e2e::{Machine, binary, command, wait_for};
use serde_json::Value;

/// Where the machines have their binary.
pub(super) const BINARY: &str = "/opt/machinist";
pub(super) const UPGRADE: &str = "machinist.dev/upgrade";

pub(super) struct UpgradeFixture {
    pub(super) hub: HubFixture,
    pub(super) machines: Vec<Machine>,
    /// The binary that all machines begin with, without the symbols of a debug build.
    pub(super) first: Vec<u8>,
}

/// A script that says that it is machinist, and then does something else.
pub(super) fn script(version: &str, then: &str) -> Vec<u8> {
    format!("#!/bin/sh\nif [ \"$1\" = version ]; then echo machinist {version}; exit; fi\n{then}\n")
        .into_bytes()
}

impl UpgradeFixture {
    pub(super) fn start(names: &[&str]) -> Self {
        let hub = HubFixture::start();
        let stripped = hub.lab.dir().join("machinist");
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(&stripped).arg(binary::machinist_binary().unwrap());
        command::run(&mut strip).unwrap();
        let first = fs::read(&stripped).unwrap();
        let machines = thread::scope(|scope| {
            let boot = |name: &&str| {
                let builder = hub.lab.machine(name).with_machinist().unwrap().disk(1024);
                let first = &first;
                scope.spawn(move || {
                    let machine = builder.boot().unwrap();
                    machine.write_executable(BINARY, first).unwrap();
                    machine
                })
            };
            let booting: Vec<_> = names.iter().map(boot).collect();
            booting.into_iter().map(|machine| machine.join().unwrap()).collect::<Vec<_>>()
        });
        let fixture = Self { hub, machines, first };
        for machine in &fixture.machines {
            fixture.join(machine);
        }
        for machine in &fixture.machines {
            fixture.hub.wait_done(machine, "mco-empty-mc");
            fixture.wait_runs(machine, &fixture.first);
        }
        fixture
    }

    fn join(&self, machine: &Machine) {
        // The watchdog looks every two seconds, instead of every minute.
        let timer = "/etc/systemd/system/machinist-watchdog.timer.d";
        let often = "[Timer]\nOnCalendar=\nOnCalendar=*:*:0/2\nAccuracySec=100ms\n";
        machine.sh(&format!("mkdir -p {timer}")).unwrap();
        machine.write_file(&format!("{timer}/often.conf"), often).unwrap();
        let (ca, token) = self.hub.join_credentials();
        machine.write_file("/run/ca.crt", ca).unwrap();
        machine.write_file("/run/token", token).unwrap();
        machine.sh(&format!("{} --binary {BINARY}", self.hub.join_command("/run"))).unwrap();
    }

    pub(super) fn machine(&self, name: &str) -> &Machine {
        self.machines.iter().find(|machine| machine.name() == name).unwrap()
    }

    /// What the daemon of a machine says about itself.
    pub(super) fn report(&self, name: &str) -> Value {
        let report = self.hub.annotation(name, "machinist.dev/daemon");
        serde_json::from_str(&report).unwrap_or_default()
    }

    /// The digest of what a machine runs, as its daemon says.
    pub(super) fn runs(&self, name: &str) -> String {
        self.report(name)["sha256"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the daemon of a machine says that it is this binary, and the file is it.
    #[track_caller]
    pub(super) fn wait_runs(&self, machine: &Machine, binary: &[u8]) {
        let sha256 = digest(binary);
        let waited = wait_for(&format!("{} to run {sha256}", machine.name()), || {
            let found = self.report(machine.name());
            anyhow::ensure!(found["sha256"] == sha256, "it says {found}");
            Ok(true)
        });
        if let Err(error) = waited {
            panic!("{error:#}\n{}", self.log(machine));
        }
        self.assert_installed(machine, binary);
    }

    /// Checks that the binary of a machine is this one, and that its daemon runs.
    #[track_caller]
    pub(super) fn assert_installed(&self, machine: &Machine, binary: &[u8]) {
        let found = machine.sh(&format!("sha256sum <{BINARY}")).unwrap();
        assert!(found.starts_with(&digest(binary)), "{found}\n{}", self.log(machine));
        let left = machine.exists(&format!("{BINARY}.new")).unwrap();
        assert!(!left, "{}", self.log(machine));
        let active = machine.exec(&["systemctl", "is-active", "machinist-daemon"]).unwrap();
        assert!(active.succeeded(), "{active:?}\n{}", self.log(machine));
    }

    pub(super) fn log(&self, machine: &Machine) -> String {
        machine
            .sh("journalctl --no-pager -u 'machinist-*' | tail -60; cat /var/lib/machinist/upgrade.json")
            .unwrap_or_default()
    }

    /// Writes a binary to a file for the command line.
    pub(super) fn file(&self, name: &str, binary: &[u8]) -> String {
        let path = self.hub.lab.dir().join(name);
        fs::write(&path, binary).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The first binary, with a byte that nothing reads: another digest, and the same daemon.
    pub(super) fn newer(&self, byte: u8) -> Vec<u8> {
        let mut newer = self.first.clone();
        newer.push(byte);
        newer
    }

    /// Runs `machinist upgrade` with a binary, and watches it to its end.
    pub(super) fn upgrade(&self, name: &str, binary: &[u8], more: &[&str]) -> ExitOutput {
        let file = self.file("binary", binary);
        let command = ["upgrade", name, "--binary", &file, "--watch", "--timeout", "4m"];
        self.hub.machinist(&[&command, more].concat())
    }
}

pub(super) fn digest(binary: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    Sha256::digest(binary).iter().map(|byte| format!("{byte:02x}")).collect()
}
