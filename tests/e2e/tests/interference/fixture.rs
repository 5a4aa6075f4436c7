//! A machine on an ext4 disk that has joined a hub and takes configs without a reboot.

use crate::daemon::fixture::{HubFixture, file, files};
use machinist_e2e::machine::MachineBuilder;
use machinist_e2e::{Machine, wait_for};
use serde_json::{Value, json};

pub(crate) const NODE: &str = "a";

/// Files that the configs of these tests write.
const PATHS: [&str; 5] = ["/etc/motd", "/etc/other", "/etc/one", "/etc/two", "/etc/new"];

pub(crate) struct InterferenceFixture {
    pub(crate) hub: HubFixture,
    pub(crate) machine: Machine,
}

impl InterferenceFixture {
    /// `long` is a path besides [`PATHS`] that configs write.
    pub(crate) fn start(long: Option<&str>) -> Self {
        Self::start_on(long, |machine| machine.disk(512))
    }

    /// The same with a machine of the test.
    pub(crate) fn start_with(configure: fn(MachineBuilder) -> MachineBuilder) -> Self {
        Self::start_on(None, configure)
    }

    fn start_on(long: Option<&str>, configure: fn(MachineBuilder) -> MachineBuilder) -> Self {
        let hub = HubFixture::start();
        let machine = hub.lab.machine(NODE).with_machinist().unwrap();
        let machine = machine.file("/etc/motd", "as it was packaged\n").with_network_admin();
        let machine = configure(machine).boot().unwrap();
        hub.patch_pool(&json!({"spec": {"paused": true}}));
        let paths = PATHS.into_iter().chain(long);
        let policy = paths.map(|path| json!({"path": path, "actions": [{"type": "None"}]}));
        hub.set_node_disruption_policy(&json!({"files": policy.collect::<Vec<Value>>()}));
        hub.join(&machine);
        hub.wait_done(&machine, "mco-empty-mc");
        Self { hub, machine }
    }

    /// Creates a config and gives it to the machine.
    pub(crate) fn desire(&self, name: &str, list: &[(&str, &str)]) {
        let list: Vec<Value> = list.iter().map(|(path, text)| file(path, text)).collect();
        self.hub.create_unselected_config(name, &files(&list));
        self.hub.annotate(NODE, &[("desiredConfig", name)]);
    }

    /// Waits until the machine is degraded with a reason that has all these parts.
    #[track_caller]
    pub(crate) fn wait_degraded(&self, parts: &[&str]) {
        self.hub.wait_state(&self.machine, "Degraded", |hub, name| {
            let reason = hub.annotation(name, "reason");
            anyhow::ensure!(parts.iter().all(|part| reason.contains(part)), reason);
            Ok(true)
        });
    }

    /// Waits until the machine reports a config, in whatever state.
    #[track_caller]
    pub(crate) fn wait_current(&self, config: &str) {
        let waited = wait_for(&format!("{config} to be current"), || {
            anyhow::ensure!(
                self.hub.annotation(NODE, "currentConfig") == config,
                "{}: {}",
                self.hub.annotation(NODE, "state"),
                self.hub.annotation(NODE, "reason")
            );
            Ok(true)
        });
        if let Err(error) = waited {
            panic!("{error:#}\n{}", self.log());
        }
    }

    /// The end of the daemon's log.
    pub(crate) fn log(&self) -> String {
        let log = self.machine.sh("journalctl --no-pager -u machinist-daemon.service | tail -60");
        log.unwrap_or_default()
    }

    pub(crate) fn read(&self, path: &str) -> String {
        String::from_utf8(self.machine.read_file(path).unwrap()).unwrap()
    }

    /// The daemon runs, and has not been restarted by systemd.
    #[track_caller]
    pub(crate) fn assert_daemon_never_exited(&self) {
        let show = "systemctl show -P NRestarts -P ActiveState machinist-daemon.service";
        assert_eq!(self.machine.sh(show).unwrap(), "0\nactive\n");
    }
}
