//! Leaves the API server: every managed file is restored, and nothing of Machinist stays.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use machinist_core::api::MachineConfig;
use machinist_core::api::names::annotation::{self, machinist};
use machinist_core::api::names::path::DAEMON_DIR;
use machinist_core::apply::{self, ApplyPlan, QuarantineView, empty_config};
use machinist_core::daemon::{CandidateConfig, PendingChange, candidate_configs};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::super::os::detect;
use super::super::quarantine;
use super::super::root::{HostRoot, host_defaults};
use super::super::running;
use super::super::state::{self, CurrentConfigFile};
use super::super::status::DaemonNote;
use super::super::systemd::Systemd;
use super::super::transaction::{self, FsChange};
use super::super::unreadable_files::{self, Unreadable};
use super::paths::JoinPaths;
use super::{cleanup, credentials, service};
use crate::fault_injection;

/// The timeout for removing the Node.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The annotations that the daemon writes.
const DAEMON_ANNOTATIONS: [&str; 19] = [
    annotation::CURRENT_CONFIG,
    annotation::DESIRED_CONFIG,
    annotation::CURRENT_IMAGE,
    annotation::STATE,
    annotation::REASON,
    annotation::POST_CONFIG_ACTION,
    annotation::DESIRED_DRAIN,
    annotation::LAST_APPLIED_DRAIN,
    annotation::LAST_SYNCED_CONTROLLER_CONFIG,
    machinist::IDENTITY_CLAIM,
    machinist::REBOOT,
    machinist::REBOOT_APPROVED,
    machinist::REBOOT_PENDING,
    machinist::FAILED_CONFIG,
    machinist::DRIFTED,
    machinist::HEAL,
    machinist::REBOOT_REQUESTED,
    machinist::DAEMON,
    machinist::UPGRADE,
];

/// What was done.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeaveReport {
    /// The config that the machine had.
    pub(crate) from: String,
    /// What was restored.
    pub(crate) changes: Vec<FsChange>,
    /// What could not be restored, each with the reason and the remedy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) not_restored: Vec<String>,
    /// What happened to the Node.
    pub(crate) node: String,
}

/// What leaving did to the disk.
#[derive(Debug, Default)]
struct RestoredFiles {
    /// The config that the machine had.
    from: String,
    changes: Vec<FsChange>,
    not_restored: Vec<String>,
}

/// The name under which the machine has joined, from its identity.
pub(crate) fn joined_name(root: &Path) -> Option<String> {
    let identity = credentials::read_flattened(&JoinPaths::new(root).kubeconfig()).ok()?;
    credentials::own_node_name(&identity)
}

/// Leaves. The Node is removed with the identity of the machine unless another one is given.
pub(crate) async fn leave(root: &Path, name: &str, client: Option<Client>) -> Result<LeaveReport> {
    let join_paths = JoinPaths::new(root);
    let has_joined = join_paths.kubeconfig().exists()
        || join_paths.unit_file(service::SERVICE_NAME).exists()
        || HostRoot::open_read_only(root)?.exists(DAEMON_DIR)?;
    if !has_joined && client.is_none() {
        bail!(
            "this machine has not joined: {} does not exist; --root names the root of another machine",
            join_paths.kubeconfig().display()
        );
    }
    let systemd = Systemd::connect(root).await?;
    // First: it would bring the daemon back. A run that has begun ends with its service, not with its timer.
    for unit in [service::WATCHDOG_TIMER, service::WATCHDOG_SERVICE] {
        if let Some(systemd) = systemd.as_ref().filter(|_| join_paths.unit_file(unit).exists()) {
            systemd.stop(unit).await.with_context(|| format!("{unit} cannot be stopped"))?;
        }
    }
    service::remove_watchdog(&join_paths)?;
    if let Some(systemd) =
        systemd.as_ref().filter(|_| join_paths.unit_file(service::SERVICE_NAME).exists())
    {
        systemd.stop(service::SERVICE_NAME).await.context("the daemon cannot be stopped")?;
    }
    running::end_daemon(root).await?;
    // Of a newer version too: nobody will read them any more, and the originals say what to restore.
    let unreadable =
        unreadable_files::set_aside(&HostRoot::open(root)?, Unreadable::DamagedOrNewer)?;
    transaction::recover(&HostRoot::open(root)?)?;
    let old = config_to_leave(root, name, client.as_ref()).await?;
    let RestoredFiles { from, mut changes, mut not_restored } =
        restore_files(&HostRoot::open(root)?, old)?;
    not_restored.splice(0..0, unreadable.iter().map(ToString::to_string));
    let refused = DaemonNote::read(root).ok().flatten().and_then(|note| note.refused);
    let node = match (client, join_paths.kubeconfig().exists()) {
        // The Node is that of the machine with which this one shares its identity.
        _ if refused.is_some() => "left alone: another machine works under this name".to_owned(),
        (Some(client), _) => release_node(&client, name).await,
        (None, true) => release_node_with_own_identity(&join_paths, name).await,
        (None, false) => "left alone: this machine has no identity".to_owned(),
    };
    service::remove(&join_paths)?;
    changes.extend(cleanup::remove_first_boot(&HostRoot::open(root)?)?);
    if let Some(systemd) = systemd {
        systemd.daemon_reload().await?;
    }
    service::remove_last_good(&join_paths)?;
    DaemonNote::remove(root);
    // Last: while the identity is there, `leave` can be run again after an interruption.
    JoinPaths::remove_file(&join_paths.join_request())?;
    JoinPaths::remove_file(&join_paths.kubeconfig())?;
    JoinPaths::remove_empty(&join_paths.state_dir());
    Ok(LeaveReport { from, changes, not_restored, node })
}

