//! A hub that machines can reach, and machines that have joined it.

use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use machinist_e2e::lab::LabProcess;
use machinist_e2e::{Lab, Machine, binary, block_on, cluster, command, wait_for};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;

pub(crate) const ANNOTATION_PREFIX: &str = "machineconfiguration.openshift.io";
const GROUP: &str = "/apis/machineconfiguration.openshift.io/v1";
pub(crate) const SETTINGS: &str = "/apis/operator.openshift.io/v1/machineconfigurations";
/// The paths that tests compare: what a config may touch.
const COMPARED_TREES: [&str; 2] = ["/etc", "/home"];

/// A hub on the bridge of a lab.
pub(crate) struct HubFixture {
    pub(crate) lab: Lab,
    pub(crate) client: Client,
    pub(crate) kubeconfig: PathBuf,
    data: PathBuf,
    _process: LabProcess,
}

impl HubFixture {
    pub(crate) fn start() -> Self {
        let lab = Lab::new().unwrap();
        lab.create_bridge().unwrap();
        let data = lab.create_dir("data").unwrap();
        let kubeconfig = data.join("kubeconfig");
        let mut up = Command::new(binary::machinist_binary().unwrap());
        up.arg("up").arg("--data").arg(&data);
        up.arg("--api-listen").arg(format!("{}:6443", lab.address()));
        let mut process = lab.spawn("up", &up).unwrap();
        wait_for("the hub to write its kubeconfig", || {
            process.check_alive()?;
            Ok(kubeconfig.exists())
        })
        .unwrap();
        let client = cluster::client(&kubeconfig).unwrap();
        wait_for("the hub to be ready", || {
            process.check_alive()?;
            let request = http::Request::get("/readyz").body(Vec::new())?;
            Ok(block_on(client.request_text(request)).is_ok())
        })
        .unwrap();
        Self { lab, client, kubeconfig, data, _process: process }
    }

    /// Boots a machine with a service to observe and a user to log in as.
    pub(crate) fn machine(&self, name: &str) -> Machine {
        let clock = "[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/sh -c 'echo reloaded >>/var/reloads'\n[Install]\nWantedBy=multi-user.target\n";
        let machine = self.lab.machine(name).with_machinist().unwrap();
        let machine = machine.file("/usr/lib/systemd/system/timekeeper.service", clock);
        let machine = machine.file("/etc/motd", "as it was packaged\n");
        let machine = machine.boot().unwrap();
        machine.sh("useradd --create-home core && systemctl start timekeeper.service").unwrap();
        machine
    }

    /// Joins a machine with a bootstrap token.
    pub(crate) fn join(&self, machine: &Machine) {
        let (ca, token) = self.join_credentials();
        machine.write_file("/run/ca.crt", ca).unwrap();
        // Not on the command line, where every user of the machine could see it.
        machine.write_file("/run/token", token).unwrap();
        machine.sh(&self.join_command("/run")).unwrap();
    }

    /// The data directory of the hub.
    pub(crate) fn data(&self) -> &std::path::Path {
        &self.data
    }

    /// What a machine joins with: the hub's CA certificate and a bootstrap token.
    pub(crate) fn join_credentials(&self) -> (Vec<u8>, String) {
        let mut token = Command::new(binary::machinist_binary().unwrap());
        token.args(["hub", "token", "--role", "bootstrap", "--data"]).arg(&self.data);
        let ca = std::fs::read(self.data.join("pki/ca.crt")).unwrap();
        (ca, command::run(&mut token).unwrap())
    }

    /// The join command, with the invitation in the files `ca.crt` and `token` of a directory.
    pub(crate) fn join_command(&self, dir: &str) -> String {
        let server = format!("https://{}:6443", self.lab.address());
        let given = format!("--ca-file {dir}/ca.crt --token-file {dir}/token --pool worker");
        format!("machinist join --apiserver-url {server} {given}")
    }

    /// Runs `machinist` as the administrator. Any exit code is accepted.
    pub(crate) fn machinist(&self, arguments: &[&str]) -> command::ExitOutput {
        let mut command = Command::new(binary::machinist_binary().unwrap());
        command.args(arguments).arg("--kubeconfig").arg(&self.kubeconfig);
        command::output(&mut command).unwrap()
    }

