//! A hub whose machines complete their first boot by themselves, and what is declared for them.

use machinist_e2e::lab::Process;
use machinist_e2e::pki::Authority;
use machinist_e2e::{Home, Image, Lab, Machine, Registry, program, wait_for, wait_within};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const API: &str = "/apis/machineconfiguration.openshift.io/v1";
const STATE: &str = "machineconfiguration.openshift.io/state";
const CURRENT: &str = "machineconfiguration.openshift.io/currentConfig";
/// The port of the machine config server.
const PORT: u16 = 22623;
/// What the workers are to be.
const NAME: &str = "50-birth";

/// How long a birth may take, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(240);

/// Stands in for the kubelet: says whether it was started in its order.
const KUBELET: &str = "[Unit]\nDescription=Stands in for the kubelet\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
    ExecStart=/bin/sh -c 'if test -e /etc/ignition-machine-config-encapsulated.json; then echo too early; \
    else echo in order; fi >>/var/kubelet.log'\n\n[Install]\nWantedBy=multi-user.target\n";

/// Which server machines ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    /// The one in `machinist up`.
    Inside,
    /// The same; configs are split, and everyone gets the open half.
    Sealed,
    /// A process of its own, `machinist server start`.
    Beside,
}

/// A hub and its machines.
pub(crate) struct Site {
    pub(crate) home: Home,
    lab: Lab,
    /// Whom machines trust.
    authority: PathBuf,
    /// A server of its own lives as long as we do.
    beside: Option<Process>,
}

impl Site {
    pub(crate) fn new(lab: &Lab, server: Server) -> Self {
        lab.bridge().unwrap();
        let (data, address) = (lab.folder("hub").unwrap(), lab.address());
        let token = data.join("join-token");
        let listen = |port: u16| format!("{address}:{port}");
        let url = format!("https://{}", listen(PORT));
        let mut up = Command::new(program::machinist().unwrap());
        up.arg("up").arg("--data").arg(&data).args(["--api-listen", &listen(6443)]);
        if server != Server::Beside {
            up.args(["--server-listen", &listen(PORT), "--server-first-boot", &url]);
            up.arg("--server-join-token-file").arg(&token);
        }
        if server == Server::Sealed {
            up.args(["--server-anonymous", "--server-sealed", &url]);
        }
        let home = Home::started(lab, &up, &data.join("kubeconfig")).unwrap();
        let authority = data.join("pki/ca.crt");
        let mut site = Self { home, lab: lab.clone(), authority, beside: None };
        let words = ["hub", "token", "--role", "bootstrap", "--data", data.to_str().unwrap()];
        let bootstrap = site.machinist(&words);
        match server {
            Server::Inside | Server::Sealed => fs::write(&token, bootstrap).unwrap(),
            Server::Beside => site.serve_beside(&bootstrap),
        }
        site
    }

    /// Starts a server beside the hub, as the documentation says.
    fn serve_beside(&mut self, bootstrap: &str) {
        let (folder, address) = (self.lab.folder("bootstrap-token").unwrap(), self.lab.address());
        // As a shell writes it: with the end of a line.
        fs::write(folder.join("token"), format!("{bootstrap}\n")).unwrap();
        fs::copy(&self.authority, folder.join("ca.crt")).unwrap();
        let authority = Authority::new("server").unwrap();
        let identity = authority.issue("server", &[], &[&address]).unwrap();
        let (certificate, key) = identity.write(&self.lab.folder("tls").unwrap(), "tls").unwrap();
        let url = format!("https://{address}:{PORT}");
        let mut server = Command::new(program::machinist().unwrap());
        server.args(["server", "start", "--allow-missing-controller-config", "--require-token"]);
        server.args(["--listen-address", &address, "--first-boot-url", &url, "--first-boot-join"]);
        server.args(["--apiserver-url", &format!("https://{address}:6443")]);
        server.arg("--kubeconfig").arg(self.home.kubeconfig());
        server.arg("--bootstrap-token-dir").arg(&folder);
        server.arg("--cert").arg(certificate).arg("--key").arg(key);
        let mut process = self.lab.spawn("server", &server).unwrap();
        wait_for("the server to listen", || {
            process.alive()?;
            Ok(TcpStream::connect((address.as_str(), PORT)).is_ok())
        })
        .unwrap();
        self.authority = self.lab.dir().join("server-ca.crt");
        fs::write(&self.authority, authority.certificate()).unwrap();
        self.beside = Some(process);
    }

