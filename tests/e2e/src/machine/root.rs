//! The root of a machine, in a folder or on a disk of its own: an overlay on the cached base, or an ostree deployment.

use super::firmware::{Loader, Start};
use super::ostree::Sysroot;
use crate::command::run;
use crate::power::Disk;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Where a machine's files are.
#[derive(Debug)]
pub(super) struct Root {
    kind: Kind,
    /// Where the root can be seen from the host; for ostree only while the machine is put together.
    merged: PathBuf,
    disk: Option<Disk>,
}

#[derive(Debug)]
enum Kind {
    /// The layers, the uppermost first, and the folder that holds what the machine writes.
    Overlay {
        layers: Vec<PathBuf>,
        store: PathBuf,
    },
    Ostree(Arc<Sysroot>),
}

impl Root {
    /// An overlay: the first layer is the uppermost.
    pub(super) fn overlay(
        dir: &Path,
        merged: PathBuf,
        layers: Vec<PathBuf>,
        disk: Option<Disk>,
    ) -> Result<Self> {
        let store = disk.as_ref().map_or_else(|| dir.join("store"), |disk| disk.path().to_owned());
        Ok(Self { kind: Kind::Overlay { layers, store }, merged, disk })
    }

    /// A deployment of an image from the cached repository.
    pub(super) fn ostree(
        dir: &Path,
        merged: PathBuf,
        image: &str,
        kargs: &[String],
        disk: Option<Disk>,
    ) -> Result<Self> {
        let store = disk.as_ref().map_or(dir, Disk::path);
        let sysroot = Sysroot::make(&store.join("sysroot"), dir, image, kargs, false)?;
        sysroot.show(&merged)?;
        Ok(Self { kind: Kind::Ostree(Arc::new(sysroot)), merged, disk })
    }

    /// Mounts whatever the machine needs and is not mounted.
    pub(super) fn attach(&self) -> Result<()> {
        if let Some(disk) = &self.disk {
            disk.attach()?;
        }
        match &self.kind {
            Kind::Overlay { layers, store } if !is_mounted(&self.merged)? => {
                mount_overlay(layers, store, &self.merged)
            }
            Kind::Overlay { .. } => Ok(()),
            Kind::Ostree(_) => Sysroot::hide(&self.merged),
        }
    }

    /// Unmounts everything.
    pub(super) fn detach(&self) -> Result<()> {
        match &self.kind {
            Kind::Overlay { .. } if is_mounted(&self.merged)? => {
                run(Command::new("umount").arg(&self.merged))?;
            }
            Kind::Overlay { .. } => {}
            Kind::Ostree(_) => Sysroot::hide(&self.merged)?,
        }
        self.disk.as_ref().map_or(Ok(()), Disk::detach)
    }

    /// From now on nothing reaches the disk.
    pub(super) fn cut(&self) -> Result<()> {
        self.disk.as_ref().map_or(Ok(()), Disk::cut)
    }

    /// The root as the host sees it, before the first boot.
    pub(super) fn path(&self) -> &Path {
        &self.merged
    }

    /// The ostree part, where there is one.
    pub(super) fn sysroot(&self) -> Option<&Sysroot> {
        match &self.kind {
            Kind::Overlay { .. } => None,
            Kind::Ostree(sysroot) => Some(sysroot),
        }
    }

    /// What is started at each boot.
    pub(super) fn loader(&self) -> Loader {
        match &self.kind {
            Kind::Overlay { .. } => {
                let start = Start { args: vec![format!("--directory={}", self.merged.display())] };
                Arc::new(move || Ok(start.clone()))
            }
            Kind::Ostree(sysroot) => {
                let sysroot = Arc::clone(sysroot);
                Arc::new(move || sysroot.start())
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

/// Whether something is mounted exactly there.
pub(crate) fn is_mounted(path: &Path) -> Result<bool> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("read the mounts")?;
    let path = path.to_string_lossy();
    Ok(mounts.lines().any(|line| line.split(' ').nth(4) == Some(&path)))
}
