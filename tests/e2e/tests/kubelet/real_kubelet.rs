//! The built-in templates with a real kubelet and a real systemd.

use machinist_e2e::{Lab, binary, cache, environment};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const EXAMPLE: &str = "examples/kubelet-config.yaml";

/// The output of `machinist generate` for a pool, in a directory.
fn generated(lab: &Lab, pool: &str) -> PathBuf {
    let out = lab.create_dir(&format!("out-{pool}")).unwrap();
    let mut command = Command::new(binary::machinist_binary().unwrap());
    command.args(["generate", "--pool", pool, "-f", EXAMPLE, "-o"]).arg(&out);
    let output = command.current_dir(cache::source_root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    out
}

/// What the real kubelet prints about a configuration. Without the certificates that the configuration names, it stops
/// there.
fn kubelet_output(lab: &Lab, config: &Path) -> String {
    let dir = lab.create_dir("kubelet").unwrap();
    let mut kubelet = Command::new(environment::kubernetes_binary("kubelet").unwrap());
    kubelet.arg("--config").arg(config).arg("--root-dir").arg(&dir).arg("--cert-dir").arg(&dir);
    kubelet.args([
        "--kubeconfig",
        "/nonexistent",
        "--container-runtime-endpoint",
        "unix:///nonexistent",
    ]);
    let output = kubelet.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_real_kubelet_accepts_the_configurations() {
    let lab = Lab::new().unwrap();
    let path = "files/etc/kubernetes/kubelet.conf";
    let (worker, master) = (generated(&lab, "worker"), generated(&lab, "master"));
    let all = [
        worker.join("01-worker-kubelet").join(path),
        worker.join("99-worker-generated-kubelet").join(path),
        master.join("01-master-kubelet").join(path),
    ];
    for config in &all {
        let output = kubelet_output(&lab, config);
        assert!(
            output.contains("unable to load client CA file /etc/kubernetes/kubelet-ca.crt"),
            "{}: {output}",
            config.display()
        );
    }
    // An invalid configuration would have failed earlier.
    let bad = lab.create_dir("bad").unwrap().join("kubelet.conf");
    fs::write(&bad, fs::read_to_string(&all[0]).unwrap().replace("maxPods: 110", "maxPods: -1"))
        .unwrap();
    let output = kubelet_output(&lab, &bad);
    assert!(output.contains("invalid configuration: maxPods"), "{output}");
}

#[test]
fn systemd_starts_the_kubelet_as_the_templates_say() {
    let lab = Lab::new().unwrap();
    let out = generated(&lab, "master");
    let read = |path: &str| fs::read_to_string(out.join(path)).unwrap();
    let files = "00-master/files";
    let machine = lab
        .machine("a")
        .file("/etc/systemd/system/kubelet.service", unit("01-master-kubelet", "kubelet.service"))
        .file("/etc/kubernetes/kubelet.conf", read("01-master-kubelet/files/etc/kubernetes/kubelet.conf"))
        .file("/etc/node-sizing-enabled.env", read(&format!("{files}/etc/node-sizing-enabled.env")))
        .file("/usr/local/sbin/machinist-node-sizing", read(&format!("{files}/usr/local/sbin/machinist-node-sizing")))
        .file("/etc/systemd/system/kubelet.service.d/20-logging.conf", "[Service]\nEnvironment=\"KUBELET_LOG_LEVEL=4\"\n")
        .file("/etc/kubernetes/kubelet-extra.env", "KUBELET_EXTRA_ARGS=--v-one=1 --v-two=2\n")
        .file("/usr/local/bin/kubelet", "#!/bin/sh\nprintf '%s\\n' \"$@\" >/run/kubelet-args.new\nmv /run/kubelet-args.new /run/kubelet-args\nexec sleep 1000\n")
        .boot()
        .unwrap();
    machine.sh("chmod +x /usr/local/bin/kubelet /usr/local/sbin/machinist-node-sizing").unwrap();
    let kubelet_args = |enabled: &str| {
        machine.sh(&format!("sed -i s/^NODE_SIZING_ENABLED=.*/NODE_SIZING_ENABLED={enabled}/ /etc/node-sizing-enabled.env")).unwrap();
        machine.sh("rm -f /run/kubelet-args; systemctl restart kubelet").unwrap();
        machine
            .wait_for("the kubelet to run", |m| Ok(m.sh("test -e /run/kubelet-args").is_ok()))
            .unwrap();
        String::from_utf8(machine.read_file("/run/kubelet-args").unwrap()).unwrap()
    };
    assert_eq!(
        kubelet_args("false").lines().collect::<Vec<_>>(),
        [
            "--config=/etc/kubernetes/kubelet.conf",
            "--bootstrap-kubeconfig=/etc/kubernetes/kubeconfig",
            "--kubeconfig=/var/lib/kubelet/kubeconfig",
            "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
            "--system-reserved=cpu=500m,memory=1Gi,ephemeral-storage=1Gi",
            "--register-with-taints=node-role.kubernetes.io/control-plane=:NoSchedule",
            "-v=4",
            "--v-one=1",
            "--v-two=2",
        ]
    );
    let automatic = kubelet_args("true");
    let reserved = automatic.lines().find(|line| line.starts_with("--system-reserved=")).unwrap();
    assert!(
        reserved.contains("Mi,ephemeral-storage=1Gi") && !reserved.contains("memory=1Gi"),
        "{reserved}"
    );
}

/// The contents of a unit of a generated MachineConfig.
fn unit(config: &str, name: &str) -> String {
    let output = Command::new(binary::machinist_binary().unwrap())
        .args(["generate", "--pool", "master", "-f", EXAMPLE, "-o", "json"])
        .current_dir(cache::source_root())
        .output()
        .unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let item = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["metadata"]["name"] == config)
        .unwrap();
    let units = item["spec"]["config"]["systemd"]["units"].as_array().unwrap();
    let unit = units.iter().find(|unit| unit["name"] == name).unwrap();
    unit["contents"].as_str().unwrap().to_owned()
}
