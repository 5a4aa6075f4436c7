//! What on this machine is Machinist's, where it comes from, and what was there before. Reads only. Called by
//! `machinist managed`.

use std::path::Path;

use anyhow::{Result, bail};
use machinist_core::api::names::path::DAEMON_DIR;
use machinist_core::apply::{self, EMPTY_CONFIG_NAME, OwnedPath, PathBefore, empty_config};
use machinist_core::ignition;
use machinist_core::own_files;
use machinist_core::render::item_sources;
use serde::Serialize;

use super::root::{HostRoot, host_defaults};
use super::state::DiskState;

/// What is Machinist's on a machine.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OwnedReport {
    /// The config on disk.
    pub(crate) config: String,
    /// What configs have written.
    pub(crate) paths: Vec<OwnedEntry>,
    /// Machinist itself.
    pub(crate) own: Vec<String>,
}

/// A path that a config has written.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OwnedEntry {
    /// The path.
    pub(crate) path: String,
    /// What of the config is responsible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) item: Option<String>,
    /// The MachineConfig that it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) machine_config: Option<String>,
    /// What was there before.
    pub(crate) before: PathBefore,
}

/// Lists what is Machinist's.
pub(crate) fn gather(path: &Path) -> Result<OwnedReport> {
    let root = HostRoot::open_read_only(path)?;
    let state = DiskState::read(&root).map_err(|error| match is_denied(&error) {
        true => error.context("only root may read which config this machine has"),
        false => error,
    })?;
    if let Some(damage) = state.damage {
        bail!(damage);
    }
    let current = state.current.unwrap_or_else(empty_config);
    let config = match current.spec.config.as_ref().filter(|raw| !raw.is_null()) {
        Some(raw) => ignition::parse_and_upgrade(raw)?.0,
        None => ignition::empty_config(),
    };
    let sources = item_sources(&current);
    let paths = apply::owned_paths(&config, &root, host_defaults())?;
    // What the daemon keeps for itself is listed as a whole.
    let is_kept = |owned: &OwnedPath| owned.path.starts_with(DAEMON_DIR);
    let paths = paths.into_iter().filter(|owned| !is_kept(owned)).map(|owned| OwnedEntry {
        machine_config: owned.item.as_deref().and_then(|item| sources.of(item)).map(str::to_owned),
        path: owned.path,
        item: owned.item,
        before: owned.before,
    });
    let is_there = |own: &String| path.join(own.trim_start_matches('/')).symlink_metadata().is_ok();
    Ok(OwnedReport {
        config: current.metadata.name.clone().unwrap_or_else(|| EMPTY_CONFIG_NAME.to_owned()),
        paths: paths.collect(),
        own: own_files::own_paths().into_iter().filter(is_there).collect(),
    })
}

fn is_denied(error: &anyhow::Error) -> bool {
    let denied = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::PermissionDenied;
    error.chain().filter_map(|cause| cause.downcast_ref()).any(denied)
}
