//! Power cuts at every step of an enrolment: the machine keeps its key or makes another one before the server knows it,
//! and the next attempt completes the config.

use super::identity_power_cuts::{FAULT, machinist, run};
use crate::once::fixture::create_system;
use crate::server::support::{HubWithServer, get, machine_config};
use machinist_e2e::machine::FileTree;
use machinist_e2e::{Lab, LoopDisk, command, wait_for};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const KEY: &str = "etc/machinist/enrol.key";

/// An empty system with what Ignition writes.
fn new_root(disk: &LoopDisk, hub: &HubWithServer, url: &str) -> PathBuf {
    let root = disk.path().join("root");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir(&root).unwrap();
    create_system(&root);
    let directory = root.join("etc/machinist");
    fs::create_dir_all(&directory).unwrap();
    let instructions = json!({"server": url, "pool": "worker"}).to_string();
    fs::write(directory.join("enrol.json"), instructions).unwrap();
    fs::write(directory.join("enrol-ca.crt"), hub.authority_certificate()).unwrap();
    let token = hub.machinist(&["token", "create", "--pool=worker", "--uses=1"]);
    fs::write(directory.join("enrol-token"), token).unwrap();
    command::run_args("sync", ["-f", &disk.path().to_string_lossy()]).unwrap();
    root
}

fn enrol(root: &Path) -> Command {
    let mut command = machinist(&["enrol", "--node-name=n1", "--timeout=60s", "--root"]);
    command.arg(root);
    command
}

/// The tree without the key, which is another one on each machine.
fn tree(root: &Path) -> FileTree {
    assert!(fs::read_to_string(root.join(KEY)).unwrap().contains("PRIVATE KEY"));
    fs::write(root.join(KEY), "key").unwrap();
    FileTree::read(root, Path::new("/")).unwrap()
}

#[test]
fn a_power_cut_at_any_step_of_an_enrolment_is_survived() {
    let lab = Lab::new().unwrap();
    let url = format!("https://{}:22623", lab.address());
    let hub = HubWithServer::start(&lab, &["--server-anonymous", "--server-sealed", &url]);
    let mut config = machine_config("50-greeting", "hello");
    config["metadata"]["labels"] = json!({"machineconfiguration.openshift.io/role": "worker"});
    config["spec"]["config"]["storage"]["files"].as_array_mut().unwrap().push(json!({
        "path": "/etc/new/directory/closed", "mode": 0o600,
        "contents": {"source": "data:,swordfish"},
    }));
    // Their passwords are set by chpasswd.
    config["spec"]["config"]["passwd"] = json!({});
    let manifest = lab.dir().join("config.json");
    fs::write(&manifest, config.to_string()).unwrap();
    hub.machinist(&["apply", "-f", manifest.to_str().unwrap()]);
    wait_for("the pool to be served", || Ok(get(&hub.address, "/config/worker").0 == 200)).unwrap();

    let disk = LoopDisk::new(&lab, "disk", 128).unwrap();
    let root = new_root(&disk, &hub, &url);
    run(enrol(&root), "enrol");
    let complete = tree(&root);
    let closed = root.join("etc/new/directory/closed");
    assert_eq!(fs::read_to_string(closed).unwrap(), "swordfish");
    assert!(root.join("etc/machinist/enrolled").exists());
    assert!(!root.join("etc/machinist/enrol-token").exists());
    let (mut cuts, mut point) = (0, 1);
    loop {
        let root = new_root(&disk, &hub, &url);
        let mut interrupted = enrol(&root);
        let output = command::output(interrupted.env(FAULT, point.to_string())).unwrap();
        disk.power_cycle().unwrap();
        // The token is used up by the key that is on the disk.
        run(enrol(&root), &format!("enrol after a cut at point {point}"));
        assert_eq!(complete.changes(&tree(&root)), Vec::<String>::new(), "point {point}");
        if output.succeeded() {
            break;
        }
        (cuts, point) = (cuts + 1, point + 1);
    }
    assert!(cuts > 8, "{cuts} points in enrol");
}