    pub(crate) fn request(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
        let kind = if method == "PATCH" { "merge-patch+json" } else { "json" };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", format!("application/{kind}"))
            .body(if body.is_null() { Vec::new() } else { body.to_string().into_bytes() })?;
        Ok(block_on(self.client.request(request))?)
    }

    /// The config that the pool's machines should have.
    fn target(&self) -> String {
        let pool = self.request("GET", &format!("{GROUP}/machineconfigpools/worker"), &Value::Null);
        let name = pool.unwrap()["spec"]["configuration"]["name"].as_str().map(str::to_owned);
        name.unwrap_or_default()
    }

    /// Creates or replaces a MachineConfig of the pool, and waits until the pool is rendered.
    pub(crate) fn apply_config(&self, name: &str, ignition: &Value) -> String {
        let mut ignition = ignition.clone();
        ignition["ignition"] = json!({"version": "3.5.0"});
        self.apply_config_spec(name, &json!({"config": ignition}))
    }

    /// The same, with a complete MachineConfig spec.
    pub(crate) fn apply_config_spec(&self, name: &str, spec: &Value) -> String {
        let object = json!({
            "apiVersion": format!("{ANNOTATION_PREFIX}/v1"), "kind": "MachineConfig",
            "metadata": {"name": name, "labels": {format!("{ANNOTATION_PREFIX}/role"): "worker"}},
            "spec": spec,
        });
        self.wait_rendered_after(|| {
            let path = format!("{GROUP}/machineconfigs");
            let own = format!("{path}/{name}");
            match self.request("GET", &own, &Value::Null) {
                Err(_) => self.request("POST", &path, &object).unwrap(),
                Ok(mut old) => {
                    old["spec"] = object["spec"].clone();
                    self.request("PUT", &own, &old).unwrap()
                }
            };
        })
    }

    /// Creates a MachineConfig that no pool selects.
    pub(crate) fn create_unselected_config(&self, name: &str, ignition: &Value) {
        let mut ignition = ignition.clone();
        ignition["ignition"] = json!({"version": "3.5.0"});
        let object = json!({
            "apiVersion": format!("{ANNOTATION_PREFIX}/v1"), "kind": "MachineConfig",
            "metadata": {"name": name}, "spec": {"config": ignition},
        });
        self.request("POST", &format!("{GROUP}/machineconfigs"), &object).unwrap();
    }

    /// Deletes a MachineConfig, and waits until the pool is rendered.
    pub(crate) fn delete_config(&self, name: &str) -> String {
        let path = format!("{GROUP}/machineconfigs/{name}");
        self.wait_rendered_after(|| drop(self.request("DELETE", &path, &Value::Null).unwrap()))
    }

    /// Runs a closure, and waits until the pool is rendered.
    pub(crate) fn wait_rendered_after(&self, act: impl FnOnce()) -> String {
        let before = self.target();
        act();
        let mut now = String::new();
        wait_for("the pool to be rendered", || {
            now = self.target();
            Ok(now != before && !now.is_empty())
        })
        .unwrap();
        now
    }

    /// Patches the pool.
    pub(crate) fn patch_pool(&self, patch: &Value) {
        self.request("PATCH", &format!("{GROUP}/machineconfigpools/worker"), patch).unwrap();
    }

