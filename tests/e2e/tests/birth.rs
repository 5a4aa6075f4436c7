//! The whole birth of a machine: a pointer config, the real Ignition, our server, the first boot, the pool's image, one
//! restart, joined, Done.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use machinist_e2e::machine::Builder;
use machinist_e2e::{Home, Image, Lab, Machine, Registry, figures, program, wait_for, wait_within};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const API: &str = "/apis/machineconfiguration.openshift.io/v1";
const STATE: &str = "machineconfiguration.openshift.io/state";
const CURRENT: &str = "machineconfiguration.openshift.io/currentConfig";

/// How long a birth may take, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(240);

/// A hub whose machines complete their first boot by themselves.
struct Site {
    home: Home,
    lab: Lab,
    data: PathBuf,
}

impl Site {
    fn new(lab: &Lab) -> Self {
        lab.bridge().unwrap();
        let (data, address) = (lab.folder("hub").unwrap(), lab.address());
        let token = data.join("join-token");
        let listen = |port: u16| format!("{address}:{port}");
        let url = format!("https://{}", listen(22623));
        let mut up = Command::new(program::machinist().unwrap());
        up.arg("up").arg("--data").arg(&data).args(["--api-listen", &listen(6443)]);
        up.args(["--server-listen", &listen(22623), "--server-first-boot", &url]);
        up.arg("--server-join-token-file").arg(&token);
        let home = Home::started(lab, &up, &data.join("kubeconfig")).unwrap();
        let site = Self { home, lab: lab.clone(), data };
        let made = site.machinist(&[
            "hub",
            "token",
            "--role",
            "bootstrap",
            "--data",
            site.data.to_str().unwrap(),
        ]);
        fs::write(&token, made).unwrap();
        site
    }

    fn machinist(&self, words: &[&str]) -> String {
        let answer = self.home.machinist(words).unwrap();
        assert!(answer.ok(), "{words:?}: {answer:?}");
        answer.stdout.trim().to_owned()
    }

    /// Declares what the workers are to be; gives the name of their config.
    fn declare(&self, mut spec: Value, files: &[(&str, String)]) -> String {
        let files: Vec<Value> = files
            .iter()
            .map(|(path, text)| {
                let text: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
                json!({"path": path, "overwrite": true, "mode": 420, "contents": {"source": format!("data:,{text}")}})
            })
            .collect();
        spec["config"] = json!({"ignition": {"version": "3.3.0"}, "storage": {"files": files}});
        let config = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "spec": spec,
            "metadata": {"name": "50-birth", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        });
        let made = self.home.post(&format!("{API}/machineconfigs"), &config);
        assert_eq!(made.code, 201, "{made:?}");
        let mut name = String::new();
        wait_for("the pool to have its config", || {
            let pool = self.home.get(&format!("{API}/machineconfigpools/worker")).body;
            let configuration = &pool["status"]["configuration"];
            name = configuration["name"].as_str().unwrap_or_default().to_owned();
            let sources = configuration["source"].as_array().cloned().unwrap_or_default();
            Ok(sources.iter().any(|source| source["name"] == "50-birth"))
        })
        .unwrap();
        name
    }

    /// What whoever starts a machine hands to it.
    fn pointer(&self) -> String {
        let token = self.machinist(&["token", "create", "--pool=worker"]);
        let file = self.lab.dir().join("token");
        fs::write(&file, token).unwrap();
        let server = format!("https://{}:22623", self.lab.address());
        let authority = self.data.join("pki/ca.crt");
        let pointer = self.machinist(&[
            "pointer",
            "--pool=worker",
            "--server",
            &server,
            "--ca-file",
            authority.to_str().unwrap(),
            "--token-file",
            file.to_str().unwrap(),
        ]);
        // Debian's Ignition is of 2022.
        pointer.replace("3.5.0", "3.2.0")
    }

    /// Waits until a machine has said that it is as its config says; gives its Node.
    fn wait_done(&self, machine: &Machine, name: &str, config: &str) -> Value {
        let mut node = Value::Null;
        let waited = wait_within(PATIENCE, &format!("{name} to be Done"), || {
            node = self.home.get(&format!("/api/v1/nodes/{name}")).body;
            let said = &node["metadata"]["annotations"];
            Ok(said[STATE] == "Done" && said[CURRENT] == config)
        });
        let journal = || machine.sh("journalctl -b -o cat -u 'machinist-*' | tail -n 60");
        assert!(waited.is_ok(), "{waited:?}\n{node}\n{:?}", journal());
        node
    }
}

/// Switches a new machine on.
fn start_up(machine: Builder) -> Machine {
    let machine = machine.build().unwrap();
    let up = machine.power_on();
    assert!(up.is_ok(), "{up:?}\n{}", machine.journal().unwrap_or_default());
    machine
}

/// Keeps and shows how long it took from power-on to Done.
fn tell(name: &str, start: Instant) {
    let took = format!("{:.1} s from power-on to Done", start.elapsed().as_secs_f64());
    figures::record(name, took).unwrap();
}

#[test]
fn a_machine_is_born_into_the_image_of_its_pool() {
    let lab = Lab::new().unwrap();
    let registry = Registry::start(&lab).unwrap();
    let image = Image::system().unwrap().file("usr/lib/testkit-version", 0o644, "v2\n");
    let image = registry.push("os/debian:2", &image).unwrap();
    let site = Site::new(&lab);
    let registries = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", registry.host());
    let welcome = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#.to_owned();
    let config = site.declare(
        json!({"osImageURL": image, "kernelArguments": ["birth=1", "quiet"]}),
        &[
            ("/etc/greeting", "hello\n".to_owned()),
            ("/etc/containers/registries.conf", registries),
            ("/etc/containers/policy.json", welcome),
        ],
    );
    let start = Instant::now();
    let machine = start_up(lab.ostree_machine("new").ignite(&site.pointer()));
    let node = site.wait_done(&machine, "new", &config);
    tell("birth-with-image", start);
    assert_eq!(node["metadata"]["labels"]["node-role.kubernetes.io/worker"], "");
    assert_eq!(machine.boots(), 2, "one restart, and no other");
    let read = |path: &str| machine.sh(&format!("cat {path}")).unwrap();
    assert_eq!(read("/usr/lib/testkit-version"), "v2\n");
    assert_eq!(read("/etc/greeting"), "hello\n");
    let line = read("/proc/cmdline");
    assert!(line.contains(" birth=1 quiet") && line.contains("root=LABEL=root"), "{line}");
    // What only a new machine needs is gone, and so is the token that it came with.
    for path in ["/etc/ignition-machine-config-encapsulated.json", "/etc/kubernetes/kubeconfig"] {
        assert!(!machine.exists(path).unwrap(), "{path}");
    }
    let status: Value =
        serde_json::from_str(&machine.sh("machinist daemon status -o json").unwrap()).unwrap();
    assert!(status.to_string().contains("ostree"), "{status}");
}

#[test]
fn a_machine_that_is_as_it_should_be_does_not_restart() {
    let lab = Lab::new().unwrap();
    let site = Site::new(&lab);
    let config = site.declare(json!({}), &[("/etc/greeting", "hello\n".to_owned())]);
    let start = Instant::now();
    let machine = start_up(lab.machine("plain").ignite(&site.pointer()));
    site.wait_done(&machine, "plain", &config);
    tell("birth", start);
    assert_eq!(machine.boots(), 1);
    assert_eq!(machine.sh("cat /etc/greeting").unwrap(), "hello\n");
}
