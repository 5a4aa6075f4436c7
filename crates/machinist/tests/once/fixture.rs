//! A root directory for tests, and snapshots of it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// A root directory with a small system.
pub(crate) struct OnceFixture {
    dir: TempDir,
    configs: TempDir,
}

/// The properties of every path.
pub(crate) type TreeSnapshot = BTreeMap<String, String>;

impl OnceFixture {
    /// The system of the recorded cases: user core, and a preset that disables everything.
    pub(crate) fn new() -> Self {
        // In memory if possible: the death of a process loses nothing there either.
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        Self::fill(directory.unwrap())
    }

    /// The same system on a disk.
    pub(crate) fn on_disk() -> Self {
        Self::fill(TempDir::new().unwrap())
    }

    fn fill(directory: TempDir) -> Self {
        let site = Self { dir: directory, configs: TempDir::new().unwrap() };
        for directory in
            ["etc/systemd/system", "usr/lib/systemd/system", "home/core", "root", "var/lib"]
        {
            fs::create_dir_all(site.path(directory)).unwrap();
        }
        symlink("usr/lib", site.path("lib")).unwrap();
        site.write(
            "etc/passwd",
            "root:x:0:0:root:/root:/bin/bash\ncore:x:1000:1000::/home/core:/bin/bash\n",
            0o644,
        );
        site.write("etc/group", "root:x:0:\nchrony:x:105:\ncore:x:1000:\n", 0o644);
        site.write("etc/shadow", "root:*:19000:0:99999:7:::\ncore:!:19500:0:99999:7:::\n", 0o640);
        site.write("etc/systemd/system-preset/99-last.preset", "disable *\n", 0o644);
        site.write("etc/kubernetes/kubeconfig", "{}", 0o644);
        site.write("etc/motd", "welcome\n", 0o644);
        site.write("etc/os-release", "ID=rhcos\nVERSION_ID=\"9\"\n", 0o644);
        site.write(
            "usr/lib/systemd/system/vendor.service",
            "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
            0o644,
        );
        std::os::unix::fs::chown(site.path("home/core"), Some(1000), Some(1000)).unwrap();
        site
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    pub(crate) fn write(&self, path: &str, contents: impl AsRef<[u8]>, mode: u32) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// The command that applies a config.
    pub(crate) fn command(&self, config: &Value) -> Command {
        let text = config.to_string();
        let file = self.configs.path().join(sha256(text.as_bytes()));
        fs::write(&file, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
        command.args(["once", "-o", "json", "--root"]).arg(self.root()).arg("-f").arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Applies a config.
    pub(crate) fn once(&self, config: &Value) -> Output {
        self.command(config).output().unwrap()
    }

    /// Applies a config that must be accepted; returns the report.
    #[track_caller]
    pub(crate) fn apply(&self, config: &Value) -> Value {
        let output = self.once(config);
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Recovers from an interruption.
    #[track_caller]
    pub(crate) fn recover(&self) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
        command.args(["once", "-o", "json", "--recover", "--root"]).arg(self.root());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A snapshot of the root directory.
    pub(crate) fn snapshot(&self) -> TreeSnapshot {
        let mut found = TreeSnapshot::new();
        add(&mut found, self.root(), "");
        found
    }
}

fn add(found: &mut TreeSnapshot, root: &Path, directory: &str) {
    for entry in fs::read_dir(root.join(directory.trim_start_matches('/'))).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{directory}/{}", entry.file_name().display());
        let meta = entry.path().symlink_metadata().unwrap();
        let what = if meta.is_symlink() {
            format!("link {}", fs::read_link(entry.path()).unwrap().display())
        } else if meta.is_file() {
            sha256(&fs::read(entry.path()).unwrap())
        } else {
            "directory or special".to_owned()
        };
        let (mode, uid, gid) = (meta.mode(), meta.uid(), meta.gid());
        found.insert(path.clone(), format!("{mode:o} {uid}:{gid} {what}"));
        if meta.is_dir() {
            add(found, root, &path);
        }
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    machinist_core::hex::hex(&Sha256::digest(bytes))
}

/// The differences of two snapshots.
pub(crate) fn difference(a: &TreeSnapshot, b: &TreeSnapshot) -> Vec<String> {
    let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    keys.into_iter()
        .filter(|key| a.get(*key) != b.get(*key))
        .map(|key| format!("{key}: {:?} / {:?}", a.get(key), b.get(key)))
        .collect()
}

/// A MachineConfig around an Ignition config.
pub(crate) fn config(name: &str, storage: &Value, systemd: &Value, passwd: &Value) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name},
        "spec": {"config": {
            "ignition": {"version": "3.5.0"},
            "storage": storage, "systemd": systemd, "passwd": passwd
        }}
    })
}

/// A config with only these files.
pub(crate) fn files(name: &str, files: &Value) -> Value {
    config(name, &json!({"files": files}), &json!({}), &json!({}))
}

/// A config with only these units.
pub(crate) fn units(name: &str, units: &Value) -> Value {
    config(name, &json!({}), &json!({"units": units}), &json!({}))
}

/// A config that manages nothing.
pub(crate) fn nothing() -> Value {
    config("nothing", &json!({}), &json!({}), &json!({}))
}

const INSTALL: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";

/// Two configs that together use every feature.
pub(crate) fn everything() -> [Value; 2] {
    let old = config(
        "everything-old",
        &json!({"files": [
            {"path": "/etc/motd", "contents": {"source": "data:,old"}, "mode": 384},
            {"path": "/etc/leaves", "contents": {"source": "data:,leaves"}},
            {"path": "/etc/deep/er/leaves", "contents": {"source": "data:,leaves"}, "user": {"id": 33}},
            {"path": "/etc/mode", "contents": {"source": "data:,mode"}, "mode": 420},
            {"path": "/var/lib/same", "contents": {"source": "data:,same"}}
        ]}),
        &json!({"units": [
            {"name": "a.service", "contents": INSTALL, "enabled": true,
             "dropins": [{"name": "10.conf", "contents": "[Service]\nEnvironment=A=b\n"}]},
            {"name": "leaves.service", "contents": INSTALL, "enabled": true},
            {"name": "vendor.service", "enabled": true},
            {"name": "masked.service", "mask": true}
        ]}),
        &json!({"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA old"], "passwordHash": "$6$old"}]}),
    );
    let new = config(
        "everything-new",
        &json!({"files": [
            {"path": "/etc/motd", "contents": {"source": "data:,new"}, "mode": 420, "user": {"name": "core"}},
            {"path": "/etc/mode", "contents": {"source": "data:,mode"}, "mode": 256},
            {"path": "/etc/comes/in/deep", "contents": {"source": "data:,comes"}, "group": {"name": "chrony"}},
            {"path": "/var/lib/same", "contents": {"source": "data:,same"}}
        ]}),
        &json!({"units": [
            {"name": "a.service", "contents": INSTALL.replace("multi-user", "basic"), "enabled": true,
             "dropins": [{"name": "10.conf", "contents": ""}, {"name": "20.conf", "contents": "[Service]\nEnvironment=C=d\n"}]},
            {"name": "vendor.service", "enabled": false},
            {"name": "masked.service", "contents": INSTALL, "enabled": false},
            {"name": "comes.service", "contents": INSTALL, "enabled": true}
        ]}),
        &json!({"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA new"], "passwordHash": "$6$new"}]}),
    );
    [old, new]
}