    /// Sets the node disruption policy.
    pub(crate) fn set_node_disruption_policy(&self, policy: &Value) {
        let object = json!({
            "apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
            "metadata": {"name": "cluster"}, "spec": {"nodeDisruptionPolicy": policy},
        });
        // The hub's controller creates the object if it is missing: then it is only changed here.
        let _ = self.request("POST", SETTINGS, &object);
        let path = format!("{SETTINGS}/cluster");
        for policy in [&Value::Null, policy] {
            let patch = json!({"spec": {"nodeDisruptionPolicy": policy}});
            self.request("PATCH", &path, &patch).unwrap();
        }
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(crate) fn annotation(&self, node: &str, key: &str) -> String {
        let node = block_on(self.nodes().get(node)).unwrap();
        node.metadata
            .annotations
            .unwrap_or_default()
            .get(&full_annotation_key(key))
            .cloned()
            .unwrap_or_default()
    }

    /// Whether a machine reports Ready.
    pub(crate) fn is_ready(&self, node: &str) -> bool {
        let node = block_on(self.nodes().get(node)).unwrap();
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True")
    }

    pub(crate) fn annotate(&self, node: &str, pairs: &[(&str, &str)]) {
        let map: serde_json::Map<String, Value> =
            pairs.iter().map(|(key, value)| (full_annotation_key(key), json!(value))).collect();
        let patch = Patch::Merge(json!({"metadata": {"annotations": map}}));
        block_on(self.nodes().patch(node, &PatchParams::default(), &patch)).unwrap();
    }

    /// Waits until a machine reports a config as applied.
    #[track_caller]
    pub(crate) fn wait_done(&self, machine: &Machine, config: &str) {
        self.wait_state(machine, "Done", |fixture, name| {
            Ok(fixture.annotation(name, "currentConfig") == config)
        });
    }

    #[track_caller]
    pub(crate) fn wait_state(
        &self,
        machine: &Machine,
        state: &str,
        mut also: impl FnMut(&Self, &str) -> anyhow::Result<bool>,
    ) {
        let name = machine.name();
        let waited = wait_for(&format!("{name} to be {state}"), || {
            let found = self.annotation(name, "state");
            anyhow::ensure!(
                found == state,
                "it is {found}: {} (desired {}, drain {} of {})",
                self.annotation(name, "reason"),
                self.annotation(name, "desiredConfig"),
                self.annotation(name, "lastAppliedDrain"),
                self.annotation(name, "desiredDrain"),
            );
            also(self, name)
        });
        if let Err(error) = waited {
            let log = machine.sh("journalctl --no-pager -u machinist-daemon.service | tail -60");
            panic!("{error:#}\n{}", log.unwrap_or_default());
        }
    }

    /// The reasons of a machine's events.
    pub(crate) fn events(&self, node: &str) -> Vec<String> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let events = block_on(api.list(&ListParams::default())).unwrap().items;
        let mut mine: Vec<Event> = events
            .into_iter()
            .filter(|event| event.involved_object.name.as_deref() == Some(node))
            .collect();
        mine.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        mine.into_iter().filter_map(|event| event.reason).collect()
    }

    /// The status of a condition of a machine's MachineConfigNode.
    pub(crate) fn condition(&self, node: &str, type_: &str) -> String {
        let object =
            self.request("GET", &format!("{GROUP}/machineconfignodes/{node}"), &Value::Null);
        let object = object.unwrap();
        let list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = list.into_iter().find(|condition| condition["type"] == type_);
        found.map(|one| one["status"].as_str().unwrap().to_owned()).unwrap_or_default()
    }
}

/// Our own annotations already have a prefix.
fn full_annotation_key(key: &str) -> String {
    if key.contains('/') { key.to_owned() } else { format!("{ANNOTATION_PREFIX}/{key}") }
}

/// Everything on a machine that a config may touch.
pub(crate) fn snapshot_trees(machine: &Machine) -> Vec<machinist_e2e::machine::FileTree> {
    COMPARED_TREES.iter().map(|dir| machine.tree(dir).unwrap()).collect()
}

/// The differences between two snapshots of a machine, without what the system changes by itself.
pub(crate) fn differences(
    before: &[machinist_e2e::machine::FileTree],
    after: &[machinist_e2e::machine::FileTree],
) -> Vec<String> {
    before.iter().zip(after).flat_map(|(before, after)| before.changes(after)).collect()
}

pub(crate) fn file(path: &str, text: &str) -> Value {
    let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
    json!({"path": path, "mode": 0o644, "overwrite": true,
        "contents": {"source": format!("data:,{encoded}")}})
}

pub(crate) fn files(files: &[Value]) -> Value {
    json!({"storage": {"files": files}})
}
