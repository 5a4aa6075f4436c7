//! The real Ignition starts a control-plane machine from the directory.

use crate::bootstrap::inputs::{DOCKER_CONFIG, bootstrap, bootstrap_inputs, write};
use crate::server::support::ServerProcess;
use machinist_e2e::Lab;
use machinist_e2e::ignition::pointer_config;
use serde_json::Value;
use std::fs;

#[test]
fn ignition_starts_a_machine_from_the_output_of_bootstrap() {
    let lab = Lab::new().unwrap();
    let (manifests, out) = (lab.create_dir("manifests").unwrap(), lab.dir().join("out"));
    for object in bootstrap_inputs().iter().flat_map(|(_, objects)| objects) {
        write(&manifests, object);
    }
    let output = bootstrap(&manifests, &out, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let pools = summary["pools"].as_array().unwrap();
    let master = pools.iter().find(|pool| pool["name"] == "master").unwrap();

    let kubeconfig = lab.dir().join("kubeconfig");
    fs::write(&kubeconfig, "clusters:\n- name: a\n  cluster: {server: 'https://api'}\n").unwrap();
    lab.create_bridge().unwrap();
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (base, kubeconfig) = (path(&out), path(&kubeconfig));
    let arguments = ["bootstrap", "--server-basedir", &base, "--bootstrap-kubeconfig", &kubeconfig];
    let server = ServerProcess::start(&lab, lab.address(), &arguments);
    assert_eq!(server.get("/config/worker").0, 500, "workers have to wait for the cluster");
    let url = format!("https://{}:22623/config/master", server.address);
    let pointer = pointer_config(&url, Some(&server.authority));
    let machine = lab.machine("master").with_ignition(&pointer).boot().unwrap();

    let read = |path: &str| String::from_utf8(machine.read_file(path).unwrap()).unwrap();
    assert_eq!(read("/etc/mine"), "of the control plane");
    assert_eq!(read("/var/lib/kubelet/config.json").trim(), DOCKER_CONFIG);
    assert!(read("/etc/kubernetes/kubelet.conf").contains("OneGate: true"));
    let annotations: Value =
        serde_json::from_str(&read("/etc/machine-config-daemon/node-annotations.json")).unwrap();
    for key in ["currentConfig", "desiredConfig"] {
        let key = format!("machineconfiguration.openshift.io/{key}");
        assert_eq!(annotations[&key], master["rendered"]);
    }
}
