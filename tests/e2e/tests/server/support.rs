//! Objects to serve, servers that serve them, and a client.

use machinist_e2e::lab::LabProcess;
use machinist_e2e::pki::TestCa;
use machinist_e2e::{ApiServer, Lab, binary, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const API: &str = "machineconfiguration.openshift.io/v1";
pub(crate) const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
pub(crate) const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";
pub(crate) const OS_CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineosconfigs";
pub(crate) const OS_BUILDS: &str = "/apis/machineconfiguration.openshift.io/v1/machineosbuilds";
pub(crate) const SPEC_3: &str = "application/vnd.coreos.ignition+json;version=3.5.0";

pub(crate) fn ignition_config(greeting: &str) -> Value {
    let unit = "[Service]\nType=oneshot\nExecStart=touch /var/marked\n[Install]\nWantedBy=multi-user.target\n";
    json!({
        "ignition": {"version": "3.5.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA test"]}]},
        "storage": {"files": [{"path": "/etc/greeting", "mode": 0o640, "overwrite": true,
            "contents": {"source": format!("data:,{greeting}")}}]},
        "systemd": {"units": [{"name": "mark.service", "enabled": true, "contents": unit}]},
    })
}

pub(crate) fn object(kind: &str, name: &str, rest: &Value) -> Value {
    let mut object = rest.clone();
    object["apiVersion"] = API.into();
    object["kind"] = kind.into();
    object["metadata"]["name"] = name.into();
    object
}

pub(crate) fn machine_config(name: &str, greeting: &str) -> Value {
    let spec = json!({"config": ignition_config(greeting)});
    object("MachineConfig", name, &json!({"spec": spec}))
}

/// A server in a lab, with its certificate.
pub(crate) struct ServerProcess {
    pub(crate) address: String,
    pub(crate) process: LabProcess,
    pub(crate) authority: TestCa,
}

impl ServerProcess {
    /// Starts `machinist server` on MCO's ports, at the lab's own address.
    pub(crate) fn start(lab: &Lab, address: String, arguments: &[&str]) -> Self {
        let mut command = Command::new(binary::machinist_binary().unwrap());
        command.arg("server").args(arguments).args(["--listen-address", &address]);
        let authority = Self::issue_certificate(lab, &address, &mut command);
        let process = lab.spawn("server", &command).unwrap();
        let mut server = Self { address, process, authority };
        server.wait();
        server
    }

    /// Creates a certificate for a server. Returns its CA.
    pub(crate) fn issue_certificate(lab: &Lab, address: &str, command: &mut Command) -> TestCa {
        let dir = lab.create_dir("tls").unwrap();
        let authority = TestCa::new("test").unwrap();
        let identity = authority.issue("server", &[], &[address]).unwrap();
        let (certificate, key) = identity.write_files(&dir, "tls").unwrap();
        command.arg("--cert").arg(certificate).arg("--key").arg(key);
        authority
    }

    pub(crate) fn wait(&mut self) {
        let (process, address) = (&mut self.process, &self.address);
        wait_for("the server to listen", || {
            process.check_alive()?;
            Ok(TcpStream::connect((address.as_str(), 22624)).is_ok())
        })
        .unwrap();
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Vec<u8>) {
        get(&self.address, path)
    }
}

/// Sends a request over plain HTTP.
pub(crate) fn get(address: &str, path: &str) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect((address, 22624)).unwrap();
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {SPEC_3}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let status = String::from_utf8_lossy(&bytes[9..12]).parse().unwrap();
    (status, bytes[end + 4..].to_vec())
}

/// The contents of the greeting file for a pool's machines.
pub(crate) fn greeting(address: &str, pool: &str) -> Option<String> {
    let (status, body) = get(address, &format!("/config/{pool}"));
    if status != 200 {
        return None;
    }
    let config: Value = serde_json::from_slice(&body).unwrap();
    let files = config["storage"]["files"].as_array().unwrap();
    let file = files.iter().find(|file| file["path"] == "/etc/greeting").unwrap();
    Some(file["contents"]["source"].as_str().unwrap().trim_start_matches("data:,").to_owned())
}

