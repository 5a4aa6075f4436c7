//! The configuration of a machine before it boots.

use super::Machine;
use super::root::MachineFiles;
use super::supervisor::{MachineSupervisor, NspawnArgs};
use crate::lab::{Lab, NetworkPort};
use crate::{IgnitionRun, LoopDisk, cache};
use anyhow::{Context, Result};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
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
    has_quotas: bool,
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
            has_quotas: false,
            port: None,
            ignition: None,
            boot_args: NspawnArgs::default(),
        }
    }

    /// An ostree machine with this host name that boots a deployment of `debian/v1`.
    pub fn ostree_machine(&self, name: &str) -> MachineBuilder {
        MachineBuilder { image: Some("debian/v1".to_owned()), ..self.machine(name) }
    }
}

impl MachineBuilder {
    /// Adds a file before the first boot.
    #[must_use]
    pub fn file(mut self, path: &str, contents: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.to_owned(), contents.into()));
        self
    }

    /// The initial image of an ostree machine, instead of `debian/v1`.
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

    /// Adds a directory as a layer over the base, below what the machine writes itself. The last layer is on top.
    #[must_use]
    pub fn layer(mut self, dir: impl Into<PathBuf>) -> Self {
        self.layers.insert(0, dir.into());
        self
    }

    /// Stores what the machine writes on its own disk, so that a power cut loses what was not synced.
    #[must_use]
    pub fn disk(mut self, megabytes: u32) -> Self {
        self.disk = Some(megabytes);
        self
    }

    /// The same on a disk with quotas, without a limit at first ([`Machine::set_quota`]).
    #[must_use]
    pub fn disk_with_quotas(mut self, megabytes: u32) -> Self {
        self.has_quotas = true;
        self.disk(megabytes)
    }

    /// Runs the real Ignition on the machine before its first boot, through the machine's own network.
    #[must_use]
    pub fn with_ignition(mut self, config: &str) -> Self {
        self.ignition = Some(config.to_owned());
        self
    }

    /// Mounts a directory of the host at `inside`.
    #[must_use]
    pub fn bind(mut self, outside: &Path, inside: &str) -> Self {
        self.boot_args.args.push(format!("--bind={}:{inside}", outside.display()));
        self
    }

    /// Mounts a file of the host read-only at `inside`.
    #[must_use]
    pub fn bind_ro(mut self, outside: &Path, inside: &str) -> Self {
        self.boot_args.args.push(format!("--bind-ro={}:{inside}", outside.display()));
        self
    }

    /// Installs our binary as `/usr/local/bin/machinist`.
    pub fn with_machinist(self) -> Result<Self> {
        let binary = crate::binary::machinist_binary()?;
        Ok(self.with_local_binary(&binary, "machinist"))
    }

    /// Installs a binary of the host in `/usr/local/bin`. On an ostree machine that is a link into /var.
    pub(crate) fn with_local_binary(self, binary: &Path, name: &str) -> Self {
        let dir = if self.image.is_some() { "/var/usrlocal/bin" } else { "/usr/local/bin" };
        self.bind_ro(binary, &format!("{dir}/{name}"))
    }

    /// Uses an existing port of the lab instead of a new one.
    #[must_use]
    pub fn with_port(mut self, port: NetworkPort) -> Self {
        self.port = Some(port);
        self
    }

    /// The options of a Kubernetes node: what the kubelet and runc require of systemd-nspawn.
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

    /// Creates the machine and leaves it switched off.
    pub fn build(self) -> Result<Machine> {
        let lab = &self.lab;
        let dir = lab.create_dir(&self.name)?;
        let mount_point = lab.mount_point(&self.name)?;
        let disk = |size: u32| match self.has_quotas {
            true => LoopDisk::with_quotas(lab, &self.name, size),
            false => LoopDisk::new(lab, &self.name, size),
        };
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
            if let Some(dir) = file.parent() {
                fs::create_dir_all(dir)?;
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

    /// Lets the machine change its own network.
    #[must_use]
    pub fn with_network_admin(mut self) -> Self {
        self.boot_args.args.push("--capability=CAP_NET_ADMIN".to_owned());
        self
    }

    /// Creates the machine, switches it on and waits until it is up.
    pub fn boot(self) -> Result<Machine> {
        let machine = self.build()?;
        machine.power_on()?;
        Ok(machine)
    }
}

/// The parts of a machine apart from its root.
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
    // Allows a machine that does not come up to be inspected afterwards.
    if env::var_os("MACHINIST_DEBUG").is_some() {
        switch.args.push("--setenv=SYSTEMD_LOG_LEVEL=debug".to_owned());
    }
    let firmware = MachineSupervisor::new(group.clone(), console.clone(), switch);
    let (name, root, lab) = (name.to_owned(), Mutex::new(root), lab.clone());
    Machine { name, port, supervisor: firmware, root, console, group, lab }
}