/// What the machine has, and has to be undone.
struct ConfigToLeave {
    config: MachineConfig,
    /// What is uncertain about it.
    doubt: Option<String>,
}

/// The config that the machine leaves. If its file is damaged, the API server may know it: a machine without its config
/// gets its files back, but not all links of units.
async fn config_to_leave(
    root: &Path,
    name: &str,
    client: Option<&Client>,
) -> Result<ConfigToLeave> {
    let host = HostRoot::open_read_only(root)?;
    let known = |config| ConfigToLeave { config, doubt: None };
    let damage = match state::read_current_config(&host)? {
        CurrentConfigFile::Config(config) => return Ok(known(*config)),
        CurrentConfigFile::Absent => return Ok(known(empty_config())),
        CurrentConfigFile::Damaged(damage) => damage,
    };
    tracing::warn!(damage, "asking the API server for the config");
    let pending = state::pending(&host).ok().flatten();
    let asked = timeout(REQUEST_TIMEOUT, ask_for_config(root, name, client, pending.as_ref()));
    let found = match asked.await {
        Ok(found) => found,
        Err(_) => Err(anyhow!("the API server does not respond")),
    };
    Ok(match found {
        Ok(Some(config)) => known(config),
        Ok(None) => doubtful(&damage, "the API server does not know the config either"),
        Err(error) => doubtful(&damage, &format!("{error:#}")),
    })
}

fn doubtful(damage: &str, reason: &str) -> ConfigToLeave {
    let doubt = format!(
        "{damage}, and {reason}: files are restored; look for links of units in /etc/systemd/system that nobody needs"
    );
    ConfigToLeave { config: empty_config(), doubt: Some(doubt) }
}

async fn ask_for_config(
    root: &Path,
    name: &str,
    client: Option<&Client>,
    pending: Option<&PendingChange>,
) -> Result<Option<MachineConfig>> {
    let client = match client {
        Some(client) => client.clone(),
        None => {
            let identity = credentials::read_flattened(&JoinPaths::new(root).kubeconfig())?;
            credentials::client_for(&identity).await?
        }
    };
    let node: Node = Api::all(client.clone()).get(name).await?;
    let configs: Api<MachineConfig> = Api::all(client);
    for candidate in candidate_configs(&node, pending, &empty_config()) {
        match candidate {
            CandidateConfig::Known(config) => return Ok(Some(*config)),
            CandidateConfig::Named(name) => {
                if let Some(config) = configs.get_opt(&name).await? {
                    return Ok(Some(config));
                }
            }
        }
    }
    Ok(None)
}

