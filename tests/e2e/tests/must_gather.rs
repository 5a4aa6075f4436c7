//! `machinist must-gather` on both homes: what is in the archive, what is not, and what it says when something fails.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use machinist_e2e::{ApiServer, Lab, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;

const SECRET: &str = "hunter2hunter2";
const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";

/// The files of an archive, without the folder that they are in.
fn unpack(path: &Path) -> BTreeMap<String, String> {
    let bytes = fs::File::open(path).unwrap();
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(bytes));
    let mut files = BTreeMap::new();
    for entry in tar.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        files.insert(path.split_once('/').unwrap().1.to_owned(), text);
    }
    files
}

fn create_secrets(home: &ApiServer) {
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "50-mine", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {
            "ignition": {"version": "3.5.0"},
            "passwd": {"users": [{"name": "core", "passwordHash": SECRET}]},
            "storage": {"files": [
                {"path": "/etc/mine", "mode": 0o600, "contents": {"source": format!("data:,{SECRET}")}},
                {"path": "/etc/motd", "mode": 0o644, "contents": {"source": "data:,hello"}},
            ]},
        }},
    });
    let file = home.dir().join("mine.json");
    fs::write(&file, config.to_string()).unwrap();
    // kubectl keeps a copy of all of it in an annotation.
    let answer = home.kubectl(&["apply", "-f", file.to_str().unwrap()]).unwrap();
    assert!(answer.succeeded(), "{answer:?}");
}

fn check_archive(home: &ApiServer, is_rendered: bool) {
    create_secrets(home);
    if is_rendered {
        wait_for("the pool to be rendered", || {
            Ok(home.get(CONFIGS).body.to_string().contains("rendered-worker-"))
        })
        .unwrap();
    }
    let file = home.dir().join("gathered.tar.gz");
    let answer = home.machinist(&["must-gather", "-o", "json", "--file", file.to_str().unwrap()]);
    let answer = answer.unwrap();
    assert!(answer.succeeded(), "{answer:?}");
    let summary: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(summary["missing"], json!([]), "on {}", home.name);
    let files = unpack(&file);
    let has = |path: &str| assert!(files.contains_key(path), "no {path}: {:?}", files.keys());
    has("summary.json");
    has("overview.txt");
    has("home/version.json");
    has("home/machineconfigs/50-mine.yaml");
    if is_rendered {
        has("home/machineconfigpools/worker.yaml");
        assert!(files.keys().any(|path| path.starts_with("home/machineconfigs/rendered-worker-")));
        assert!(files.keys().any(|path| path.starts_with("home/events/")), "{:?}", files.keys());
    }
    for (path, text) in &files {
        assert!(!text.contains(SECRET), "{path} holds a secret: {text}");
    }
    let mine = &files["home/machineconfigs/50-mine.yaml"];
    assert!(mine.contains("data:,hello") && mine.contains("<removed: 14 bytes, digest "), "{mine}");
}

#[test]
fn the_state_of_a_hub_without_its_secrets() {
    let home = ApiServer::hub().unwrap();
    check_archive(&home, true);
    let lab = Lab::new().unwrap();
    check_unreachable_api_server(&lab, &home);
}

#[test]
fn the_state_of_a_real_api_server_without_its_secrets() {
    let home = ApiServer::kubernetes().unwrap();
    check_archive(&home, false);
    // Somebody who may read configs and nothing else.
    let cluster = home.cluster().unwrap();
    cluster
        .kubectl(&[
            "create",
            "clusterrole",
            "reader",
            "--verb=list,get",
            "--resource=machineconfigs",
        ])
        .unwrap();
    cluster
        .kubectl(&[
            "create",
            "clusterrolebinding",
            "reader",
            "--clusterrole=reader",
            "--group=readers",
        ])
        .unwrap();
    let kubeconfig = cluster.kubeconfig_as("somebody", &["readers"]).unwrap();
    let file = home.dir().join("part.tar.gz");
    let arguments =
        ["must-gather", "-o", file.to_str().unwrap(), "--kubeconfig", kubeconfig.to_str().unwrap()];
    let answer = home.machinist(&arguments).unwrap();
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(
        answer.stderr.contains("nodes is missing") && answer.stderr.contains("Forbidden"),
        "{answer:?}"
    );
    let files = unpack(&file);
    assert!(files.contains_key("home/machineconfigs/50-mine.yaml"), "{:?}", files.keys());
    assert!(files["summary.json"].contains("\"what\": \"nodes\""), "{}", files["summary.json"]);
}

/// No archive is made of nothing.
fn check_unreachable_api_server(lab: &Lab, home: &ApiServer) {
    let file = lab.dir().join("gone.tar.gz");
    let text = fs::read_to_string(home.kubeconfig()).unwrap();
    let gone = lab.dir().join("kubeconfig");
    let line = text.lines().find(|line| line.trim().starts_with("server:")).unwrap();
    fs::write(&gone, text.replace(line, "    server: https://127.0.0.1:1")).unwrap();
    let (file, gone) = (file.to_str().unwrap(), gone.to_str().unwrap());
    let root = lab.create_dir("root").unwrap();
    let root = root.to_str().unwrap();
    let arguments = ["must-gather", "-o", file, "--kubeconfig", gone, "--root", root];
    let answer = home.machinist(&arguments).unwrap();
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("answers no question"), "{answer:?}");
    assert!(!Path::new(file).exists());
    // On a machine there is something to collect all the same.
    fs::create_dir_all(Path::new(root).join("etc/machine-config-daemon")).unwrap();
    let answer = home.machinist(&arguments).unwrap();
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(unpack(Path::new(file)).contains_key("machine/status.json"), "{answer:?}");
}
