//! A hub, and machines whose roots are directories, with daemons of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::up::{UpProcess, join};

/// How long anything may take on a busy computer.
pub(super) const DEADLINE: Duration = Duration::from_secs(120);

/// A daemon; killed when it is dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) struct Fleet {
    pub(super) directory: tempfile::TempDir,
    daemons: Vec<Daemon>,
    up: Option<UpProcess>,
}

impl Fleet {
    pub(super) fn start(names: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let up = UpProcess::start(&data, &[]);
        let mut fleet = Self { directory, daemons: Vec::new(), up: Some(up) };
        let token = fleet.ok(&["hub", "token", "--role", "bootstrap"]);
        for name in names {
            fleet.join(name, token.trim(), "worker");
            fleet.start_daemon(name);
        }
        fleet
    }

    pub(super) fn join(&self, name: &str, token: &str, pool: &str) {
        let data = self.directory.path().join("data");
        let joined = join(&data, token, &self.root(name), name, pool);
        assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
    }

    pub(super) fn start_daemon(&mut self, name: &str) {
        let daemon = self.daemon(name);
        self.daemons.push(daemon);
    }

    /// Stops the hub. The machines stay.
    pub(super) fn stop_hub(&mut self) {
        self.up.take().expect("the hub runs").stop();
    }

    pub(super) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(format!("{name}.log"))).unwrap_or_default()
    }

    pub(super) fn root(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn daemon(&self, name: &str) -> Daemon {
        let root = self.root(name);
        let child = Command::new(env!("CARGO_BIN_EXE_machinist"))
            .args(["daemon", "start", "--node-name", name, "--register", "--root"])
            .arg(&root)
            .arg("--kubeconfig")
            .arg(root.join("var/lib/machinist/kubeconfig"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.directory.path().join(format!("{name}.log"))).unwrap())
            .spawn()
            .unwrap();
        Daemon(child)
    }

    pub(super) fn run_as(&self, kubeconfig: &Path, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
        command.args(arguments).env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
        command.output().unwrap()
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        self.run_as(&self.directory.path().join("data/kubeconfig"), arguments)
    }

    pub(super) fn ok(&self, arguments: &[&str]) -> String {
        let mut arguments = arguments.to_vec();
        let data = self.directory.path().join("data").display().to_string();
        if arguments.first() == Some(&"hub") {
            arguments.extend(["--data-dir", &data]);
        }
        let output = self.run(&arguments);
        let (text, error) = texts(&output);
        assert!(output.status.success(), "{arguments:?}: {text}{error}{}", self.logs());
        text
    }

    pub(super) fn logs(&self) -> String {
        let entries = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap());
        let logs = entries.filter(|entry| entry.path().extension().is_some_and(|it| it == "log"));
        logs.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default()).collect()
    }

    pub(super) fn apply(&self, objects: &[Value]) {
        let path = self.directory.path().join("manifest.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        fs::write(&path, list.to_string()).unwrap();
        self.ok(&["apply", "-f", path.to_str().unwrap()]);
    }

    pub(super) fn rolled_out(&self) {
        self.ok(&["rollout", "status", "--watch", "--timeout", "120s"]);
    }

    pub(super) fn motd(&self, name: &str) -> String {
        fs::read_to_string(self.root(name).join("etc/motd")).unwrap_or_default()
    }

    /// Waits until `machinist status` says something.
    pub(super) fn wait_for_status(&self, part: &str) {
        self.wait_for(&["status"], part);
    }

    /// Waits until a command says something.
    pub(super) fn wait_for(&self, command: &[&str], part: &str) {
        let start = Instant::now();
        loop {
            let text = self.ok(command);
            if text.contains(part) {
                return;
            }
            assert!(start.elapsed() < DEADLINE, "no {part:?} in:\n{text}{}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

pub(super) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}
