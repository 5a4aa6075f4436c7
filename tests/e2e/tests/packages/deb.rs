//! The Debian package: the same bytes every time, and on a real machine from installation to purge.

use crate::packages::run_script;
use machinist_e2e::pki::TestCa;
use machinist_e2e::{Lab, Machine, binary, cache};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

const KUBECONFIG: &str = "/var/lib/machinist-hub/kubeconfig";
const BACKUPS: &str = "/var/lib/machinist-hub-backups";

/// The package in a directory.
pub(super) fn package(out: &Path) -> PathBuf {
    let entries = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
    entries.into_iter().find(|path| path.extension().is_some_and(|it| it == "deb")).unwrap()
}

#[test]
fn two_builds_of_the_package_have_the_same_bytes() {
    let lab = Lab::new().unwrap();
    let build = |name: &str| {
        // For packaging, a script is as good as a binary.
        let binary = lab.create_dir(name).unwrap().join("machinist");
        let script = "#!/bin/sh\nif [ \"$1\" = man ]; then mkdir -p \"$3\"; echo .TH a 1 >\"$3/machinist.1\"; else echo completions; fi\n";
        fs::write(&binary, script).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o700)).unwrap();
        let out = lab.create_dir(&format!("{name}-out")).unwrap();
        run_script("deb", Some(&binary), &out);
        fs::read(package(&out)).unwrap()
    };
    assert!(build("one") == build("two"), "two packages differ");
}

#[test]
fn the_package_from_installation_to_purge() {
    let lab = Lab::new().unwrap();
    let out = lab.create_dir("out").unwrap();
    run_script("deb", Some(&binary::machinist_binary().unwrap()), &out);
    let machine = lab.machine("a").boot().unwrap();
    let before = machine.tree("/etc").unwrap();
    machine.write_file("/root/machinist.deb", fs::read(package(&out)).unwrap()).unwrap();
    let installed = machine.sh("dpkg -i /root/machinist.deb 2>&1").unwrap();
    assert!(installed.contains("Setting up machinist"), "{installed}");
    // Nothing runs unless it is enabled.
    let states = machine.exec(&["systemctl", "is-active", "machinist-hub", "machinist-daemon"]);
    assert_eq!(states.unwrap().stdout, "inactive\ninactive\n");
    let units = "/usr/lib/systemd/system/machinist-*.service";
    assert_eq!(machine.sh(&format!("systemd-analyze verify --man=no {units} 2>&1")).unwrap(), "");
    // The kit's machines exclude manual pages; the package contains them.
    let listed = machine.sh("dpkg -L machinist").unwrap();
    for path in ["man/man1/machinist-rollout-status.1.gz", "doc/machinist/machinist.cdx.json"] {
        assert!(listed.contains(path), "{listed}");
    }

    hub(&machine);
    upgrade(&machine);
    server(&lab, &machine);
    daemon(&machine);

    // A purge removes everything but the backups.
    let purged = machine.sh("dpkg --purge machinist 2>&1").unwrap();
    assert!(purged.contains("Purging configuration files for machinist"), "{purged}");
    assert!(machine.sh(&format!("ls {BACKUPS}/")).unwrap().contains(".backup\n"));
    machine.sh(&format!("rm -rf {BACKUPS} /var/lib/private/machinist-hub-backups")).unwrap();
    machine.sh("rm -rf /etc/mcs /etc/ssl/mcs").unwrap();
    let changes = before.changes(&machine.tree("/etc").unwrap());
    assert_eq!(changes, Vec::<String>::new(), "/etc is as it was");
    let left = machine.sh("find / -xdev -name '*machinist*' -not -path '/proc/*' -not -path '/sys/*' -not -path '/run/*' -not -path '/var/log/*'");
    assert_eq!(left.unwrap(), "");
    assert_eq!(machine.sh("systemctl list-units --all --no-legend 'machinist*'").unwrap(), "");
}

/// The hub runs as its own user, and root can reach it. It can write to the directory of its daily backups.
fn hub(machine: &Machine) {
    let options = format!("OPTIONS=\"--backup-dir {BACKUPS}\"\n");
    machine.write_file("/etc/default/machinist-hub", options).unwrap();
    machine.sh("systemctl enable --now machinist-hub 2>&1").unwrap();
    machine
        .wait_for("the hub to answer", |machine| {
            let output = machine.exec(&["machinist", "get", "mcp", "--kubeconfig", KUBECONFIG])?;
            Ok(output.stdout.contains("worker"))
        })
        .unwrap();
    machine
        .wait_for("the first daily backup", |machine| {
            Ok(machine.exec(&["ls", &format!("{BACKUPS}/")])?.stdout.contains(".backup\n"))
        })
        .unwrap();
    let user = machine.sh("stat -c %U /proc/$(systemctl show -P MainPID machinist-hub)").unwrap();
    assert!(!user.trim().is_empty() && !user.contains("root"), "it runs as {user}");
}