/// Restores every managed file, then removes the daemon's own files. A path that cannot be changed does not
/// keep the machine from leaving: its original stays, and the report says what to do.
fn restore_files(root: &HostRoot, leaving: ConfigToLeave) -> Result<RestoredFiles> {
    let ConfigToLeave { config: old, doubt } = leaving;
    let mut restored = RestoredFiles {
        from: old.metadata.name.clone().unwrap_or_default(),
        not_restored: doubt.into_iter().collect(),
        ..Default::default()
    };
    // Not checked for changes that a running machine refuses: they must not keep it from leaving.
    restored.commit(root, transaction::plan(root, &old, &empty_config())?)?;
    // Then what the cluster kept up to date next to its configs.
    let quarantine = quarantine::read(root)?;
    let tree = QuarantineView::new(root, &quarantine);
    restored.commit(root, apply::plan_release_all(&tree, host_defaults())?)?;
    match detect::remove_kernel_arguments(root.path(), &old) {
        Ok(None) => {}
        Ok(Some(note)) => tracing::warn!(note, "kernel arguments are not removed completely"),
        Err(error) => {
            tracing::warn!(error = %format_args!("{error:#}"), "cannot remove the kernel arguments of the config");
        }
    }
    for path in state::OWN_FILES {
        if let Err(error) = root.remove(path) {
            restored.not_restored.push(format!("cannot remove {path}: {error}: remove it by hand"));
        }
        fault_injection::point();
    }
    // Nobody tries again from now on.
    quarantine::discard(root)?;
    state::remove_empty_directories(root);
    Ok(restored)
}

impl RestoredFiles {
    fn commit(&mut self, root: &HostRoot, plan: ApplyPlan) -> Result<()> {
        let done = transaction::commit_possible(root, plan)?;
        let changes = done.changes.into_iter();
        self.changes.extend(changes.filter(|change| !change.path.starts_with(DAEMON_DIR)));
        if let Some(note) = done.note {
            tracing::warn!(note, "cannot clean up after a change");
        }
        for one in done.obstructed.iter().filter(|one| !one.path.starts_with(DAEMON_DIR)) {
            let original = apply::original_path(&one.path);
            let then = match root.exists(&original) {
                Ok(true) => format!("{one}, then move {original} there"),
                _ => format!("{one}, then remove {}", one.path),
            };
            if !self.not_restored.contains(&then) {
                self.not_restored.push(then);
            }
        }
        Ok(())
    }
}

async fn release_node_with_own_identity(join_paths: &JoinPaths, name: &str) -> String {
    let client = match credentials::read_flattened(&join_paths.kubeconfig()) {
        Ok(kubeconfig) => credentials::client_for(&kubeconfig).await,
        Err(error) => Err(error),
    };
    match client {
        Ok(client) => release_node(&client, name).await,
        Err(error) => format!("left alone: {error:#}"),
    }
}

/// The patch that removes the annotations of the daemon and its controller.
pub(super) fn remove_annotations_patch() -> Value {
    DAEMON_ANNOTATIONS.iter().map(|key| ((*key).to_owned(), Value::Null)).collect()
}

/// Removes the Node, or the annotations of the daemon. An API server that does not respond does not keep a
/// machine from leaving.
async fn release_node(client: &Client, name: &str) -> String {
    let api: Api<Node> = Api::all(client.clone());
    let request = async {
        let Some(node) = api.get_opt(name).await? else { return Ok("gone before".to_owned()) };
        let info = node.status.and_then(|status| status.node_info).unwrap_or_default();
        let is_ours =
            info.kubelet_version.starts_with("machinist-") || info.kubelet_version.is_empty();
        if is_ours {
            match api.delete(name, &DeleteParams::default()).await {
                Ok(_) => return Ok("removed".to_owned()),
                Err(kube::Error::Api(status)) if status.code == 403 => {}
                Err(error) => return Err(error),
            }
        }
        let patch = Patch::Merge(json!({"metadata": {"annotations": remove_annotations_patch()}}));
        api.patch(name, &PatchParams::default(), &patch).await?;
        Ok("its annotations were removed".to_owned())
    };
    match timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(message)) => message,
        Ok(Err(error)) => {
            let error: kube::Error = error;
            format!("left alone: {error}; remove it with kubectl delete node {name}")
        }
        Err(_) => format!(
            "left alone: the API server does not respond; remove it with kubectl delete node {name}"
        ),
    }
}
