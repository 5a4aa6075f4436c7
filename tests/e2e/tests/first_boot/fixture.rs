//! A hub whose machines complete their first boot by themselves, and what is declared for them.

use machinist_e2e::lab::LabProcess;
use machinist_e2e::pki::TestCa;
use machinist_e2e::{
    ApiServer, ContainerImage, ImageRegistry, Lab, Machine, binary, wait_for, wait_with_timeout,
};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const API: &str = "/apis/machineconfiguration.openshift.io/v1";
const STATE_ANNOTATION: &str = "machineconfiguration.openshift.io/state";
const CURRENT_CONFIG_ANNOTATION: &str = "machineconfiguration.openshift.io/currentConfig";
/// The port of the machine config server.
const PORT: u16 = 22623;
/// The pool of the machines.
const MACHINE_CONFIG_NAME: &str = "50-first-boot";

/// Timeout for a first boot, on a host that runs other tests.
const FIRST_BOOT_TIMEOUT: Duration = Duration::from_secs(240);

/// Stands in for the kubelet: records whether it was started in the right order.
const KUBELET_STUB: &str = "[Unit]\nDescription=Stands in for the kubelet\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
    ExecStart=/bin/sh -c 'if test -e /etc/ignition-machine-config-encapsulated.json; then echo too early; \
    else echo in order; fi >>/var/kubelet.log'\n\n[Install]\nWantedBy=multi-user.target\n";

/// Which server the machines use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerMode {
    /// The server in `machinist up`.
    Embedded,
    /// The same with sealed configs: only the open half is served without enrolment.
    Sealed,
    /// A separate process, `machinist server start`.
    Separate,
}

/// A hub and its machines.
pub(crate) struct FirstBootFixture {
    pub(crate) api_server: ApiServer,
    lab: Lab,
    /// The pool of the machines.
    pool: &'static str,
    /// The CA that machines trust.
    ca_file: PathBuf,
    /// Keeps the separate server running.
    separate_server: Option<LabProcess>,
}

impl FirstBootFixture {
    pub(crate) fn new(lab: &Lab, server: ServerMode) -> Self {
        Self::of_pool(lab, server, "worker")
    }

    /// The same for machines of another pool.
    pub(crate) fn of_pool(lab: &Lab, server: ServerMode, pool: &'static str) -> Self {
        lab.create_bridge().unwrap();
        let (data, address) = (lab.create_dir("hub").unwrap(), lab.address());
        let token = data.join("join-token");
        let listen = |port: u16| format!("{address}:{port}");
        let url = format!("https://{}", listen(PORT));
        let mut up = Command::new(binary::machinist_binary().unwrap());
        up.arg("up").arg("--data").arg(&data).args(["--api-listen", &listen(6443)]);
        if server != ServerMode::Separate {
            up.args(["--server-listen", &listen(PORT), "--server-first-boot", &url]);
            up.arg("--server-join-token-file").arg(&token);
        }
        if server == ServerMode::Sealed {
            up.args(["--server-anonymous", "--server-sealed", &url]);
        }
        let api_server = ApiServer::start_hub(lab, &up, &data.join("kubeconfig")).unwrap();
        let authority = data.join("pki/ca.crt");
        let mut fixture =
            Self { api_server, lab: lab.clone(), pool, ca_file: authority, separate_server: None };
        let data = data.to_str().unwrap();
        let args = ["hub", "token", "--role", "bootstrap", "--pool", pool, "--data", data];
        let bootstrap = fixture.machinist(&args);
        match server {
            ServerMode::Embedded | ServerMode::Sealed => fs::write(&token, bootstrap).unwrap(),
            ServerMode::Separate => fixture.start_separate_server(&bootstrap),
        }
        fixture
    }

    /// Starts a separate server next to the hub, as the documentation describes.
    fn start_separate_server(&mut self, bootstrap: &str) {
        let (dir, address) = (self.lab.create_dir("bootstrap-token").unwrap(), self.lab.address());
        // With a line break, as a shell writes it.
        fs::write(dir.join("token"), format!("{bootstrap}\n")).unwrap();
        fs::copy(&self.ca_file, dir.join("ca.crt")).unwrap();
        let authority = TestCa::new("server").unwrap();
        let identity = authority.issue("server", &[], &[&address]).unwrap();
        let (certificate, key) =
            identity.write_files(&self.lab.create_dir("tls").unwrap(), "tls").unwrap();
        let url = format!("https://{address}:{PORT}");
        let mut server = Command::new(binary::machinist_binary().unwrap());
        server.args(["server", "start", "--allow-missing-controller-config", "--require-token"]);
        server.args(["--listen-address", &address, "--first-boot-url", &url, "--first-boot-join"]);
        server.args(["--apiserver-url", &format!("https://{address}:6443")]);
        server.arg("--kubeconfig").arg(self.api_server.kubeconfig());
        server.arg("--bootstrap-token-dir").arg(&dir);
        server.arg("--cert").arg(certificate).arg("--key").arg(key);
        let mut process = self.lab.spawn("server", &server).unwrap();
        wait_for("the server to listen", || {
            process.check_alive()?;
            Ok(TcpStream::connect((address.as_str(), PORT)).is_ok())
        })
        .unwrap();
        self.ca_file = self.lab.dir().join("server-ca.crt");
        fs::write(&self.ca_file, authority.certificate()).unwrap();
        self.separate_server = Some(process);
    }

