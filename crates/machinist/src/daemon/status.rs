//! The status of this machine without an API server: from its disk, and from the last note of its daemon.

use std::path::Path;
use std::{fs, io};

use anyhow::Result;
use machinist_core::apply::{EMPTY_CONFIG_NAME, empty_config};
use machinist_core::daemon::actions;
use machinist_core::drift::{self, DriftFinding};
use machinist_core::os::OsStatus;
use machinist_core::versioned;
use serde::{Deserialize, Serialize};

use super::health;
use super::join::paths::JoinPaths;
use super::journal::Journal;
use super::os::detect;
use super::root::HostRoot;
use super::service_state;
use super::state::{self, DiskState};
use super::transaction;

/// Where the daemon notes what it does; gone after a reboot.
const NOTE_PATH: &str = "run/machinist/status.json";
/// The version of the note that this version writes.
const NOTE_VERSION: u32 = 1;

/// The last note of the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DaemonNote {
    /// The name of the Node.
    pub(crate) node: String,
    /// `Done`, `Working`, `Degraded` or `Unreconcilable`.
    pub(crate) state: String,
    /// The reason of the state.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    /// The desired config.
    pub(crate) desired: String,
    /// The request that the daemon waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiting: Option<String>,
    /// Why the machine does not act: another one has its identity. The state is that of the other one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
    /// Why an administrator holds the machine, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held: Option<String>,
}

impl DaemonNote {
    /// Writes the note.
    pub(super) fn write(&self, root: &Path) -> io::Result<()> {
        let path = root.join(NOTE_PATH);
        let part = path.with_extension("part");
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&part, versioned::to_json(NOTE_VERSION, self)?)?;
        fs::rename(&part, &path)
    }

    /// Removes the note of a machine that leaves.
    pub(super) fn remove(root: &Path) {
        // It is gone after the next boot anyway.
        let _ = fs::remove_file(root.join(NOTE_PATH));
    }

    /// The last note, if there is one. A damaged note is ignored; that of a newer daemon is an error.
    pub(super) fn read(root: &Path) -> Result<Option<Self>> {
        let Ok(bytes) = fs::read(root.join(NOTE_PATH)) else { return Ok(None) };
        let read = versioned::from_json(&format!("/{NOTE_PATH}"), NOTE_VERSION, &bytes);
        Ok(versioned::ignore_damage(read)?)
    }
}

/// A change that is not complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IncompleteChange {
    /// The config that it leads to.
    pub(crate) config: String,
    /// The previous config.
    pub(crate) previous: String,
    /// The actions that are left to do.
    pub(crate) actions: String,
    /// Whether the machine has to reboot.
    #[serde(rename = "needsRestart")]
    pub(crate) needs_reboot: bool,
}

/// How the operating system of a machine is changed, and what it can boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MachineOsStatus {
    /// `ostree`, `rpm-ostree`, `bootc` or `plain`.
    #[serde(rename = "backEnd")]
    pub(crate) backend: &'static str,
    /// Why this backend.
    pub(crate) reason: String,
    /// What is booted, staged and kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<OsStatus>,
    /// Why the status is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

impl MachineOsStatus {
    fn inspect(path: &Path) -> Self {
        let found = detect::detect(path);
        let (status, problem) = match found.os.status() {
            Ok(status) => (Some(status), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        Self { backend: found.os.backend_name(), reason: found.reason, status, problem }
    }
}

/// The status of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MachineStatus {
    /// The last note of the daemon; `None` if it has not run since the boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) daemon: Option<DaemonNote>,
    /// Whether the machine has an identity of its own: it has joined, and has not left.
    pub(crate) joined: bool,
    /// The state of the service; `None` if there is no service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service: Option<String>,
    /// Why the daemon cannot run, and the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service_problem: Option<String>,
    /// The config on disk.
    pub(crate) current: String,
    /// Its operating system.
    pub(crate) os: MachineOsStatus,
    /// A change that is not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pending: Option<IncompleteChange>,
    /// Whether a change was interrupted and has to be recovered.
    pub(crate) interrupted: bool,
    /// Paths that an earlier change left wrong, each with the reason and the remedy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) quarantined: Vec<String>,
    /// Whether the force file asks to rewrite everything.
    #[serde(rename = "force")]
    pub(crate) force_rewrite: bool,
    /// Why the current config cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) damage: Option<String>,
    /// How the disk differs from its config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mismatch: Option<String>,
    /// All differences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) findings: Vec<DriftFinding>,
    /// The config that the machine rolled back from, and why.
    #[serde(rename = "failed", skip_serializing_if = "Option::is_none")]
    pub(crate) failed_config: Option<String>,
}

/// Gathers the status of a machine.
pub(crate) async fn gather(path: &Path) -> Result<MachineStatus> {
    let root = HostRoot::open_read_only(path)?;
    let state = DiskState::read(&root)?;
    let boot = &state::boot_id(path).unwrap_or_default();
    let pending = state.pending.as_ref().map(|pending| IncompleteChange {
        config: pending.config.clone(),
        previous: pending.previous.metadata.name.clone().unwrap_or_default(),
        actions: actions::actions_summary(pending.remaining_actions(boot)),
        needs_reboot: pending.needs_reboot(boot),
    });
    let current = state.current.clone().unwrap_or_else(empty_config);
    let findings = super::drift::check(path, &super::drift::reference(path, &current)?)?.findings;
    let service = service_state::observe(path).await;
    Ok(MachineStatus {
        daemon: DaemonNote::read(path)?,
        joined: JoinPaths::new(path).kubeconfig().exists(),
        service_problem: service.as_ref().and_then(|service| Some(service.problem()?.to_string())),
        service: service.and_then(|service| service.active_state),
        current: state.current_name().unwrap_or(EMPTY_CONFIG_NAME).to_owned(),
        os: MachineOsStatus::inspect(path),
        pending,
        interrupted: Journal::exists(&root)?,
        quarantined: transaction::quarantined(&root)?.iter().map(ToString::to_string).collect(),
        force_rewrite: state.force_rewrite,
        damage: state.damage.clone(),
        mismatch: drift::degraded_reason(&findings),
        findings,
        failed_config: health::read(&root)?.map(|marker| marker.reason()),
    })
}
