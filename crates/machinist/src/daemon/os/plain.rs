//! Package hosts: kernel arguments, in a file that the boot loader's tools read.
//!
//! The contents of that file at boot are kept with the daemon's own files, so that a change that has not been
//! booted can be undone, and staging it again does not apply it twice.

use std::fs;

use anyhow::{Context as _, Result};
use machinist_core::api::names::path::DAEMON_DIR;
use machinist_core::os::host::{HostFacts, os_name};
use machinist_core::os::package_host::{self as rules, BootLoader, BootLoaderFacts};
use machinist_core::os::{OsChange, OsDeployment, OsStatus, kernel_arguments};
use machinist_core::versioned;
use serde::{Deserialize, Serialize};

use super::super::root::{HostRoot, split};
use super::super::state;
use super::HostOs;
use super::command::HostCommands;

/// The contents of the file at boot.
const AT_BOOT_PATH: &str = "/etc/machine-config-daemon/machinist-kernel-arguments.json";
/// The version of that file that this version writes.
const AT_BOOT_VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ArgumentsAtBoot {
    #[serde(rename = "boot")]
    boot_id: String,
    text: Option<String>,
}

/// A package host.
#[derive(Debug)]
pub(super) struct PlainBackend {
    host: HostCommands,
    loader: BootLoader,
    /// Why kernel arguments cannot be set, if so.
    no_loader: Option<String>,
    os: String,
}

/// What was found about the boot loader.
pub(super) fn boot_loader_facts(host: &HostCommands, facts: &HostFacts) -> BootLoaderFacts {
    let entries = ["/boot/loader/entries", "/efi/loader/entries", "/boot/efi/loader/entries"];
    let has_any = |directory: &&str| {
        fs::read_dir(host.path(directory)).is_ok_and(|mut entries| entries.next().is_some())
    };
    BootLoaderFacts {
        is_image: facts.is_ostree_booted,
        has_update_grub: host.has_command("update-grub"),
        has_kernel_install: host.has_command("kernel-install"),
        has_entries: host.path(rules::KERNEL_CMDLINE).is_file() || entries.iter().any(has_any),
    }
}

impl PlainBackend {
    /// Detects what reads kernel arguments. Returns it with the reason.
    pub(super) fn new(host: HostCommands, facts: &HostFacts) -> (Self, BootLoader, String) {
        let (loader, why) = rules::detect_boot_loader(boot_loader_facts(&host, facts));
        let no_loader = (loader == BootLoader::Nobody).then(|| why.clone());
        let os = os_name(&facts.os_release).to_owned();
        (Self { host, loader, no_loader, os }, loader, why)
    }

    fn arguments_file(&self) -> Option<(&'static str, Vec<String>)> {
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        rules::loader_file(self.loader, &kernel)
    }

    fn boot_id(&self) -> Result<String> {
        state::boot_id(self.host.root())
    }

    fn root(&self) -> Result<HostRoot> {
        HostRoot::open_read_only(self.host.root())
    }

    /// The contents of the file at boot, if it was changed since.
    fn arguments_at_boot(&self) -> Result<Option<ArgumentsAtBoot>> {
        let boot = self.boot_id()?;
        let Some(text) = self.host.read_text(AT_BOOT_PATH) else { return Ok(None) };
        let read = versioned::from_json(AT_BOOT_PATH, AT_BOOT_VERSION, text.as_bytes());
        let before: Option<ArgumentsAtBoot> = versioned::ignore_damage(read)?;
        Ok(before.filter(|before| before.boot_id == boot))
    }

    /// Writes or removes the file, and runs the command that reads it.
    fn write_arguments(&self, path: &str, text: Option<&str>, command: &[String]) -> Result<()> {
        let root = self.root()?;
        match text {
            Some(text) => write(&root, path, text),
            None => root.remove(path).and_then(|()| match root.fsync_directory(split(path).0) {
                // There never was such a directory.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                synced => synced,
            }),
        }
        .with_context(|| format!("cannot write {path}"))?;
        let Some((command_name, arguments)) = command.split_first() else { return Ok(()) };
        self.host.run_logged(command_name, arguments)
    }
}

/// Writes a file that everyone may read, atomically.
fn write(root: &HostRoot, path: &str, text: &str) -> std::io::Result<()> {
    let (directory, _) = split(path);
    if !root.exists(directory)? {
        root.make_directory(directory)?;
        root.fsync_directory(split(directory).0)?;
    }
    root.write_file(path, text.as_bytes(), 0o644)
}

impl HostOs for PlainBackend {
    fn backend_name(&self) -> &'static str {
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
        if let (Some((path, _)), Some(before)) = (self.arguments_file(), self.arguments_at_boot()?)
        {
            let words = |text: Option<&str>| {
                rules::loader_file_arguments(self.loader, text.unwrap_or_default())
            };
            let (old, new) =
                (words(before.text.as_deref()), words(self.host.read_text(path).as_deref()));
            let change = kernel_arguments::change_between(&old, &new);
            next = Some(deployment(kernel_arguments::apply(&booted.kernel_arguments, &change)));
        }
        Ok(OsStatus { booted, next, kept: Vec::new() })
    }

    fn refusal(&self, change: &OsChange) -> Option<String> {
        rules::refusal(change, self.no_loader.as_deref())
    }

    fn fetch(&self, _: &OsChange) -> Result<()> {
        Ok(())
    }

    fn stage(&self, change: &OsChange, _now: bool) -> Result<()> {
        let Some((path, command)) =
            self.arguments_file().filter(|_| !change.kernel_arguments.is_empty())
        else {
            return Ok(());
        };
        let now = match self.arguments_at_boot()? {
            Some(before) => before.text,
            None => {
                let before =
                    ArgumentsAtBoot { boot_id: self.boot_id()?, text: self.host.read_text(path) };
                let root = self.root()?;
                if !root.exists(DAEMON_DIR)? {
                    root.make_directory(DAEMON_DIR)?;
                }
                state::write_private(
                    &root,
                    AT_BOOT_PATH,
                    &versioned::to_json(AT_BOOT_VERSION, &before)?,
                )
                .with_context(|| format!("cannot write {AT_BOOT_PATH}"))?;
                before.text
            }
        };
        let line = self.host.command_line().unwrap_or_default();
        let text =
            rules::loader_file_text(self.loader, now.as_deref(), &line, &change.kernel_arguments);
        self.write_arguments(path, text.as_deref(), &command)
    }

    fn unstage(&self) -> Result<()> {
        let (Some((path, command)), Some(before)) =
            (self.arguments_file(), self.arguments_at_boot()?)
        else {
            return Ok(());
        };
        self.write_arguments(path, before.text.as_deref(), &command)?;
        self.confirm()
    }

    fn confirm(&self) -> Result<()> {
        self.root()?.remove(AT_BOOT_PATH).with_context(|| format!("cannot remove {AT_BOOT_PATH}"))
    }
}

#[cfg(test)]
mod tests;
