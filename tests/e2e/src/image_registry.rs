//! A container registry (Debian's docker-registry) with images made by the kit.

use crate::image::ContainerImage;
use crate::lab::{Lab, LabProcess};
use crate::pki::TestCa;
use crate::{command, environment, wait_for};
use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The port of every registry. Each has its own address.
pub(crate) const PORT: u16 = 5000;

/// The user of a registry with authentication.
pub const USER: &str = "machine";
/// The password of that user.
pub const PASSWORD: &str = "pull-me-if-you-can";
/// The bcrypt hash of the password, as the registry stores it.
const PASSWORD_HASH: &str = "$2b$04$Jfu2R/21YS7hUH24qR7dhu4K0.87nfXt1DMWNqkMB0L4eDOgteYVu";

/// A registry on the lab's bridge, where machines and the test reach it.
#[derive(Debug)]
pub struct ImageRegistry {
    process: Mutex<LabProcess>,
    lab: Lab,
    requires_auth: bool,
}

impl ImageRegistry {
    /// Starts an empty registry with plain HTTP and without authentication.
    pub fn start(lab: &Lab) -> Result<Self> {
        Self::start_with(lab, None)
    }

    /// Starts an empty registry with a certificate of that CA, which requires [`USER`] and [`PASSWORD`].
    pub fn start_with_auth(lab: &Lab, authority: &TestCa) -> Result<Self> {
        Self::start_with(lab, Some(authority))
    }

    fn start_with(lab: &Lab, authority: Option<&TestCa>) -> Result<Self> {
        lab.create_bridge()?;
        let dir = lab.create_dir("registry")?;
        let config = dir.join("config.yml");
        let mut guard = (String::new(), String::new());
        if let Some(authority) = authority {
            let identity = authority.issue("registry", &[], &[&lab.address()])?;
            let (certificate, key) = identity.write_files(&dir, "registry")?;
            let users = dir.join("users");
            fs::write(&users, format!("{USER}:{PASSWORD_HASH}\n"))?;
            guard = (
                format!(
                    ", tls: {{certificate: {}, key: {}}}",
                    certificate.display(),
                    key.display()
                ),
                format!("auth: {{htpasswd: {{realm: kit, path: {}}}}}\n", users.display()),
            );
        }
        let (tls, auth) = guard;
        let text = format!(
            "version: 0.1\nlog: {{level: warn}}\nhttp: {{addr: '{}:{PORT}'{tls}}}\n{auth}storage:\n  \
             filesystem: {{rootdirectory: {}}}\n  delete: {{enabled: true}}\n",
            lab.address(),
            dir.join("store").display()
        );
        fs::write(&config, text)?;
        let mut registry = Command::new(environment::find_tool("docker-registry")?);
        registry.arg("serve").arg(&config);
        let process = Mutex::new(lab.spawn("registry", &registry)?);
        let registry = Self { process, lab: lab.clone(), requires_auth: authority.is_some() };
        wait_for("the registry to listen", || {
            registry.process.lock().check_alive()?;
            Ok(TcpStream::connect((lab.address(), PORT)).is_ok())
        })?;
        Ok(registry)
    }

    /// The registry's host and port, the first part of every image name in it.
    pub fn host(&self) -> String {
        format!("{}:{PORT}", self.lab.address())
    }

    /// A pull secret for this registry with the given password.
    pub fn pull_secret(&self, password: &str) -> Value {
        let auth = BASE64_STANDARD.encode(format!("{USER}:{password}"));
        json!({"auths": {self.host(): {"auth": auth}}})
    }

    /// Pushes an image under a name such as `os/debian:1`. Returns its pullspec by digest.
    pub fn push(&self, name: &str, image: &ContainerImage) -> Result<String> {
        let layout = self.lab.create_dir(&format!("images/{}", name.replace(['/', ':'], "-")))?;
        let digest = image.write_oci(&layout)?;
        self.push_layout(name, &layout)?;
        let repository = name.rsplit_once(':').map_or(name, |(repository, _)| repository);
        Ok(format!("{}/{repository}@{digest}", self.host()))
    }

    /// Pushes an OCI layout with the tag `latest` from a directory.
    pub fn push_layout(&self, name: &str, layout: &Path) -> Result<()> {
        let mut skopeo = Command::new(environment::find_tool("skopeo")?);
        skopeo.args(["copy", "--quiet", "--insecure-policy", "--dest-tls-verify=false"]);
        // Otherwise skopeo compresses uncompressed layers, which changes the image's digest.
        skopeo.arg("--preserve-digests");
        if self.requires_auth {
            skopeo.arg(format!("--dest-creds={USER}:{PASSWORD}"));
        }
        skopeo.arg(format!("oci:{}:latest", layout.display()));
        skopeo.arg(format!("docker://{}/{name}", self.host()));
        command::run(&mut skopeo).map(drop).with_context(|| format!("push {name}"))
    }

    /// The file in which the registry stores a blob, so that a test can damage or remove it.
    pub fn blob(&self, digest: &str) -> Result<PathBuf> {
        let sum = digest.strip_prefix("sha256:").context("not a sha256")?;
        let store = self.lab.create_dir("registry")?.join("store/docker/registry/v2/blobs/sha256");
        Ok(store.join(&sum[..2]).join(sum).join("data"))
    }

    /// How often a blob was fetched from the registry.
    pub fn fetch_count(&self, digest: &str) -> Result<usize> {
        let log = self.process.lock().log();
        let request = format!("/blobs/{digest} HTTP");
        let is_one = |line: &&str| line.contains("\"GET /v2/") && line.contains(&request);
        Ok(log.lines().filter(is_one).filter(|line| line.contains("\" 200 ")).count())
    }

    /// The digest of a tag in the registry.
    pub fn digest(&self, name: &str) -> Result<String> {
        let mut skopeo = Command::new(environment::find_tool("skopeo")?);
        skopeo.args(["inspect", "--tls-verify=false", "--format", "{{.Digest}}"]);
        if self.requires_auth {
            skopeo.arg(format!("--creds={USER}:{PASSWORD}"));
        }
        skopeo.arg(format!("docker://{}/{name}", self.host()));
        Ok(command::run(&mut skopeo)?.trim().to_owned())
    }
}