pub(crate) fn write(dir: &Path, name: &str, object: &Value) {
    let path = dir.join(format!("{name}.yaml"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, object.to_string()).unwrap();
}

/// `machinist server start` with an API server.
pub(crate) fn start_server_for(lab: &Lab, api_server: &ApiServer) -> ServerProcess {
    start_server_with(lab, api_server, &[])
}

/// The same with more flags.
pub(crate) fn start_server_with(lab: &Lab, api_server: &ApiServer, more: &[&str]) -> ServerProcess {
    let tokens = lab.create_dir("token").unwrap();
    fs::write(tokens.join("token"), "a.secret").unwrap();
    fs::write(tokens.join("ca.crt"), "PEM").unwrap();
    let arguments = [
        "start",
        "--apiserver-url=https://api:6443",
        "--allow-missing-controller-config",
        "--kubeconfig",
        api_server.kubeconfig().to_str().unwrap(),
        "--bootstrap-token-dir",
        tokens.to_str().unwrap(),
    ];
    ServerProcess::start(lab, lab.loopback(), &[&arguments, more].concat())
}

/// A file for a pool's machines.
pub(crate) fn file(address: &str, pool: &str, path: &str) -> Option<String> {
    let (status, body) = get(address, &format!("/config/{pool}"));
    let config: Value = serde_json::from_slice(&body).ok().filter(|_| status == 200)?;
    let files = config["storage"]["files"].as_array()?;
    let file = files.iter().find(|file| file["path"] == path)?;
    Some(file["contents"]["source"].as_str()?.to_owned())
}

/// A directory with one control-plane pool. Returns the arguments that serve it.
pub(crate) fn serve_directory_args(lab: &Lab) -> Vec<String> {
    let base = lab.create_dir("base").unwrap();
    let rendered = "rendered-master-1";
    write(&base, &format!("machine-configs/{rendered}"), &machine_config(rendered, "hello"));
    let status = json!({"configuration": {"name": rendered}});
    let pool = object("MachineConfigPool", "master", &json!({"spec": {}, "status": status}));
    write(&base, "machine-pools/master", &pool);
    let spec = json!({"kubeAPIServerServingCAData": "Y2E="});
    let name = "machine-config-controller";
    let controller_config = object("ControllerConfig", name, &json!({"spec": spec}));
    write(&base, &format!("controller-config/{name}"), &controller_config);
    let kubeconfig = lab.dir().join("kubeconfig");
    fs::write(&kubeconfig, "clusters:\n- name: a\n  cluster: {server: 'https://api'}\n").unwrap();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let words = ["bootstrap", "--server-basedir", "--bootstrap-kubeconfig"].map(str::to_owned);
    let [bootstrap, dir, file] = words;
    vec![bootstrap, dir, path(&base), file, path(&kubeconfig)]
}

/// A hub with its server, as `machinist up` starts it, where machines can reach it.
pub(crate) struct HubWithServer {
    pub(crate) address: String,
    data: PathBuf,
    process: LabProcess,
}

impl HubWithServer {
    /// Starts one and waits until its server listens.
    pub(crate) fn start(lab: &Lab, more: &[&str]) -> Self {
        lab.create_bridge().unwrap();
        let (data, address) = (lab.create_dir("data").unwrap(), lab.address());
        let listen = |port: u16| format!("{address}:{port}");
        let mut up = Command::new(binary::machinist_binary().unwrap());
        up.arg("up").arg("--data").arg(&data).args(["--api-listen", &listen(6443)]);
        up.args(["--server-listen", &listen(22623), "--server-insecure-listen", &listen(22624)]);
        let mut process = lab.spawn("up", up.args(more)).unwrap();
        wait_for("the server to listen", || {
            process.check_alive()?;
            Ok(TcpStream::connect((address.as_str(), 22624)).is_ok())
        })
        .unwrap();
        Self { address, data, process }
    }

    /// Runs `machinist`, which must succeed. Returns its output.
    pub(crate) fn machinist(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(binary::machinist_binary().unwrap());
        command.args(arguments).arg("--kubeconfig").arg(self.data.join("kubeconfig"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The CA that its machines must trust, as a data URL.
    pub(crate) fn authority(&self) -> String {
        let authority: String =
            self.authority_certificate().iter().map(|byte| format!("%{byte:02X}")).collect();
        format!("data:,{authority}")
    }

    /// The certificate of that CA.
    pub(crate) fn authority_certificate(&self) -> Vec<u8> {
        fs::read(self.data.join("pki/ca.crt")).unwrap()
    }

    /// Its whole log.
    pub(crate) fn log(&self) -> String {
        self.process.log() + &fs::read_to_string(self.data.join("audit.log")).unwrap()
    }
}
