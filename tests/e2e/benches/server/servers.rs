//! The servers: ours, and nginx with the same bytes as a file.

use crate::load::LoadTarget;
use anyhow::{Context as _, Result, ensure};
use machinist_e2e::lab::LabProcess;
use machinist_e2e::pki::TestCa;
use machinist_e2e::{Lab, binary, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file in the config. The response contains it twice: as itself and in the copy of the whole MachineConfig.
const CONTENTS: usize = 211_500;
const PATH: &str = "/config/master";

/// The served config and its URL path.
pub(crate) struct ServedConfig {
    address: String,
    base: PathBuf,
    kubeconfig: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    authority: TestCa,
}

/// A running server.
pub(crate) struct ConfigServer {
    process: LabProcess,
    secure: u16,
    plain: u16,
}

impl ServedConfig {
    pub(crate) fn new(lab: &Lab) -> Result<Self> {
        let (base, address) = (lab.create_dir("base")?, lab.loopback());
        let rendered = "rendered-master-1";
        let file = json!({"path": "/etc/large", "mode": 0o644,
            "contents": {"source": format!("data:,{}", "a".repeat(CONTENTS))}});
        let config = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [file]}});
        write(
            &base,
            "machine-configs",
            "MachineConfig",
            rendered,
            json!({"spec": {"config": config}}),
        )?;
        let pool = json!({"spec": {}, "status": {"configuration": {"name": rendered}}});
        write(&base, "machine-pools", "MachineConfigPool", "master", pool)?;
        let name = "machine-config-controller";
        write(&base, "controller-config", "ControllerConfig", name, json!({"spec": {}}))?;
        let kubeconfig = lab.dir().join("kubeconfig");
        fs::write(&kubeconfig, "clusters:\n- name: a\n")?;
        let authority = TestCa::new("bench")?;
        let identity = authority.issue("server", &[], &[&address])?;
        let (certificate, key) = identity.write_files(&lab.create_dir("tls")?, "tls")?;
        Ok(Self { address, base, kubeconfig, certificate, key, authority })
    }

    /// Our server.
    pub(crate) fn machinist(&self, lab: &Lab) -> Result<ConfigServer> {
        let mut command = Command::new(binary::machinist_binary()?);
        command.args(["server", "bootstrap", "--listen-address", &self.address]);
        command.arg("--server-basedir").arg(&self.base);
        command.arg("--bootstrap-kubeconfig").arg(&self.kubeconfig);
        command.arg("--cert").arg(&self.certificate).arg("--key").arg(&self.key);
        self.start(lab, "machinist", &command, 22623, 22624)
    }

    /// nginx with Debian's defaults: one worker per core, and an access log.
    pub(crate) fn nginx(&self, lab: &Lab, response: &[u8]) -> Result<ConfigServer> {
        let dir = lab.create_dir("nginx")?;
        fs::create_dir_all(dir.join("html/config"))?;
        fs::write(dir.join("html").join(PATH.trim_start_matches('/')), response)?;
        // The workers run as another user.
        ensure!(Command::new("chmod").arg("-R").arg("a+rX").arg(&dir).status()?.success(), "chmod");
        let (shown, address) = (dir.display(), &self.address);
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let text = format!(
            "user root;\nworker_processes auto;\nworker_rlimit_nofile 20000;\npid {shown}/pid;\nerror_log {shown}/error.log;\n\
             events {{ worker_connections 8192; }}\n\
             http {{\n  sendfile on; tcp_nopush on; keepalive_requests 1000000;\n  access_log {shown}/access.log;\n\
             \x20 default_type application/json;\n  server {{\n    listen {address}:22633 ssl; listen {address}:22634;\n\
             \x20   ssl_certificate {certificate}; ssl_certificate_key {key};\n    root {shown}/html;\n  }}\n}}\n"
        );
        let config = dir.join("nginx.conf");
        fs::write(&config, text)?;
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&config).args(["-g", "daemon off;"]);
        self.start(lab, "nginx", &command, 22633, 22634)
    }

    fn start(
        &self,
        lab: &Lab,
        name: &str,
        command: &Command,
        secure: u16,
        plain: u16,
    ) -> Result<ConfigServer> {
        let mut process = lab.spawn(name, command)?;
        wait_for("the server to listen", || {
            process.check_alive()?;
            Ok(TcpStream::connect((self.address.as_str(), plain)).is_ok())
        })?;
        Ok(ConfigServer { process, secure, plain })
    }
}

impl ConfigServer {
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The address and the request for clients.
    pub(crate) fn target(&self, config: &ServedConfig, secure: bool) -> Result<LoadTarget> {
        let port = if secure { self.secure } else { self.plain };
        let authority = secure.then(|| config.authority.certificate());
        LoadTarget::new(&config.address, port, PATH, authority)
    }

    /// The peak memory, in bytes.
    pub(crate) fn peak_memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.context("no VmHWM")?.trim().trim_end_matches(" kB");
        Ok(number.parse::<u64>()? << 10)
    }
}

fn write(base: &Path, dir: &str, kind: &str, name: &str, mut object: Value) -> Result<()> {
    object["apiVersion"] = "machineconfiguration.openshift.io/v1".into();
    object["kind"] = kind.into();
    object["metadata"] = json!({"name": name});
    fs::create_dir_all(base.join(dir))?;
    Ok(fs::write(base.join(dir).join(format!("{name}.yaml")), object.to_string())?)
}
