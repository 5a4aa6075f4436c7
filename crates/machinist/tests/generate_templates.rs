//! `machinist generate` with templates and KubeletConfigs, from the outside.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

const EXAMPLE: &str = "examples/kubelet-config.yaml";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn machinist(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
    command.args(arguments).current_dir(root()).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn run(arguments: &[&str], code: i32) -> (String, String) {
    let output = machinist(arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let found = output.status.code();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert_eq!(found, Some(code), "{stdout}\n{stderr}");
    (stdout, stderr)
}

fn names(json: &str) -> Vec<String> {
    let list: Value = serde_json::from_str(json).unwrap();
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_example_generates_a_worker_and_its_kubelet() {
    let (json, _) = run(&["generate", "--pool", "worker", "-f", EXAMPLE, "-o", "json"], 0);
    assert_eq!(
        names(&json),
        [
            "00-worker",
            "01-worker-container-runtime",
            "01-worker-kubelet",
            "99-worker-generated-kubelet"
        ]
    );
    let directory = TempDir::new().unwrap();
    let out = directory.path().to_str().unwrap();
    run(&["generate", "--pool", "worker", "-f", EXAMPLE, "--out", out], 0);
    let file = |path: &str| fs::read_to_string(directory.path().join(path)).unwrap();
    let made = "99-worker-generated-kubelet/files";
    let kubelet = file(&format!("{made}/etc/kubernetes/kubelet.conf"));
    assert!(
        kubelet.contains("\nmaxPods: 220\n") && kubelet.contains("\n- 10.96.0.10\n"),
        "{kubelet}"
    );
    assert_eq!(
        file(&format!("{made}/etc/node-sizing-enabled.env")),
        "NODE_SIZING_ENABLED=false\nSYSTEM_RESERVED_MEMORY=2Gi\nSYSTEM_RESERVED_CPU=500m\nSYSTEM_RESERVED_ES=1Gi\n"
    );
    let logging = format!("{made}/etc/systemd/system/kubelet.service.d/20-logging.conf");
    assert_eq!(file(&logging), "[Service]\nEnvironment=\"KUBELET_LOG_LEVEL=4\"\n");
    let base = file("01-worker-kubelet/files/etc/kubernetes/kubelet.conf");
    assert!(base.contains("maxPods: 110"), "{base}");
}

#[test]
fn the_machine_profile_has_no_kubelet() {
    let arguments = ["generate", "--pool", "worker", "-f", EXAMPLE, "--profile", "machine"];
    let (_, stderr) = run(&arguments, 1);
    assert!(
        stderr.contains("KubeletConfig more-pods")
            && stderr.contains("no template of the role worker"),
        "{stderr}"
    );
}

#[test]
fn a_directory_of_templates_is_read() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("worker/00-worker/_base/files");
    fs::create_dir_all(&path).unwrap();
    let template = "mode: 0600\npath: /etc/dns\ncontents:\n  inline: |\n    {{.ClusterDNSIP}}\n";
    fs::write(path.join("dns.yaml"), template).unwrap();
    let manifests = directory.path().join("config.json");
    let config = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
        "metadata": {"name": "machine-config-controller"},
        "spec": {"clusterDNSIP": "10.1.2.3", "infra": {"status": {"platformStatus": {"type": "None"}}}}});
    fs::write(&manifests, config.to_string()).unwrap();
    let (templates, manifests) = (directory.path().to_str().unwrap(), manifests.to_str().unwrap());
    let arguments = ["generate", "--pool", "worker", "--templates", templates, "-f", manifests];
    let (yaml, _) = run(&arguments, 0);
    assert!(yaml.contains("data:,10.1.2.3%0A") && yaml.contains("mode: 384"), "{yaml}");

    fs::write(path.join("dns.yaml"), "{{if .ClusterDNSIP}}").unwrap();
    let (stdout, stderr) = run(&arguments, 1);
    assert_eq!(stdout, "");
    assert!(stderr.contains("worker/00-worker/_base/files/dns.yaml"), "{stderr}");
    assert!(stderr.contains("{{if}} has no {{end}}"), "{stderr}");
}

#[test]
fn each_mistake_names_object_field_and_remedy() {
    let directory = TempDir::new().unwrap();
    let example = fs::read_to_string(root().join(EXAMPLE)).unwrap();
    for (from, to, parts) in [
        (
            "maxPods: 220",
            "maxPods: many",
            vec!["KubeletConfig more-pods", "spec.kubeletConfig.maxPods", "of type int32"],
        ),
        (
            "maxPods: 220",
            "clusterDomain: x",
            vec![
                "spec.kubeletConfig.clusterDomain",
                "clusterDomain is not allowed to be set",
                "remove the field",
            ],
        ),
        (
            "logLevel: 4",
            "logLevel: 40",
            vec!["spec.logLevel", "[0,10]: 40", "use a level from 0 to 10"],
        ),
        (
            "logLevel: 4",
            "autoSizingReserved: true",
            vec!["spec.autoSizingReserved", "cannot be set together"],
        ),
        ("type: None", "type: \"\"", vec!["platformStatus.type"]),
        (
            "pools.operator.machineconfiguration.openshift.io/worker: \"\"",
            "no: pool",
            vec!["spec.machineConfigPoolSelector", "could not find any MachineConfigPool"],
        ),
    ] {
        let file = directory.path().join("case.yaml");
        assert!(example.contains(from), "{from}");
        fs::write(&file, example.replacen(from, to, 1)).unwrap();
        let file = file.to_str().unwrap();
        let (_, stderr) = run(&["generate", "--pool", "worker", "-f", file], 1);
        for part in parts {
            assert!(stderr.contains(part), "{to}: {part} is not in {stderr}");
        }
    }
}
