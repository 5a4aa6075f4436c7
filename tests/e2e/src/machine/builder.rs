//! What a machine is made from, before it boots.

use super::Machine;
use super::root::MachineFiles;
use super::supervisor::{MachineSupervisor, NspawnArgs};
use crate::lab::{Lab, NetworkPort};
use crate::{IgnitionRun, LoopDisk, cache};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{env, fs};

/// A machine that has not booted yet.
#[derive(Debug)]
pub struct MachineBuilder {
    lab: Lab,
    name: String,
    layers: Vec<PathBuf>,
    image: Option<String>,
    kargs: Vec<String>,
    files: Vec<(String, Vec<u8>)>,
    disk: Option<u32>,
    port: Option<NetworkPort>,
    ignition: Option<String>,
    boot_args: NspawnArgs,
}

impl Lab {
    /// A plain Debian machine with this host name.
    pub fn machine(&self, name: &str) -> MachineBuilder {
        MachineBuilder {
            lab: self.clone(),
            name: name.to_owned(),
            layers: Vec::new(),
            image: None,
            kargs: Vec::new(),
            files: Vec::new(),
            disk: None,
            port: None,
            ignition: None,
            boot_args: NspawnArgs::default(),
        }
    }

    /// An ostree machine with this host name, booted from a deployment of `debian/v1`.
    pub fn ostree_machine(&self, name: &str) -> MachineBuilder {
        MachineBuilder { image: Some("debian/v1".to_owned()), ..self.machine(name) }
    }
}

impl MachineBuilder {
    /// A file that is there before the first boot.
    #[must_use]
    pub fn file(mut self, path: &str, contents: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.to_owned(), contents.into()));
        self
    }

    /// The image that an ostree machine starts with, instead of `debian/v1`.
    #[must_use]
    pub fn image(mut self, image: &str) -> Self {
        self.image = Some(image.to_owned());
        self
    }

    /// A kernel argument of an ostree machine's first deployment.
    #[must_use]
    pub fn karg(mut self, karg: &str) -> Self {
        self.kargs.push(karg.to_owned());
        self
    }

    /// A folder laid over the base, below what the machine writes itself. The last one given is on top.
    #[must_use]
    pub fn layer(mut self, folder: impl Into<PathBuf>) -> Self {
        self.layers.insert(0, folder.into());
        self
    }

    /// Keeps what the machine writes on a disk of its own, so that a power cut loses what was not synced.
    #[must_use]
    pub fn disk(mut self, megabytes: u32) -> Self {
        self.disk = Some(megabytes);
        self
    }

    /// Lets the real Ignition set the machine up before its first boot, through the machine's own network.
    #[must_use]
    pub fn with_ignition(mut self, config: &str) -> Self {
        self.ignition = Some(config.to_owned());
        self
    }

    /// A folder of the host that the machine sees at `inside`.
    #[must_use]
    pub fn bind(mut self, outside: &Path, inside: &str) -> Self {
        self.boot_args.args.push(format!("--bind={}:{inside}", outside.display()));
        self
    }

    /// A file of the host that the machine sees, and cannot change, at `inside`.
    #[must_use]
    pub fn bind_ro(mut self, outside: &Path, inside: &str) -> Self {
        self.boot_args.args.push(format!("--bind-ro={}:{inside}", outside.display()));
        self
    }

    /// Brings our own program, as `/usr/local/bin/machinist`.
    pub fn with_machinist(self) -> Result<Self> {
        let program = crate::binary::machinist_binary()?;
        Ok(self.with_local_binary(&program, "machinist"))
    }

    /// A program of the host, which the machine finds in `/usr/local/bin`. On an ostree machine that is a link to /var.
    pub(crate) fn with_local_binary(self, program: &Path, name: &str) -> Self {
        let folder = if self.image.is_some() { "/var/usrlocal/bin" } else { "/usr/local/bin" };
        self.bind_ro(program, &format!("{folder}/{name}"))
    }

    /// Uses a port of the lab that is there already, instead of a new one.
    #[must_use]
    pub fn with_port(mut self, port: NetworkPort) -> Self {
        self.port = Some(port);
        self
    }

    /// The options of a Kubernetes node: what the kubelet and runc need from systemd-nspawn.
    #[must_use]
    pub(crate) fn for_kubelet(mut self) -> Self {
        self.boot_args.unified_cgroup = false;
        self.boot_args.args.extend([
            "--capability=CAP_SYSLOG,CAP_NET_ADMIN".to_owned(),
            "--system-call-filter=keyctl".to_owned(),
            "--bind=/dev/kmsg".to_owned(),
        ]);
        self
    }

    /// Puts the machine together and leaves it switched off.
    pub fn build(self) -> Result<Machine> {
        let lab = &self.lab;
        let dir = lab.create_dir(&self.name)?;
        let mount_point = lab.mount_point(&self.name)?;
        let disk = |size: u32| LoopDisk::new(lab, &self.name, size);
        let disk = self.disk.map(disk).transpose()?;
        let root = if let Some(image) = &self.image {
            MachineFiles::ostree(&dir, mount_point, image, &self.kargs, disk)?
        } else {
            let mut layers = self.layers;
            layers.push(cache::artifact("base")?.join("root"));
            let root = MachineFiles::overlay(&dir, mount_point, layers, disk)?;
            root.attach()?;
            root
        };
        for (path, contents) in &self.files {
            let file = root.path().join(path.trim_start_matches('/'));
            if let Some(folder) = file.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&file, contents).with_context(|| format!("write {path}"))?;
        }
        let port = self.port.map_or_else(|| lab.create_port(), Ok)?;
        if let Some(config) = &self.ignition {
            let ignition = IgnitionRun::new(&dir.join("ignition"))?.in_network(&port.namespace);
            ignition.apply(config, root.path())?;
        }
        Ok(assemble(lab, &self.name, root, port, self.boot_args))
    }

    /// Puts the machine together, switches it on and waits until it is up.
    pub fn boot(self) -> Result<Machine> {
        let machine = self.build()?;
        machine.power_on()?;
        Ok(machine)
    }
}

/// The parts of a machine around its root.
pub(super) fn assemble(
    lab: &Lab,
    name: &str,
    root: MachineFiles,
    port: NetworkPort,
    mut switch: NspawnArgs,
) -> Machine {
    let group = format!("{}/{name}", lab.name());
    let console = lab.dir().join(format!("{name}.console"));
    switch.args.extend([
        // The name is unique on the host, the host name in the lab.
        format!("--machine={}-{name}", lab.name()),
        format!("--hostname={name}"),
        format!("--network-namespace-path=/run/netns/{}", port.namespace),
    ]);
    // With this, a machine that does not come up can be looked at afterwards.
    if env::var_os("MACHINIST_DEBUG").is_some() {
        switch.args.push("--setenv=SYSTEMD_LOG_LEVEL=debug".to_owned());
    }
    let firmware = MachineSupervisor::new(group.clone(), console.clone(), switch);
    let (name, root, lab) = (name.to_owned(), Mutex::new(root), lab.clone());
    Machine { name, port, supervisor: firmware, root, console, group, lab }
}
