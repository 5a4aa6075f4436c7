//! A hub, and daemons whose machines are directories: no systemd, no reboot, a boot ID of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::up::{UpProcess, join, machinist};

/// A running daemon; killed when it is dropped.
pub(crate) struct DaemonProcess(Child);

impl DaemonProcess {
    pub(crate) fn start(root: &Path, name: &str) -> Self {
        Self::start_with_log(root, name, Stdio::null())
    }

    pub(crate) fn start_with_log(root: &Path, name: &str, log: Stdio) -> Self {
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_machinist")), root, name, log)
    }

    /// A daemon for which a limit of its user namespace has a value.
    pub(crate) fn start_limited(root: &Path, name: &str, limit: &str, value: u32) -> Self {
        let mut command = Command::new("unshare");
        let script = format!("echo {value} >/proc/sys/user/{limit} && exec \"$@\"");
        command.args(["--user", "--map-root-user", "sh", "-c", &script, "sh"]);
        command.arg(env!("CARGO_BIN_EXE_machinist"));
        Self::spawn(command, root, name, Stdio::null())
    }

    /// A daemon that dies at a point between two changes of the disk.
    pub(crate) fn start_with_fault(root: &Path, name: &str, point: u32, log: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
        command.env("MACHINIST_FAULT_POINT", point.to_string());
        Self::spawn(command, root, name, Stdio::from(fs::File::create(log).unwrap()))
    }

    fn spawn(mut command: Command, root: &Path, name: &str, log: Stdio) -> Self {
        let kubeconfig = root.join("var/lib/machinist/kubeconfig");
        command.args(["daemon", "start", "--register", "--node-name", name, "--root"]).arg(root);
        command.args(["--label", "node-role.kubernetes.io/worker="]);
        command.arg("--kubeconfig").arg(kubeconfig).stderr(log);
        Self(command.spawn().unwrap())
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    pub(crate) fn assert_runs(&mut self) {
        assert!(self.0.try_wait().unwrap().is_none(), "the daemon exited");
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a condition, which returns what it found.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_met: impl FnMut() -> Result<(), String>) {
    let start = Instant::now();
    while let Err(found) = is_met() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}: {found}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
pub(crate) fn wait_for_text(path: &Path, expected: &str) {
    wait_until(&format!("{expected:?} in {}", path.display()), || match fs::read_to_string(path) {
        Ok(text) if text.contains(expected) => Ok(()),
        found => Err(format!("{found:?}")),
    });
}

/// A hub with machines.
pub(crate) struct DaemonFixture {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) token: String,
    pub(crate) up: Option<UpProcess>,
}

impl DaemonFixture {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let up = UpProcess::start(&data, &[]);
        let token = machinist(&[
            "hub",
            "token",
            "--data-dir",
            data.to_str().unwrap(),
            "--role",
            "bootstrap",
        ]);
        let token = String::from_utf8(token.stdout).unwrap().trim().to_owned();
        let fixture = Self { directory, token, up: Some(up) };
        // No machine of these tests can reboot.
        let none = json!([{"type": "None"}]);
        let paths = ["/etc/one", "/etc/two"].map(|path| json!({"path": path, "actions": none}));
        fixture.apply(&json!({
            "apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
            "metadata": {"name": "cluster"},
            "spec": {"nodeDisruptionPolicy": {"files": paths}},
        }));
        fixture
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The root of a machine that has joined.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        let root = self.directory.path().join(name);
        let output = join(&self.data(), &self.token, &root, name, "worker");
        assert!(output.status.success(), "{output:?}");
        set_boot_id(&root, name);
        root
    }

    /// Runs a command as the administrator.
    #[track_caller]
    pub(crate) fn machinist(&self, arguments: &[&str]) -> String {
        let kubeconfig = self.data().join("kubeconfig");
        let mut all = arguments.to_vec();
        all.extend(["--kubeconfig", kubeconfig.to_str().unwrap()]);
        let output = machinist(&all);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    pub(crate) fn apply(&self, object: &Value) {
        let file = self.directory.path().join("applied.json");
        fs::write(&file, object.to_string()).unwrap();
        self.machinist(&["apply", "-f", file.to_str().unwrap()]);
    }

    /// Gives the pool a config with these files.
    #[track_caller]
    pub(crate) fn apply_files(&self, files: &[(&str, &str)]) {
        let files: Vec<Value> = files
            .iter()
            .map(|(path, text)| {
                json!({"path": path, "mode": 0o644, "overwrite": true,
                       "contents": {"source": format!("data:,{text}")}})
            })
            .collect();
        self.apply(&json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "50-files",
                         "labels": {"machineconfiguration.openshift.io/role": "worker"}},
            "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}},
        }));
    }

    pub(crate) fn node(&self, name: &str) -> Value {
        serde_json::from_str(&self.machinist(&["get", "node", name, "-o", "json"])).unwrap()
    }

    pub(crate) fn annotation(&self, name: &str, key: &str) -> String {
        let key = match key.contains('/') {
            true => key.to_owned(),
            false => format!("machineconfiguration.openshift.io/{key}"),
        };
        self.node(name)["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned()
    }

    /// The reasons and messages of the events of a machine.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        let events = self.machinist(&["get", "events", "-n", "default", "-o", "json"]);
        let events: Value = serde_json::from_str(&events).unwrap();
        let mine = events["items"].as_array().into_iter().flatten();
        let mine = mine.filter(|event| event["involvedObject"]["name"] == name);
        mine.map(|event| {
            let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("reason"), text("message"))
        })
        .collect()
    }

    #[track_caller]
    pub(crate) fn wait_for_event(&self, name: &str, start: &str) -> String {
        let mut found = None;
        wait_until(&format!("event {start} of {name}"), || {
            let events = self.events(name);
            found = events.iter().find(|event| event.starts_with(start)).cloned();
            found.as_ref().map(|_| ()).ok_or_else(|| format!("{events:?}"))
        });
        found.unwrap()
    }

    #[track_caller]
    pub(crate) fn wait_done(&self, name: &str) {
        wait_until(&format!("{name} to be done"), || {
            let kubeconfig = self.data().join("kubeconfig");
            let get = ["get", "node", name, "-o", "json", "--kubeconfig"];
            let found = machinist(&[&get[..], &[kubeconfig.to_str().unwrap()]].concat());
            if !found.status.success() {
                return Err(format!("{found:?}"));
            }
            let node: Value = serde_json::from_slice(&found.stdout).unwrap();
            let of = |key: &str| {
                let key = format!("machineconfiguration.openshift.io/{key}");
                node["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned()
            };
            let (current, desired, state) = (of("currentConfig"), of("desiredConfig"), of("state"));
            match state == "Done" && current == desired && !current.is_empty() {
                true => Ok(()),
                false => Err(format!("{state} {current} {desired}: {}", of("reason"))),
            }
        });
    }
}

/// The boot of a machine that is a directory.
pub(crate) fn set_boot_id(root: &Path, boot: &str) {
    let directory = root.join("proc/sys/kernel/random");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("boot_id"), format!("{boot}\n")).unwrap();
}
