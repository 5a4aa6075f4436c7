//! The real Ignition: fetches a config and writes its files, users and units into a root.
//!
//! [`crate::machine::MachineBuilder::with_ignition`] runs it on a machine before its first boot, through the machine's
//! own network.

use crate::pki::TestCa;
use crate::{cache, command, environment};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian installs the binary; it is not on the PATH.
const BINARY: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";

/// One run of Ignition against a root.
#[derive(Debug)]
pub struct IgnitionRun {
    binary: PathBuf,
    work: PathBuf,
    namespace: Option<String>,
}

impl IgnitionRun {
    /// A run of Debian's Ignition that keeps its files in `work`.
    pub fn new(work: &Path) -> Result<Self> {
        Self::with_binary(PathBuf::from(BINARY), work)
    }

    /// A run of another version, which reads a newer specification: `v2.22.0` 3.5, `v2.26.0` 3.6.
    pub fn with_version(version: &str, work: &Path) -> Result<Self> {
        Self::with_binary(
            cache::artifact("ignition")?.join(format!("bin/ignition-{version}")),
            work,
        )
    }

    fn with_binary(binary: PathBuf, work: &Path) -> Result<Self> {
        if !binary.exists() {
            bail!("environment: ignition missing, run make testkit");
        }
        let shims = work.join("bin");
        fs::create_dir_all(&shims)?;
        // Ignition relabels files even where SELinux is off. This makes it a no-op.
        let setfiles = shims.join("setfiles");
        fs::write(&setfiles, "#!/bin/sh\ncat >/dev/null\n")?;
        fs::set_permissions(&setfiles, fs::Permissions::from_mode(0o755))?;
        Ok(Self { binary, work: work.to_owned(), namespace: None })
    }

    /// Fetches from inside a network namespace.
    #[must_use]
    pub fn in_network(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Fetches everything that `config` refers to. Returns the config that would be applied.
    pub fn fetch(&self, config: &str) -> Result<Value> {
        fs::write(self.work.join("config.ign"), config)?;
        // A repeated run must not find what the previous one fetched.
        let _ = fs::remove_file(self.work.join("cache.json"));
        self.stage("fetch", &self.work)?;
        let fetched = fs::read(self.work.join("cache.json")).context("read what was fetched")?;
        Ok(serde_json::from_slice(&fetched)?)
    }

    /// Fetches, and writes files, users and units into a root.
    pub fn apply(&self, config: &str, root: &Path) -> Result<()> {
        self.fetch(config)?;
        // Without this file Ignition fails; with it, ostree would look for the policy that it names.
        let file = root.join("etc/selinux/config");
        let is_ours = !file.exists();
        if is_ours {
            fs::create_dir_all(root.join("etc/selinux"))?;
            fs::write(&file, "SELINUX=disabled\nSELINUXTYPE=targeted\n")?;
        }
        self.stage("files", root)?;
        if is_ours {
            fs::remove_file(file)?;
        }
        Ok(())
    }

    fn stage(&self, stage: &str, root: &Path) -> Result<()> {
        let file = |name: &str| self.work.join(name);
        let mut command = match &self.namespace {
            None => Command::new(&self.binary),
            Some(namespace) => {
                let mut ip = Command::new(environment::find_tool("ip")?);
                ip.args(["netns", "exec", namespace]).arg(&self.binary);
                ip
            }
        };
        command.args(["-platform", "file", "-log-to-stdout", "-stage", stage, "-root"]).arg(root);
        command.arg("-config-cache").arg(file("cache.json"));
        command.arg("-state-file").arg(file("state")).arg("-neednet").arg(file("neednet"));
        command.args(["-fetch-timeout", "20s"]);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("IGNITION_CONFIG_FILE", file("config.ign"));
        command.env("PATH", format!("{}:{path}", file("bin").display()));
        command::run(&mut command).map(drop).with_context(|| format!("ignition's stage {stage}"))
    }
}

/// A pointer config: merge the config at `url`, trusting `authority` for TLS.
pub fn pointer_config(url: &str, authority: Option<&TestCa>) -> String {
    let mut ignition = json!({"version": "3.2.0", "config": {"merge": [{"source": url}]}});
    if let Some(authority) = authority {
        ignition["security"] =
            json!({"tls": {"certificateAuthorities": [{"source": authority.data_url()}]}});
    }
    json!({"ignition": ignition}).to_string()
}
