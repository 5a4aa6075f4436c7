//! The first boot: does what Ignition could not, joins the home where no kubelet does, and restarts the
//! machine if it has to.
//!
//! May be cut short at any time: everything is looked at anew by the next run, and the file that says
//! that something is left to be done goes last.

use std::fs;
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
use super::root::{HostRoot, split};

/// How to complete a first boot.
#[derive(Debug)]
pub(crate) struct FirstBootOptions {
    /// The root of the machine.
    pub(crate) root: PathBuf,
    /// The config, if it is not the one that the server has put there.
    pub(crate) config: Option<MachineConfig>,
    /// Whether its files, units and users are written too: there was no Ignition that did.
    pub(crate) write_files: bool,
    /// How the machine joins, where no kubelet makes a Node for it.
    pub(crate) join: Option<JoinOptions>,
}

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FirstBootReport {
    /// The config; none where nothing is left to be done.
    pub(crate) config: Option<String>,
    /// What changes with the next boot; none where the system beneath the files is as it should be.
    pub(crate) change: Option<String>,
    /// How many files, links and folders were written in Ignition's place.
    pub(crate) written: usize,
    /// The Node with which the machine has joined.
    pub(crate) node: Option<String>,
}

impl FirstBootReport {
    /// Whether something of it is in force with the next boot only.
    pub(crate) fn needs_reboot(&self) -> bool {
        self.change.is_some() || self.written > 0
    }
}

/// A machine that cannot be as its config says; to try again is of no use.
#[derive(Debug, thiserror::Error)]
#[error("the first boot cannot be completed: {0}")]
pub(crate) struct FirstBootRefused(String);

/// Completes the first boot, all but the restart.
pub(crate) async fn complete(birth: &FirstBootOptions) -> Result<FirstBootReport> {
    let root = HostRoot::open(&birth.root)?;
    let given =
        birth.config.clone().map_or_else(|| served_config(&root), |config| Ok(Some(config)))?;
    let Some(config) = given else {
        return Ok(FirstBootReport { config: None, change: None, written: 0, node: None });
    };
    let name = config.metadata.name.clone().unwrap_or_default();
    let found = detect::detect(&birth.root);
    let status = found.os.status().context("cannot see which system this machine has booted")?;
    let line = found.command_line();
    let newborn = FirstBootHost {
        booted: &status.booted,
        command_line: line.as_deref(),
        fips: detect::fips_enabled(&birth.root),
    };
    let mut change = first_boot_change(&config, newborn).map_err(FirstBootRefused)?;
    if !found.supports_kernel_arguments && !change.kernel_arguments.is_empty() {
        tracing::warn!("{}: the kernel arguments of {name} are left out", found.reason);
        drop_kernel_arguments(&mut change).map_err(FirstBootRefused)?;
    }
    if let Some(reason) = found.os.refusal(&change) {
        return Err(FirstBootRefused(reason).into());
    }
    // Before anything is fetched: the files say from where, and whom to trust.
    let written = if birth.write_files { write_config(&root, &config)? } else { 0 };
    let words = (!change.is_empty()).then(|| change.describe());
    if let Some(words) = &words {
        tracing::info!("completing the first boot for {name}: {words}");
        found.os.fetch(&change).context("cannot fetch what the first boot needs")?;
    }
    // Before the next system is made: what is on the disk now is carried over.
    let node = match &birth.join {
        Some(joining) => Some(join(joining).await?),
        None => None,
    };
    if words.is_some() {
        found.os.stage(&change, true).context("cannot prepare the next boot")?;
    } else if written == 0 {
        tracing::info!("the machine is as {name} says: no restart is needed");
    }
    if birth.config.is_none() {
        disable_first_boot(&root, words.is_some())?;
    }
    Ok(FirstBootReport { config: Some(name), change: words, written, node })
}

/// Writes what Ignition would have; says how much.
fn write_config(root: &HostRoot, config: &MachineConfig) -> Result<usize> {
    let report = once::apply_first_config(root, config)?;
    if let Some(reason) = report.refused {
        return Err(FirstBootRefused(reason).into());
    }
    for note in &report.notes {
        tracing::info!("{note}");
    }
    Ok(report.changes.len())
}

/// The config that the server has left to be completed, if it has.
fn served_config(root: &HostRoot) -> Result<Option<MachineConfig>> {
    if !root.exists(ENCAPSULATED)? {
        return Ok(None);
    }
    // Not the error's own words: they may hold a piece of the config.
    serde_json::from_slice(&root.read(ENCAPSULATED)?).map(Some).map_err(|error| {
        anyhow!(
            "{ENCAPSULATED}: not a MachineConfig (line {}, column {}): put the file back that Ignition wrote, or remove it to leave the machine as it is",
            error.line(),
            error.column()
        )
    })
}

/// Joins with the kubeconfig that the server gave, and lets go of it: the machine has its own then.
async fn join(joining: &JoinOptions) -> Result<String> {
    let given = joining.root.join(KUBECONFIG.trim_start_matches('/'));
    if !JoinPaths::new(&joining.root).kubeconfig().exists() {
        join::join(&credentials::read_flattened(&given)?, joining).await?;
    }
    match fs::remove_file(&given) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", given.display()))
        }
        _ => Ok(joining.name.clone()),
    }
}

/// Nothing is left to be done.
fn disable_first_boot(root: &HostRoot, restarts: bool) -> Result<()> {
    let done = match restarts {
        true => root.rename(ENCAPSULATED, ENCAPSULATED_BACKUP),
        false => root.remove(ENCAPSULATED),
    };
    done.and_then(|()| root.fsync_directory(split(ENCAPSULATED).0))
        .with_context(|| format!("cannot put {ENCAPSULATED} away"))
}