    pub(crate) fn machinist(&self, args: &[&str]) -> String {
        let output = self.api_server.machinist(args).unwrap();
        assert!(output.succeeded(), "{args:?}: {output:?}");
        output.stdout.trim().to_owned()
    }

    /// Declares the config of the pool. Returns its name.
    pub(crate) fn declare(&self, spec: Value, files: &[Value]) -> String {
        let mut config = machine_config(MACHINE_CONFIG_NAME, spec, files);
        config["metadata"]["labels"]["machineconfiguration.openshift.io/role"] = self.pool.into();
        let made = self.api_server.post(&format!("{API}/machineconfigs"), &config);
        assert_eq!(made.code, 201, "{made:?}");
        let mut name = String::new();
        wait_for("the pool to have its config", || {
            let pool = format!("{API}/machineconfigpools/{}", self.pool);
            let pool = self.api_server.get(&pool).body;
            let configuration = &pool["status"]["configuration"];
            name = configuration["name"].as_str().unwrap_or_default().to_owned();
            let sources = configuration["source"].as_array().cloned().unwrap_or_default();
            Ok(sources.iter().any(|source| source["name"] == MACHINE_CONFIG_NAME))
        })
        .unwrap();
        name
    }

    /// Changes the declared config.
    pub(crate) fn change(&self, spec: &Value) {
        let path = format!("{API}/machineconfigs/{MACHINE_CONFIG_NAME}");
        let changed = self.api_server.patch(&path, "merge-patch+json", &json!({"spec": spec}));
        assert_eq!(changed.code, 200, "{changed:?}");
    }

    /// A provisioning token.
    pub(crate) fn token(&self) -> String {
        self.machinist(&["token", "create", "--pool", self.pool])
    }

    /// The user data for a new machine, with a token if the server requires one.
    pub(crate) fn pointer_config(&self, token: Option<&str>) -> Value {
        let server = format!("https://{}:{PORT}", self.lab.address());
        let authority = self.ca_file.to_str().unwrap();
        let file = self.lab.dir().join("token");
        let mut args = vec![
            "pointer",
            "--pool",
            self.pool,
            "--server-url",
            &server,
            "--server-ca-file",
            authority,
        ];
        if let Some(token) = token {
            fs::write(&file, token).unwrap();
            args.extend(["--server-token-file", file.to_str().unwrap()]);
        }
        let mut pointer: Value = serde_json::from_str(&self.machinist(&args)).unwrap();
        // Debian's Ignition is from 2022 and does not know this field.
        pointer["ignition"]["version"] = "3.2.0".into();
        pointer.as_object_mut().unwrap().remove("kernelArguments");
        pointer
    }

    /// Waits until a machine reports its config as applied. Returns its Node.
    pub(crate) fn wait_done(&self, machine: &Machine, config: &str) -> Value {
        let name = machine.name();
        let mut node = Value::Null;
        let waited = wait_with_timeout(FIRST_BOOT_TIMEOUT, &format!("{name} to be Done"), || {
            node = self.api_server.get(&format!("/api/v1/nodes/{name}")).body;
            let annotations = &node["metadata"]["annotations"];
            Ok(annotations[STATE_ANNOTATION] == "Done"
                && annotations[CURRENT_CONFIG_ANNOTATION] == config)
        });
        let journal = || machine.sh("journalctl -b -o cat -u 'machinist-*' | tail -n 60");
        assert!(waited.is_ok(), "{waited:?}\n{node}\n{:?}", journal());
        node
    }

    /// Waits until the pool reports that it cannot continue. Returns the reason.
    pub(crate) fn wait_for_render_failure(&self) -> String {
        let mut why = String::new();
        wait_for("the change to be refused", || {
            let pool = self.api_server.get(&format!("{API}/machineconfigpools/worker")).body;
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

/// A MachineConfig of the workers, with a unit in place of the kubelet.
pub(crate) fn machine_config(name: &str, mut spec: Value, files: &[Value]) -> Value {
    spec["config"] = json!({
        "ignition": {"version": "3.3.0"}, "storage": {"files": files},
        "systemd": {"units": [{"name": "kubelet.service", "enabled": true, "contents": KUBELET_STUB}]},
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

/// A registry with the second version of the system. Returns the registry, the image, and the files that let a machine
/// use it.
pub(crate) fn second_system(lab: &Lab) -> (ImageRegistry, String, [Value; 2]) {
    let registry = ImageRegistry::start(lab).unwrap();
    let image = ContainerImage::system().unwrap().file("usr/lib/testkit-version", 0o644, "v2\n");
    let image = registry.push("os/debian:2", &image).unwrap();
    let registries = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", registry.host());
    let welcome = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
    let files = [
        file("/etc/containers/registries.conf", 0o644, &registries),
        file("/etc/containers/policy.json", 0o644, welcome),
    ];
    (registry, image, files)
}
