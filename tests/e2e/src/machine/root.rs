//! The root of a machine, in a directory or on its own disk: an overlay on the cached base, or an ostree deployment.

use super::ostree::Sysroot;
use super::supervisor::{BootTarget, BootTargetSource};
use crate::command::run;
use crate::faults::LoopDisk;
use crate::mounts::is_mounted;
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The files of a machine.
#[derive(Debug)]
pub(super) struct MachineFiles {
    kind: RootKind,
    /// Where the host sees the root; for ostree only while the machine is being created.
    merged: PathBuf,
    disk: Option<LoopDisk>,
}

#[derive(Debug)]
enum RootKind {
    /// The layers, the uppermost first, and the directory that holds what the machine writes.
    Overlay {
        layers: Vec<PathBuf>,
        store: PathBuf,
    },
    Ostree(Arc<Sysroot>),
}

impl MachineFiles {
    /// An overlay whose first layer is the uppermost.
    pub(super) fn overlay(
        dir: &Path,
        merged: PathBuf,
        layers: Vec<PathBuf>,
        disk: Option<LoopDisk>,
    ) -> Result<Self> {
        let store = disk.as_ref().map_or_else(|| dir.join("store"), |disk| disk.path().to_owned());
        Ok(Self { kind: RootKind::Overlay { layers, store }, merged, disk })
    }

    /// A deployment of an image from the cached repository.
    pub(super) fn ostree(
        dir: &Path,
        merged: PathBuf,
        image: &str,
        kargs: &[String],
        disk: Option<LoopDisk>,
    ) -> Result<Self> {
        let store = disk.as_ref().map_or(dir, LoopDisk::path);
        let sysroot = Sysroot::create(&store.join("sysroot"), dir, image, kargs, false)?;
        sysroot.mount_deployment(&merged)?;
        Ok(Self { kind: RootKind::Ostree(Arc::new(sysroot)), merged, disk })
    }

    /// Mounts whatever the machine needs that is not mounted yet.
    pub(super) fn attach(&self) -> Result<()> {
        if let Some(disk) = &self.disk {
            disk.attach()?;
        }
        match &self.kind {
            RootKind::Overlay { layers, store } if !is_mounted(&self.merged)? => {
                mount_overlay(layers, store, &self.merged)
            }
            RootKind::Overlay { .. } => Ok(()),
            RootKind::Ostree(_) => Sysroot::unmount_deployment(&self.merged),
        }
    }

    /// Unmounts everything.
    pub(super) fn detach(&self) -> Result<()> {
        match &self.kind {
            RootKind::Overlay { .. } if is_mounted(&self.merged)? => {
                run(Command::new("umount").arg(&self.merged))?;
            }
            RootKind::Overlay { .. } => {}
            RootKind::Ostree(_) => Sysroot::unmount_deployment(&self.merged)?,
        }
        self.disk.as_ref().map_or(Ok(()), LoopDisk::detach)
    }

    /// Cuts the disk: nothing reaches it from now on.
    pub(super) fn power_cut(&self) -> Result<()> {
        self.disk.as_ref().map_or(Ok(()), LoopDisk::power_cut)
    }

    /// The disk, if it has its own.
    pub(super) fn disk(&self) -> Option<&LoopDisk> {
        self.disk.as_ref()
    }

    /// The root as the host sees it, before the first boot.
    pub(super) fn path(&self) -> &Path {
        &self.merged
    }

    /// The sysroot of an ostree machine.
    pub(super) fn sysroot(&self) -> Option<&Sysroot> {
        match &self.kind {
            RootKind::Overlay { .. } => None,
            RootKind::Ostree(sysroot) => Some(sysroot),
        }
    }

    /// What to start at each boot.
    pub(super) fn loader(&self) -> BootTargetSource {
        match &self.kind {
            RootKind::Overlay { .. } => {
                let start =
                    BootTarget { args: vec![format!("--directory={}", self.merged.display())] };
                Arc::new(move || Ok(start.clone()))
            }
            RootKind::Ostree(sysroot) => {
                let sysroot = Arc::clone(sysroot);
                Arc::new(move || sysroot.boot_target())
            }
        }
    }
}

fn mount_overlay(layers: &[PathBuf], store: &Path, merged: &Path) -> Result<()> {
    let (upper, work) = (store.join("upper"), store.join("work"));
    fs::create_dir_all(&upper)?;
    fs::create_dir_all(&work)?;
    let layers: Vec<_> = layers.iter().map(|layer| layer.to_string_lossy()).collect();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        layers.join(":"),
        upper.display(),
        work.display()
    );
    let mut mount = Command::new("mount");
    mount.args(["-t", "overlay", "overlay", "-o", &options]).arg(merged);
    run(&mut mount).map(drop)
}