    pub(crate) fn machinist(&self, words: &[&str]) -> String {
        let answer = self.home.machinist(words).unwrap();
        assert!(answer.ok(), "{words:?}: {answer:?}");
        answer.stdout.trim().to_owned()
    }

    /// Declares what the workers are to be; gives the name of their config.
    pub(crate) fn declare(&self, spec: Value, files: &[Value]) -> String {
        let made =
            self.home.post(&format!("{API}/machineconfigs"), &machine_config(NAME, spec, files));
        assert_eq!(made.code, 201, "{made:?}");
        let mut name = String::new();
        wait_for("the pool to have its config", || {
            let pool = self.home.get(&format!("{API}/machineconfigpools/worker")).body;
            let configuration = &pool["status"]["configuration"];
            name = configuration["name"].as_str().unwrap_or_default().to_owned();
            let sources = configuration["source"].as_array().cloned().unwrap_or_default();
            Ok(sources.iter().any(|source| source["name"] == NAME))
        })
        .unwrap();
        name
    }

    /// Changes what was declared.
    pub(crate) fn change(&self, spec: &Value) {
        let path = format!("{API}/machineconfigs/{NAME}");
        let changed = self.home.patch(&path, "merge-patch+json", &json!({"spec": spec}));
        assert_eq!(changed.code, 200, "{changed:?}");
    }

    /// A provisioning token.
    pub(crate) fn token(&self) -> String {
        self.machinist(&["token", "create", "--pool=worker"])
    }

    /// What whoever starts a machine hands to it; with a token where the server wants one.
    pub(crate) fn pointer(&self, token: Option<&str>) -> Value {
        let server = format!("https://{}:{PORT}", self.lab.address());
        let authority = self.authority.to_str().unwrap();
        let file = self.lab.dir().join("token");
        let mut words =
            vec!["pointer", "--pool=worker", "--server", &server, "--ca-file", authority];
        if let Some(token) = token {
            fs::write(&file, token).unwrap();
            words.extend(["--token-file", file.to_str().unwrap()]);
        }
        let mut pointer: Value = serde_json::from_str(&self.machinist(&words)).unwrap();
        // Debian's Ignition is of 2022.
        pointer["ignition"]["version"] = "3.2.0".into();
        pointer.as_object_mut().unwrap().remove("kernelArguments");
        pointer
    }

    /// Waits until a machine has said that it is as its config says; gives its Node.
    pub(crate) fn wait_done(&self, machine: &Machine, config: &str) -> Value {
        let name = machine.name();
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

    /// Waits until the pool says that it does not go on like this; gives the reason.
    pub(crate) fn wait_refusal(&self) -> String {
        let mut why = String::new();
        wait_for("the change to be refused", || {
            let pool = self.home.get(&format!("{API}/machineconfigpools/worker")).body;
            let conditions = pool["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let refused = |it: &&Value| it["type"] == "RenderDegraded" && it["status"] == "True";
            let found = conditions.iter().find(refused).map(|it| &it["message"]);
            why = found.and_then(Value::as_str).unwrap_or_default().to_owned();
            Ok(found.is_some())
        })
        .unwrap();
        why
    }
}

/// A MachineConfig of the workers, with a unit in the kubelet's place.
pub(crate) fn machine_config(name: &str, mut spec: Value, files: &[Value]) -> Value {
    spec["config"] = json!({
        "ignition": {"version": "3.3.0"}, "storage": {"files": files},
        "systemd": {"units": [{"name": "kubelet.service", "enabled": true, "contents": KUBELET}]},
    });
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "spec": spec,
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
    })
}

/// A file of a config.
pub(crate) fn file(path: &str, mode: u32, text: &str) -> Value {
    let text: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
    json!({"path": path, "overwrite": true, "mode": mode, "contents": {"source": format!("data:,{text}")}})
}

/// A registry with the second version of the system; gives it, its image, and the files with which a machine finds it.
pub(crate) fn second_system(lab: &Lab) -> (Registry, String, [Value; 2]) {
    let registry = Registry::start(lab).unwrap();
    let image = Image::system().unwrap().file("usr/lib/testkit-version", 0o644, "v2\n");
    let image = registry.push("os/debian:2", &image).unwrap();
    let registries = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", registry.host());
    let welcome = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
    let files = [
        file("/etc/containers/registries.conf", 0o644, &registries),
        file("/etc/containers/policy.json", 0o644, welcome),
    ];
    (registry, image, files)
}
