//! Hosts that are made of packages: kernel arguments, in a file that the boot loader's tools read.
//!
//! What stood in that file when the machine was booted is kept beside the daemon's own files, so that
//! a change that has not been booted can be taken back, and be made again without being made twice.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, Result};
use machinist_core::api::names::path::DAEMON_DIR;
use machinist_core::os::host::{HostFacts, os_name};
use machinist_core::os::package_host::{self as rules, BootLoader, BootLoaderFacts};
use machinist_core::os::{OsChange, OsDeployment, OsStatus, kernel_arguments};
use serde::{Deserialize, Serialize};

use super::super::root::{Root, split};
use super::super::state;
use super::Os;
use super::run::Host;

/// What stood in the file when the machine was booted.
const BEFORE: &str = "/etc/machine-config-daemon/machinist-kernel-arguments.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Before {
    boot: String,
    text: Option<String>,
}

/// A host of packages.
#[derive(Debug)]
pub(super) struct Plain {
    host: Host,
    loader: BootLoader,
    os: String,
}

impl Plain {
    /// Looks for who reads kernel arguments; says who, and why.
    pub(super) fn new(host: Host, facts: &HostFacts) -> (Self, BootLoader, String) {
        let entries = ["/boot/loader/entries", "/efi/loader/entries", "/boot/efi/loader/entries"];
        let has_any = |folder: &&str| {
            fs::read_dir(host.path(folder)).is_ok_and(|mut entries| entries.next().is_some())
        };
        let sight = BootLoaderFacts {
            is_image: facts.is_ostree_booted,
            has_update_grub: host.has("update-grub"),
            has_kernel_install: host.has("kernel-install"),
            has_entries: host.path(rules::KERNEL_CMDLINE).is_file() || entries.iter().any(has_any),
        };
        let (loader, why) = rules::detect_boot_loader(sight);
        let os = os_name(&facts.os_release).to_owned();
        (Self { host, loader, os }, loader, why)
    }

    fn place(&self) -> Option<(&'static str, Vec<String>)> {
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        rules::loader_file(self.loader, &kernel)
    }

    fn boot(&self) -> Result<String> {
        state::boot_id(self.host.root())
    }

    fn root(&self) -> Result<Root> {
        Root::to_look_at(self.host.root())
    }

    /// What stood in the file when the machine was booted, where it has been changed since.
    fn before(&self) -> Result<Option<Before>> {
        let boot = self.boot()?;
        let Some(text) = self.host.text(BEFORE) else { return Ok(None) };
        Ok(serde_json::from_str::<Before>(&text).ok().filter(|before| before.boot == boot))
    }

    /// Writes the file, or removes it, and has it read.
    fn put(&self, path: &str, text: Option<&str>, command: &[String]) -> Result<()> {
        let root = self.root()?;
        match text {
            Some(text) => write(&root, path, text),
            None => root.remove(path),
        }
        .with_context(|| format!("cannot write {path}"))?;
        let Some((program, arguments)) = command.split_first() else { return Ok(()) };
        self.host.act(program, arguments)
    }
}

/// Writes a file that everybody may read: all of it or nothing.
fn write(root: &Root, path: &str, text: &str) -> std::io::Result<()> {
    let (folder, _) = split(path);
    if !root.exists(folder)? {
        root.make_folder(folder)?;
        root.sync_folder(split(folder).0)?;
    }
    let new = format!("{path}.machinist-new");
    let mut file = root.create(&new)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.sync_all()?;
    root.rename(&new, path)?;
    root.sync_folder(folder)
}

impl Os for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn status(&self) -> Result<OsStatus> {
        let line = self.host.command_line().unwrap_or_default();
        let deployment = |arguments: Vec<String>| OsDeployment {
            version: Some(self.os.clone()),
            kernel_arguments: arguments,
            ..OsDeployment::default()
        };
        let booted = deployment(kernel_arguments::split(&line));
        let mut next = None;
        if let (Some((path, _)), Some(before)) = (self.place(), self.before()?) {
            let words = |text: Option<&str>| {
                rules::loader_file_arguments(self.loader, text.unwrap_or_default())
            };
            let (old, new) =
                (words(before.text.as_deref()), words(self.host.text(path).as_deref()));
            let change = kernel_arguments::change_between(&old, &new);
            next = Some(deployment(kernel_arguments::apply(&booted.kernel_arguments, &change)));
        }
        Ok(OsStatus { booted, next, kept: Vec::new() })
    }

    fn refusal(&self, change: &OsChange) -> Option<String> {
        rules::refusal(change)
    }

    fn fetch(&self, _: &OsChange) -> Result<()> {
        Ok(())
    }

    fn stage(&self, change: &OsChange, _now: bool) -> Result<()> {
        let Some((path, command)) = self.place().filter(|_| !change.kernel_arguments.is_empty())
        else {
            return Ok(());
        };
        let now = match self.before()? {
            Some(before) => before.text,
            None => {
                let before = Before { boot: self.boot()?, text: self.host.text(path) };
                let root = self.root()?;
                if !root.exists(DAEMON_DIR)? {
                    root.make_folder(DAEMON_DIR)?;
                }
                state::write(&root, BEFORE, &serde_json::to_vec(&before)?)
                    .with_context(|| format!("cannot write {BEFORE}"))?;
                before.text
            }
        };
        let line = self.host.command_line().unwrap_or_default();
        let text =
            rules::loader_file_text(self.loader, now.as_deref(), &line, &change.kernel_arguments);
        self.put(path, text.as_deref(), &command)
    }

    fn unstage(&self) -> Result<()> {
        let (Some((path, command)), Some(before)) = (self.place(), self.before()?) else {
            return Ok(());
        };
        self.put(path, before.text.as_deref(), &command)?;
        self.confirm()
    }

    fn confirm(&self) -> Result<()> {
        self.root()?.remove(BEFORE).with_context(|| format!("cannot remove {BEFORE}"))
    }
}

#[cfg(test)]
mod tests;
