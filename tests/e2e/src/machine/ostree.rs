//! The sysroot of an ostree machine: its repository, deployments and loader entries.

use super::loader_entry::BlsEntry;
use super::supervisor::BootTarget;
use crate::cache;
use crate::command::{run, run_args};
use crate::mounts::is_mounted;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The name of the stateroot.
const OS_NAME: &str = "debian";

/// A sysroot with at least one deployment.
#[derive(Debug)]
pub(crate) struct Sysroot {
    path: PathBuf,
    /// The kernel arguments of the current boot, mounted over /proc/cmdline.
    cmdline: PathBuf,
    /// An empty file, mounted at /run/ostree-booted, where ostree looks for it.
    booted: PathBuf,
    selected_entry: AtomicUsize,
}

impl Sysroot {
    /// Creates a sysroot with a deployment of an image from the cached repository. Loader entries are enough, unless a
    /// real boot loader must read the configuration that ostree writes for it.
    pub(crate) fn create(
        path: &Path,
        dir: &Path,
        image: &str,
        kargs: &[String],
        boot_loader: bool,
    ) -> Result<Self> {
        let (cmdline, booted) = (dir.join("cmdline"), dir.join("booted"));
        fs::write(&booted, "")?;
        fs::create_dir_all(path)?;
        let chosen = AtomicUsize::new(0);
        let sysroot = Self { path: path.to_owned(), cmdline, booted, selected_entry: chosen };
        let at = format!("--sysroot={}", path.display());
        run(Command::new("ostree").args(["admin", "init-fs", "--modern"]).arg(path))?;
        run_args("ostree", ["admin", "os-init", OS_NAME, &at])?;
        if boot_loader {
            sysroot.prepare_syslinux()?;
        } else {
            let repo = sysroot.repo();
            run_args("ostree", ["config", &repo, "set", "sysroot.bootloader", "none"])?;
        }
        sysroot.pull(image)?;
        let os = format!("--os={OS_NAME}");
        let mut deploy = Command::new("ostree");
        deploy.args(["admin", "deploy", &at, &os, "--karg=root=LABEL=root", "--karg=rw"]);
        deploy.args(kargs.iter().map(|karg| format!("--karg={karg}"))).arg(image);
        run(&mut deploy)?;
        fs::create_dir_all(sysroot.var().join("log/journal"))?;
        Ok(sysroot)
    }

    /// Creates the files that make ostree write a syslinux configuration in addition to the loader entries.
    fn prepare_syslinux(&self) -> Result<()> {
        let boot = self.path.join("boot");
        fs::create_dir_all(boot.join("loader.0"))?;
        fs::create_dir_all(boot.join("syslinux"))?;
        fs::write(boot.join("loader.0/syslinux.cfg"), "")?;
        symlink("loader.0", boot.join("loader"))?;
        symlink("../loader/syslinux.cfg", boot.join("syslinux/syslinux.cfg"))?;
        Ok(())
    }

    /// The deployment that the default entry names.
    pub(crate) fn default_deployment(&self) -> Result<PathBuf> {
        self.deployment(self.entries()?.first().context("no loader entry")?)
    }

    fn repo(&self) -> String {
        format!("--repo={}/ostree/repo", self.path.display())
    }

    fn var(&self) -> PathBuf {
        self.path.join("ostree/deploy").join(OS_NAME).join("var")
    }

    /// Pulls an image into the repository, with hard links if it is on the same file system.
    pub(crate) fn pull(&self, image: &str) -> Result<()> {
        // The first part of an image's name names its repository.
        let artifact = match image.split_once('/') {
            Some(("debian-node", _)) => "ostree-node",
            Some(("debian-small", _)) => "ostree-small",
            _ => "ostree",
        };
        let from = cache::artifact(artifact)?.join("repo");
        let mut pull = Command::new("ostree");
        pull.arg(self.repo()).arg("pull-local").arg(from).arg(image);
        run(&mut pull).map(drop).with_context(|| format!("pull {image}"))
    }

    /// Copies binaries to the directory behind the machine's `/usr/local/bin`.
    pub(crate) fn install_binaries(&self, binaries: &[&Path]) -> Result<()> {
        let dir = self.var().join("usrlocal/bin");
        fs::create_dir_all(&dir)?;
        for binary in binaries {
            let name = binary.file_name().context("a binary without a name")?;
            fs::copy(binary, dir.join(name))?;
        }
        Ok(())
    }

    /// Selects an entry for the next start.
    pub(super) fn select_entry(&self, index: usize) {
        self.selected_entry.store(index, Ordering::Relaxed);
    }

    /// The loader entries, the default first.
    fn entries(&self) -> Result<Vec<BlsEntry>> {
        let dir = self.path.join("boot/loader/entries");
        let mut entries = Vec::new();
        for file in fs::read_dir(&dir).context("read the loader entries")? {
            entries.push(BlsEntry::parse(&fs::read_to_string(file?.path())?)?);
        }
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.version));
        Ok(entries)
    }

    /// The deployment that an entry names.
    fn deployment(&self, entry: &BlsEntry) -> Result<PathBuf> {
        let link = entry.options.split(' ').find_map(|word| word.strip_prefix("ostree="));
        let link = link.context("a loader entry without ostree=")?;
        let target = self.path.join(link.trim_start_matches('/'));
        target.canonicalize().with_context(|| format!("follow {link}"))
    }

    /// What the loader starts: the default entry, unless a test has selected another one.
    pub(super) fn boot_target(&self) -> Result<BootTarget> {
        let entries = self.entries()?;
        let index = self.selected_entry.swap(0, Ordering::Relaxed);
        let Some(entry) = entries.get(index) else {
            bail!("there is no loader entry {index}, only {}", entries.len())
        };
        let deployment = self.deployment(entry)?;
        fs::write(&self.cmdline, format!("{}\n", entry.options))?;
        let (root, sysroot) = (deployment.display(), self.path.display());
        Ok(BootTarget {
            args: vec![
                format!("--directory={root}"),
                format!("--bind={sysroot}:/sysroot"),
                format!("--bind={sysroot}/boot:/boot"),
                format!("--bind={}:/var", self.var().display()),
                format!("--bind-ro={root}/usr:/usr"),
                format!("--bind-ro={}:/run/ostree-booted", self.booted.display()),
                format!("--bind-ro={}:/run/testkit-cmdline", self.cmdline.display()),
                format!("--setenv=SYSTEMD_PROC_CMDLINE={}", entry.options),
            ],
        })
    }

    /// Mounts the default deployment with its /var at a mount point, so that the host can write to it.
    pub(super) fn mount_deployment(&self, at: &Path) -> Result<()> {
        let deployment = self.default_deployment()?;
        run(Command::new("mount").arg("--bind").arg(deployment).arg(at))?;
        run(Command::new("mount").arg("--bind").arg(self.var()).arg(at.join("var"))).map(drop)
    }

    /// Undoes [`Sysroot::mount_deployment`].
    pub(super) fn unmount_deployment(at: &Path) -> Result<()> {
        for target in [at.join("var"), at.to_owned()] {
            if is_mounted(&target)? {
                run(Command::new("umount").arg(&target))?;
            }
        }
        Ok(())
    }
}
