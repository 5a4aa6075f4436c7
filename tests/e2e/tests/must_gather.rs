//! `machinist must-gather` on both API servers: what is in the archive, what is not, and what it prints on failures.

use machinist_e2e::{ApiServer, Lab, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;

const SECRET: &str = "hunter2hunter2";
const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";

/// The files of an archive, without its top directory.
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

fn create_secrets(api_server: &ApiServer) {
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "50-mine", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {
            "ignition": {"version": "3.5.0"},
            "passwd": {"users": [{"name": "core", "passwordHash": SECRET}]},
            "storage": {"files": [
                {"path": "/etc/mine", "mode": 0o600, "contents": {"source": format!("data:,{SECRET}")}},
                {"path": "/etc/hostname", "mode": 0o644, "contents": {"source": "data:,hello"}},
            ]},
        }},
    });
    let file = api_server.dir().join("mine.json");
    fs::write(&file, config.to_string()).unwrap();
    // kubectl stores a copy of all of it in an annotation.
    let output = api_server.kubectl(&["apply", "-f", file.to_str().unwrap()]).unwrap();
    assert!(output.succeeded(), "{output:?}");
}

fn check_archive(api_server: &ApiServer, is_rendered: bool) {
    create_secrets(api_server);
    if is_rendered {
        wait_for("the pool to be rendered", || {
            Ok(api_server.get(CONFIGS).body.to_string().contains("rendered-worker-"))
        })
        .unwrap();
    }
    let file = api_server.dir().join("gathered.tar.gz");
    let output =
        api_server.machinist(&["must-gather", "-o", "json", "--out", file.to_str().unwrap()]);
    let output = output.unwrap();
    assert!(output.succeeded(), "{output:?}");
    let summary: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(summary["missing"], json!([]), "on {}", api_server.name);
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
    let api_server = ApiServer::hub().unwrap();
    check_archive(&api_server, true);
    let lab = Lab::new().unwrap();
    check_unreachable_api_server(&lab, &api_server);
}

#[test]
fn the_state_of_kube_apiserver_without_its_secrets() {
    let api_server = ApiServer::kubernetes().unwrap();
    check_archive(&api_server, false);
    // A user who may read configs and nothing else.
    let cluster = api_server.cluster().unwrap();
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
    let file = api_server.dir().join("part.tar.gz");
    let arguments = [
        "must-gather",
        "--out",
        file.to_str().unwrap(),
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
    ];
    let output = api_server.machinist(&arguments).unwrap();
    assert_eq!(output.code, 1, "{output:?}");
    assert!(
        output.stderr.contains("nodes is missing") && output.stderr.contains("Forbidden"),
        "{output:?}"
    );
    let files = unpack(&file);
    assert!(files.contains_key("home/machineconfigs/50-mine.yaml"), "{:?}", files.keys());
    assert!(files["summary.json"].contains("\"what\": \"nodes\""), "{}", files["summary.json"]);
}

/// No archive is written without contents.
fn check_unreachable_api_server(lab: &Lab, api_server: &ApiServer) {
    let file = lab.dir().join("gone.tar.gz");
    let text = fs::read_to_string(api_server.kubeconfig()).unwrap();
    let gone = lab.dir().join("kubeconfig");
    let line = text.lines().find(|line| line.trim().starts_with("server:")).unwrap();
    fs::write(&gone, text.replace(line, "    server: https://127.0.0.1:1")).unwrap();
    let (file, gone) = (file.to_str().unwrap(), gone.to_str().unwrap());
    let root = lab.create_dir("root").unwrap();
    let root = root.to_str().unwrap();
    let arguments = ["must-gather", "--out", file, "--kubeconfig", gone, "--root", root];
    let output = api_server.machinist(&arguments).unwrap();
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("returns no objects"), "{output:?}");
    assert!(!Path::new(file).exists());
    // On a machine there is still something to collect.
    fs::create_dir_all(Path::new(root).join("etc/machine-config-daemon")).unwrap();
    let output = api_server.machinist(&arguments).unwrap();
    assert_eq!(output.code, 1, "{output:?}");
    assert!(unpack(Path::new(file)).contains_key("machine/status.json"), "{output:?}");
}
