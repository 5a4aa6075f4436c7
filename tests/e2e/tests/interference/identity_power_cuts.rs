//! Power cuts at every step of what creates and removes the identity and the service of a machine: `join`, its repair,
//! `leave` and the first boot. What is not synced is lost; running the command again ends as if nothing had happened.

use crate::daemon::fixture::HubFixture;
use crate::once::fixture::{config, create_system};
use machinist_e2e::command::ExitOutput;
use machinist_e2e::machine::FileTree;
use machinist_e2e::{LoopDisk, binary, command};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the point at which a command dies.
pub(super) const FAULT: &str = "MACHINIST_FAULT_POINT";
/// Written once by each machine, and different on each.
const KUBECONFIG: &str = "var/lib/machinist/kubeconfig";

struct Site {
    hub: HubFixture,
    disk: LoopDisk,
    credentials: PathBuf,
}

impl Site {
    fn start() -> Self {
        let hub = HubFixture::start();
        let disk = LoopDisk::new(&hub.lab, "disk", 128).unwrap();
        let credentials = hub.lab.create_dir("credentials").unwrap();
        let (ca, token) = hub.join_credentials();
        fs::write(credentials.join("ca.crt"), ca).unwrap();
        fs::write(credentials.join("token"), token).unwrap();
        Self { hub, disk, credentials }
    }

    /// An empty system on the disk.
    fn new_root(&self) -> PathBuf {
        let root = self.disk.path().join("root");
        let _ = fs::remove_dir_all(&root);
        fs::create_dir(&root).unwrap();
        create_system(&root);
        self.sync();
        root
    }

    fn sync(&self) {
        command::run_args("sync", ["-f", &self.disk.path().to_string_lossy()]).unwrap();
    }

    fn join(&self, root: &Path, name: &str) -> Command {
        let mut join =
            machinist(&["join", "--pool", "worker", "--node-name", name, "--apiserver-url"]);
        join.arg(format!("https://{}:6443", self.hub.lab.address()));
        join.arg("--ca-file").arg(self.credentials.join("ca.crt"));
        join.arg("--token-file").arg(self.credentials.join("token")).arg("--root").arg(root);
        join
    }

    /// Runs a command that dies at a point, and cuts the power. Returns whether it had ended before.
    fn cut(&self, mut command: Command, point: u32) -> bool {
        let output = command::output(command.env(FAULT, point.to_string())).unwrap();
        self.disk.power_cycle().unwrap();
        output.succeeded()
    }
}

pub(super) fn machinist(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary::machinist_binary().unwrap());
    command.args(arguments);
    command
}

#[track_caller]
pub(super) fn run(mut command: Command, what: &str) -> ExitOutput {
    let output = command::output(&mut command).unwrap();
    assert!(output.succeeded(), "{what}: {output:?}");
    output
}

/// The tree of a root without what differs between two machines.
fn tree(root: &Path, name: &str) -> FileTree {
    let unit = root.join("etc/systemd/system/machinist-daemon.service");
    if let Ok(text) = fs::read_to_string(&unit) {
        assert!(!text.is_empty(), "{name}: an empty unit");
        fs::write(&unit, text.replace(name, "NAME")).unwrap();
    }
    let kubeconfig = root.join(KUBECONFIG);
    if kubeconfig.exists() {
        assert!(fs::read(&kubeconfig).unwrap().len() > 100, "{name}: an empty identity");
        fs::write(kubeconfig, "identity").unwrap();
    }
    FileTree::read(root, Path::new("/")).unwrap()
}

#[test]
fn a_power_cut_at_any_step_of_join_and_leave_is_survived() {
    let site = Site::start();
    let root = site.new_root();
    let packaged = tree(&root, "");
    run(site.join(&root, "whole"), "join");
    let joined = tree(&root, "whole");
    let (mut cuts, mut point) = (0, 1);
    loop {
        let (root, name) = (site.new_root(), format!("w{point}"));
        let has_ended = site.cut(site.join(&root, &name), point);
        // What is left is valid: nothing is masked by an empty file, and the next join completes it.
        let status = machinist(&["daemon", "status", "--root", root.to_str().unwrap()]);
        assert_ne!(command::output(&mut { status }).unwrap().code, 101, "point {point}");
        run(site.join(&root, &name), &format!("join after a cut at point {point}"));
        let status = machinist(&["daemon", "status", "--root", root.to_str().unwrap()]);
        run(status, &format!("the status after a cut at point {point}"));
        assert_eq!(joined.changes(&tree(&root, &name)), Vec::<String>::new(), "point {point}");
        if has_ended {
            break;
        }
        (cuts, point) = (cuts + 1, point + 1);
    }
    assert!(cuts > 8, "{cuts} points in join");

    let files = json!({"storage": {"files": [
        {"path": "/etc/motd", "contents": {"source": "data:,new"}},
        {"path": "/etc/new/file", "contents": {"source": "data:,new"}},
    ]}});
    let config = config(&site.credentials, "config", &files);
    let leave = |root: &Path| machinist(&["leave", "--root", root.to_str().unwrap()]);
    let (mut cuts, mut point) = (0, 1);
    loop {
        let (root, name) = (site.new_root(), format!("l{point}"));
        run(site.join(&root, &name), "join");
        let mut apply = machinist(&["once", "--root"]);
        apply.arg(&root).arg("-f").arg(&config);
        run(apply, "once");
        site.sync();
        let has_ended = site.cut(leave(&root), point);
        let again = command::output(&mut leave(&root)).unwrap();
        let has_left = again.stderr.contains("this machine has not joined");
        assert!(again.succeeded() || has_left, "point {point}: {again:?}");
        // An empty directory may be left where the machine had left already.
        let _ = fs::remove_dir(root.join("var/lib/machinist"));
        assert_eq!(packaged.changes(&tree(&root, &name)), Vec::<String>::new(), "point {point}");
        if has_ended {
            break;
        }
        (cuts, point) = (cuts + 1, point + 2);
    }
    assert!(cuts > 10, "{cuts} points in leave");
}

#[test]
fn a_power_cut_at_any_step_of_the_first_boot_is_survived() {
    let site = Site::start();
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "rendered-worker-1"},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": "/etc/motd", "contents": {"source": "data:,new"}},
            {"path": "/etc/new/file", "contents": {"source": "data:,new"}},
        ]}}},
    });
    let file = site.credentials.join("first.json");
    fs::write(&file, config.to_string()).unwrap();
    let first_boot = |root: &Path| {
        let mut command = machinist(&["firstboot", "--write", "--root"]);
        command.arg(root).arg("-f").arg(&file);
        command
    };
    let root = site.new_root();
    run(first_boot(&root), "firstboot");
    let complete = tree(&root, "");
    let (mut cuts, mut point) = (0, 1);
    loop {
        let root = site.new_root();
        let has_ended = site.cut(first_boot(&root), point);
        run(first_boot(&root), &format!("firstboot after a cut at point {point}"));
        assert_eq!(complete.changes(&tree(&root, "")), Vec::<String>::new(), "point {point}");
        if has_ended {
            break;
        }
        (cuts, point) = (cuts + 1, point + 3);
    }
    assert!(cuts > 8, "{cuts} points in the first boot");
}