/// A running service continues with the new binary and its data; a stopped one stays stopped.
fn upgrade(machine: &Machine) {
    let process = || machine.sh("systemctl show -P MainPID machinist-hub").unwrap();
    let before = process();
    machine.sh("dpkg -i /root/machinist.deb 2>&1 && rm /root/machinist.deb").unwrap();
    assert_ne!(process(), before, "the hub runs the new binary");
    let state = machine.exec(&["systemctl", "is-active", "machinist-server"]).unwrap();
    assert_eq!(state.stdout, "inactive\n");
    machine
        .wait_for("the hub to answer again", |machine| {
            let output = machine.exec(&["machinist", "get", "mcp", "--kubeconfig", KUBECONFIG])?;
            Ok(output.stdout.contains("worker"))
        })
        .unwrap();
}

/// The server serves the output of `machinist bootstrap`; without arguments it reports that and does not retry.
fn server(lab: &Lab, machine: &Machine) {
    let refused = machine.exec(&["systemctl", "start", "machinist-server"]).unwrap();
    machine
        .wait_for("the server to have given up", |machine| {
            let state = machine.exec(&["systemctl", "is-failed", "machinist-server"])?;
            anyhow::ensure!(state.succeeded(), "{state:?} {refused:?}");
            Ok(true)
        })
        .unwrap();
    let identity = TestCa::new("test").unwrap().issue("server", &[], &["127.0.0.1"]).unwrap();
    let (certificate, key) = identity.write_files(&lab.create_dir("tls").unwrap(), "tls").unwrap();
    machine.sh("mkdir -p /etc/mcs /etc/ssl/mcs").unwrap();
    machine.write_file("/etc/ssl/mcs/tls.crt", fs::read(certificate).unwrap()).unwrap();
    machine.write_file("/etc/ssl/mcs/tls.key", fs::read(key).unwrap()).unwrap();
    machine.sh("chmod 600 /etc/ssl/mcs/tls.key").unwrap();
    let manifests = fs::read(cache::source_root().join("examples/kubelet-config.yaml")).unwrap();
    machine.write_file("/etc/mcs/manifests.yaml", manifests).unwrap();
    machine
        .sh("machinist bootstrap --manifests /etc/mcs/manifests.yaml --out /etc/mcs/bootstrap")
        .unwrap();
    let arguments = format!("ARGUMENTS=\"bootstrap --bootstrap-kubeconfig {KUBECONFIG}\"\n");
    machine.write_file("/etc/default/machinist-server", arguments).unwrap();
    machine
        .sh("systemctl reset-failed machinist-server; systemctl start machinist-server")
        .unwrap();
    let request = "exec 3<>/dev/tcp/127.0.0.1/22624; printf 'GET /config/master HTTP/1.0\\r\\n\\r\\n' >&3; head -n 1 <&3";
    machine
        .wait_for("the server to answer", |machine| {
            let output = machine.exec(&["bash", "-c", request])?;
            anyhow::ensure!(output.stdout.contains("200"), "{output:?}");
            Ok(true)
        })
        .unwrap();
}

/// The daemon waits until the machine has joined; `leave` reverts everything.
fn daemon(machine: &Machine) {
    machine.sh("systemctl start machinist-daemon").unwrap();
    let state = machine.exec(&["systemctl", "is-active", "machinist-daemon"]).unwrap();
    assert_eq!(state.stdout, "inactive\n", "it has nobody to ask");
    machine.sh(&format!("machinist join --kubeconfig {KUBECONFIG} --pool worker 2>&1")).unwrap();
    machine
        .wait_for("the machine to be a Node", |machine| {
            let output =
                machine.exec(&["machinist", "get", "nodes", "--kubeconfig", KUBECONFIG])?;
            let state = machine.exec(&["systemctl", "is-active", "machinist-daemon"])?;
            Ok(state.stdout == "active\n" && output.stdout.lines().count() == 2)
        })
        .unwrap();
    gather(machine);
    machine.sh(&format!("machinist leave --kubeconfig {KUBECONFIG} 2>&1")).unwrap();
}

/// The machine's data goes into the archive, next to the API server's.
fn gather(machine: &Machine) {
    let gather = "cd /root && machinist must-gather --out g.tar.gz --kubeconfig";
    machine.sh(&format!("{gather} {KUBECONFIG} 2>&1")).unwrap();
    let listed = machine.sh("cd /root && tar tzf g.tar.gz && rm g.tar.gz").unwrap();
    for path in [
        "/home/nodes/",
        "/machine/status.json",
        "/machine/machinist-daemon.log",
        "/machine/machinist-hub.log",
        "/overview.txt",
    ] {
        assert!(listed.contains(path), "{listed}");
    }
}
