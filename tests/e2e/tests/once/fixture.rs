//! A root to work on, and two configs that touch everything.

use machinist_e2e::machine::FileTree;
use machinist_e2e::{binary, command};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Creates a small system in an empty directory.
pub(crate) fn create_system(root: &Path) {
    let write = |path: &str, contents: &str, mode: u32| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for dir in ["etc/systemd/system", "usr/lib/systemd/system", "home/core", "var/lib"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    symlink("usr/lib", root.join("lib")).unwrap();
    let users = "root:x:0:0:root:/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n";
    write("etc/passwd", users, 0o644);
    write("etc/group", "root:x:0:\ncore:x:1000:\n", 0o644);
    write("etc/shadow", "core:!:19500:0:99999:7:::\n", 0o640);
    write("etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n", 0o644);
    write("etc/systemd/system-preset/99-last.preset", "disable *\n", 0o644);
    write("etc/kubernetes/kubeconfig", "{}", 0o644);
    write("etc/motd", "welcome\n", 0o644);
    write("usr/lib/systemd/system/vendor.service", INSTALL, 0o644);
    chown(root.join("home/core"), Some(1000), Some(1000)).unwrap();
}

const INSTALL: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";

/// The command that applies a config to a root.
pub(crate) fn once(root: &Path, config: &Path) -> Command {
    let mut command = Command::new(binary::machinist_binary().unwrap());
    command.args(["once", "-o", "json", "--root"]).arg(root).arg("-f").arg(config);
    command
}

/// Applies a config to a root.
#[track_caller]
pub(crate) fn apply(root: &Path, config: &Path) {
    command::run(&mut once(root, config)).unwrap();
}

/// Recovers from an interruption, and returns the result.
#[track_caller]
pub(crate) fn recover(root: &Path) -> Option<String> {
    let mut command = Command::new(binary::machinist_binary().unwrap());
    command.args(["once", "-o", "json", "--recover", "--root"]).arg(root);
    let report: Value = serde_json::from_str(&command::run(&mut command).unwrap()).unwrap();
    report["recovered"]["outcome"].as_str().map(str::to_owned)
}

/// Everything in a root.
pub(crate) fn tree(root: &Path) -> FileTree {
    FileTree::read(root, Path::new("/")).unwrap()
}

/// Copies a root with all attributes.
pub(crate) fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    command::run(Command::new("cp").arg("-a").arg(from).arg(to)).unwrap();
}

/// A MachineConfig in a file.
pub(crate) fn config(dir: &Path, name: &str, ignition: &Value) -> PathBuf {
    let mut ignition = ignition.clone();
    ignition["ignition"] = json!({"version": "3.5.0"});
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name}, "spec": {"config": ignition}
    });
    let path = dir.join(format!("{name}.json"));
    fs::write(&path, config.to_string()).unwrap();
    path
}

/// Two config files that together touch everything.
pub(crate) fn configs_touching_everything(dir: &Path) -> [PathBuf; 2] {
    let user = |key: &str| json!({"users": [{"name": "core", "sshAuthorizedKeys": [key], "passwordHash": key}]});
    let old = json!({
        "storage": {"files": [
            {"path": "/etc/motd", "contents": {"source": "data:,old"}, "mode": 384},
            {"path": "/etc/deep/er/leaves", "contents": {"source": "data:,leaves"}},
            {"path": "/etc/mode", "contents": {"source": "data:,mode"}}
        ]},
        "systemd": {"units": [
            {"name": "a.service", "contents": INSTALL, "enabled": true,
             "dropins": [{"name": "10.conf", "contents": "[Service]\nEnvironment=A=b\n"}]},
            {"name": "leaves.service", "contents": INSTALL, "enabled": true},
            {"name": "vendor.service", "enabled": true},
            {"name": "masked.service", "mask": true}
        ]},
        "passwd": user("old")
    });
    let new = json!({
        "storage": {"files": [
            {"path": "/etc/motd", "contents": {"source": "data:,new"}, "user": {"name": "core"}},
            {"path": "/etc/mode", "contents": {"source": "data:,mode"}, "mode": 256},
            {"path": "/etc/comes/in/deep", "contents": {"source": "data:,comes"}}
        ]},
        "systemd": {"units": [
            {"name": "a.service", "contents": INSTALL.replace("multi-user", "basic"),
             "enabled": true, "dropins": [{"name": "10.conf", "contents": ""}]},
            {"name": "vendor.service", "enabled": false},
            {"name": "comes.service", "contents": INSTALL, "enabled": true}
        ]},
        "passwd": user("new")
    });
    [config(dir, "old", &old), config(dir, "new", &new)]
}

/// Asserts that the root matches one of the two trees, as the report says.
#[track_caller]
pub(crate) fn check(
    root: &Path,
    before: &FileTree,
    after: &FileTree,
    outcome: Option<&str>,
    what: &str,
) -> bool {
    let found = tree(root);
    let is_new = match outcome {
        Some("undone") => false,
        Some("finished") => true,
        _ => found == *after,
    };
    let wanted = if is_new { after } else { before };
    assert_eq!(wanted.changes(&found), Vec::<String>::new(), "{what}: {outcome:?}");
    is_new
}
