//! The configuration of a virtual machine before it boots.

use super::disk::DiskImage;
use super::{EMULATOR, FAST_BOOT_ARGS, VirtualMachine, partitions};
use crate::command::run;
use crate::environment;
use crate::lab::Lab;
use crate::machine::Sysroot;
use anyhow::{Context, Result};
use parking_lot::Mutex;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A virtual machine without a disk.
#[derive(Debug)]
pub struct QemuBuilder {
    lab: Lab,
    name: String,
    dir: PathBuf,
    kargs: Vec<String>,
    images: Vec<String>,
    binaries: Vec<PathBuf>,
    files: Vec<(String, Vec<u8>)>,
    boot_loader: bool,
}

impl Lab {
    /// A virtual machine with this host name, whose disk has a deployment of `debian/v1`.
    pub fn qemu(&self, name: &str) -> Result<QemuBuilder> {
        environment::find_tool(EMULATOR)?;
        Ok(QemuBuilder {
            lab: self.clone(),
            name: name.to_owned(),
            dir: self.create_dir(name)?,
            kargs: vec![format!("systemd.hostname={name}")],
            images: Vec::new(),
            binaries: Vec::new(),
            files: Vec::new(),
            boot_loader: false,
        })
    }
}

impl QemuBuilder {
    /// A kernel argument of the deployment.
    #[must_use]
    pub fn karg(mut self, karg: &str) -> Self {
        self.kargs.push(karg.to_owned());
        self
    }

    /// Adds another image to the machine's repository, such as `debian/v2`.
    #[must_use]
    pub fn image(mut self, image: &str) -> Self {
        self.images.push(image.to_owned());
        self
    }

    /// Adds a file before the first boot. It must not be below /usr or /var.
    #[must_use]
    pub fn file(mut self, path: &str, contents: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.to_owned(), contents.into()));
        self
    }

    /// Installs our binary as `/usr/local/bin/machinist`.
    pub fn with_machinist(mut self) -> Result<Self> {
        let binary = self.dir.join("machinist");
        // Most of the binary is debug information, and an emulated machine reads every page slowly.
        let mut strip = Command::new(environment::find_tool("strip")?);
        run(strip.arg("-o").arg(&binary).arg(crate::binary::machinist_binary()?))?;
        self.binaries.push(binary);
        Ok(self)
    }

    /// Installs a script in `/usr/local/bin`.
    pub fn script(mut self, name: &str, text: &str) -> Result<Self> {
        let script = self.dir.join(name);
        fs::write(&script, text)?;
        fs::set_permissions(&script, Permissions::from_mode(0o755))?;
        self.binaries.push(script);
        Ok(self)
    }

    /// Installs a real boot loader on the disk, which reads the configuration that ostree writes for it.
    #[must_use]
    pub fn boot_loader(mut self) -> Self {
        self.boot_loader = true;
        self
    }

    /// Creates the disk and leaves the machine switched off.
    pub fn build(self) -> Result<VirtualMachine> {
        let (image, port) = (self.disk()?, self.lab.create_port()?);
        let Self { lab, name, dir, boot_loader, .. } = self;
        Ok(VirtualMachine { name, dir, image, boot_loader, port, process: Mutex::new(None), lab })
    }

    fn disk(&self) -> Result<DiskImage> {
        if self.boot_loader {
            let fast = FAST_BOOT_ARGS.split(' ').map(str::to_owned);
            let kargs: Vec<_> = self.kargs.iter().cloned().chain(fast).collect();
            return partitions::make(&self.lab, &self.dir, &self.name, |root| {
                self.fill_sysroot(&Sysroot::create(root, &self.dir, "debian/v1", &kargs, true)?)
            });
        }
        let dir = self.dir.join("sysroot");
        self.fill_sysroot(&Sysroot::create(&dir, &self.dir, "debian/v1", &self.kargs, false)?)?;
        DiskImage::create(&self.dir.join("disk.raw"), &dir)
    }

    fn fill_sysroot(&self, sysroot: &Sysroot) -> Result<()> {
        self.images.iter().try_for_each(|image| sysroot.pull(image))?;
        let binaries: Vec<&Path> = self.binaries.iter().map(PathBuf::as_path).collect();
        sysroot.install_binaries(&binaries)?;
        let root = sysroot.default_deployment()?;
        if self.boot_loader {
            fs::write(root.join("etc/fstab"), "LABEL=boot /boot ext2 defaults 0 0\n")?;
        }
        for (path, contents) in &self.files {
            let file = root.join(path.trim_start_matches('/'));
            fs::create_dir_all(file.parent().context("a file without a parent directory")?)?;
            fs::write(&file, contents).with_context(|| format!("write {path}"))?;
        }
        Ok(())
    }
}
