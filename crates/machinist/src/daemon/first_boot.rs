//! The first boot: does what Ignition could not, joins the API server where no kubelet does, and says whether
//! the machine has to reboot. Called by `machinist firstboot`.
//!
//! It may be interrupted at any time: the next run checks everything again, and the file that says that
//! something is left to do is removed last.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow};
use machinist_core::api::MachineConfig;
use machinist_core::api::names::path::{ENCAPSULATED, ENCAPSULATED_BACKUP, KUBECONFIG};
use machinist_core::apply::FsTree as _;
use machinist_core::os::first_boot::{FirstBootHost, drop_kernel_arguments, first_boot_change};
use serde::Serialize;

use super::join::{self, JoinOptions, credentials, paths::JoinPaths};
use super::once;
use super::os::detect;
use super::private_files;
use super::root::{HostRoot, split};
use crate::durable_file;

/// How to complete a first boot.
#[derive(Debug)]
pub(crate) struct FirstBootOptions {
    /// The root of the machine.
    pub(crate) root: PathBuf,
    /// The config, if it is not the one that the server has written.
    pub(crate) config: Option<MachineConfig>,
    /// Whether to write files, units and users too, because no Ignition did.
    pub(crate) write_files: bool,
    /// How to join, where no kubelet registers a Node.
    pub(crate) join: Option<JoinOptions>,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FirstBootReport {
    /// The config; `None` if nothing was left to do.
    pub(crate) config: Option<String>,
    /// What changes with the next boot; `None` if the OS is as the config says.
    pub(crate) change: Option<String>,
    /// How many files, links and directories were written in Ignition's place.
    pub(crate) written: usize,
    /// The Node with which the machine joined.
    pub(crate) node: Option<String>,
}

impl FirstBootReport {
    /// Whether something takes effect only with the next boot.
    pub(crate) fn needs_reboot(&self) -> bool {
        self.change.is_some() || self.written > 0
    }
}

/// The machine cannot be as its config says, and a retry does not help.
#[derive(Debug, thiserror::Error)]
#[error("the first boot cannot be completed: {0}")]
pub(crate) struct FirstBootRefused(String);

/// Completes the first boot, except for the reboot.
pub(crate) async fn complete(options: &FirstBootOptions) -> Result<FirstBootReport> {
    let root = HostRoot::open(&options.root)?;
    private_files::restrict(&root)?;
    let config =
        options.config.clone().map_or_else(|| served_config(&root), |config| Ok(Some(config)))?;
    let Some(config) = config else {
        return Ok(FirstBootReport { config: None, change: None, written: 0, node: None });
    };
    let name = config.metadata.name.clone().unwrap_or_default();
    let backend = detect::detect(&options.root);
    let status = backend.os.status().context("cannot read the booted operating system")?;
    let command_line = backend.command_line();
    let host = FirstBootHost {
        booted: &status.booted,
        command_line: command_line.as_deref(),
        fips: detect::fips_enabled(&options.root),
    };
    let mut change = first_boot_change(&config, host).map_err(FirstBootRefused)?;
    if !backend.supports_kernel_arguments && !change.kernel_arguments.is_empty() {
        let reason = &backend.reason;
        tracing::warn!(config = name, reason, "skipping the kernel arguments of the config");
        drop_kernel_arguments(&mut change).map_err(FirstBootRefused)?;
    }
    if let Some(reason) = backend.os.refusal(&change) {
        return Err(FirstBootRefused(reason).into());
    }
    // Before the download: the files name mirrors, credentials and certificates.
    let written = if options.write_files { write_config(&root, &config)? } else { 0 };
    let description = (!change.is_empty()).then(|| change.describe());
    if let Some(change_text) = &description {
        tracing::info!(config = name, change = change_text, "completing the first boot");
        backend.os.fetch(&change).context("cannot download what the first boot needs")?;
    }
    // Before the next OS is staged: it takes over what is on disk now.
    let node = match &options.join {
        Some(join_options) => Some(join(join_options).await?),
        None => None,
    };
    if description.is_some() {
        backend.os.stage(&change, true).context("cannot stage the next boot")?;
    } else if written == 0 {
        tracing::info!(config = name, "the machine is as its config says: no reboot is needed");
    }
    if options.config.is_none() {
        disable_first_boot(&root, description.is_some())?;
    }
    Ok(FirstBootReport { config: Some(name), change: description, written, node })
}

/// Writes what Ignition would have written. Returns the number of changes.
fn write_config(root: &HostRoot, config: &MachineConfig) -> Result<usize> {
    let report = once::apply_first_config(root, config)?;
    if let Some(reason) = report.refused {
        return Err(FirstBootRefused(reason).into());
    }
    for note in &report.notes {
        tracing::info!(note, "wrote the first config");
    }
    Ok(report.changes.len())
}

/// The config that the server has left to complete, if there is one.
fn served_config(root: &HostRoot) -> Result<Option<MachineConfig>> {
    if !root.exists(ENCAPSULATED)? {
        return Ok(None);
    }
    // Not the parser's message: it may quote a secret from the config.
    serde_json::from_slice(&root.read(ENCAPSULATED)?).map(Some).map_err(|error| {
        anyhow!(
            "{ENCAPSULATED}: not a MachineConfig (line {}, column {}): put the file back that Ignition wrote, or remove it to leave the machine as it is",
            error.line(),
            error.column()
        )
    })
}

/// Joins with the kubeconfig from the server, and removes it: the machine has its own then.
async fn join(join_options: &JoinOptions) -> Result<String> {
    let given = join_options.root.join(KUBECONFIG.trim_start_matches('/'));
    // The given kubeconfig is removed when the machine has joined: where it is, an interrupted join may have an identity
    // but no service yet.
    if given.exists() || !JoinPaths::new(&join_options.root).kubeconfig().exists() {
        join::join(&credentials::read_flattened(&given)?, join_options).await?;
    }
    durable_file::remove(&given).with_context(|| format!("cannot remove {}", given.display()))?;
    Ok(join_options.name.clone())
}

/// Removes the file that says that something is left to do.
fn disable_first_boot(root: &HostRoot, needs_reboot: bool) -> Result<()> {
    let done = match needs_reboot {
        true => root.rename(ENCAPSULATED, ENCAPSULATED_BACKUP),
        false => root.remove(ENCAPSULATED),
    };
    done.and_then(|()| root.fsync_directory(split(ENCAPSULATED).0))
        .with_context(|| format!("cannot put {ENCAPSULATED} away"))
}
