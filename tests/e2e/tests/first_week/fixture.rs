//! A hub with two machines of the pool `worker`: `plain` with sshd and without a boot loader, `boxes` with containerd.

use crate::daemon::fixture::HubFixture;
use machinist_e2e::{Machine, cache};
use serde_json::Value;
use std::thread;

pub(super) struct FirstWeek {
    pub(super) hub: HubFixture,
    /// Has sshd, and no boot loader.
    pub(super) plain: Machine,
    /// Has containerd.
    pub(super) boxes: Machine,
}

impl FirstWeek {
    pub(super) fn start() -> Self {
        let hub = HubFixture::start();
        let layer = cache::artifact("node").unwrap().join("layer");
        let (plain, boxes) = thread::scope(|scope| {
            let plain = scope.spawn(|| hub.machine("plain"));
            let boxes = hub.lab.machine("boxes").layer(layer).with_machinist().unwrap();
            let boxes = boxes.boot().unwrap();
            // The kit's containerd belongs to a node of a cluster, which this machine is not.
            boxes.sh("systemctl disable --now kubelet.service; rm /etc/systemd/system/kubelet.service; systemctl daemon-reload").unwrap();
            (plain.join().unwrap(), boxes)
        });
        hub.patch_pool(&serde_json::json!({"spec": {"maxUnavailable": 2}}));
        let week = Self { hub, plain, boxes };
        for machine in week.machines() {
            week.hub.join(machine);
        }
        week.wait_done("mco-empty-mc");
        week
    }

    pub(super) fn machines(&self) -> [&Machine; 2] {
        [&self.plain, &self.boxes]
    }

    /// Waits until both machines have a config.
    #[track_caller]
    pub(super) fn wait_done(&self, config: &str) {
        for machine in self.machines() {
            self.hub.wait_done(machine, config);
        }
    }

    /// What the daemon of a machine reports of its host.
    pub(super) fn abilities(&self, machine: &Machine) -> Value {
        let report = self.hub.annotation(machine.name(), "machinist.dev/host");
        serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {report}"))
    }

    /// Writes a manifest to a file for the command line.
    pub(super) fn manifest(&self, object: &Value) -> String {
        let file = self.hub.lab.dir().join("manifest.json");
        std::fs::write(&file, object.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    }
}

/// A MachineConfig of the pool.
pub(super) fn machine_config(name: &str, mut spec: Value) -> Value {
    spec["config"]["ignition"] = serde_json::json!({"version": "3.5.0"});
    serde_json::json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": spec,
    })
}
