//! All work of the daemon on the disk, on blocking threads and under the lock of the root. Called by
//! the other modules of `agent`; the work itself is done by `transaction`, `state`, `health` and `drift`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use machinist_core::api::MachineConfig;
use machinist_core::apply::{self, ApplyPlan, ClusterFiles, QuarantineView};
use machinist_core::daemon::PendingChange;
use machinist_core::drift::{DriftFinding, is_repaired_for};
use machinist_core::health::FailedConfig;

use super::super::root::{HostRoot, WorkOnDisk, host_defaults};
use super::super::state::{self, DiskState};
use super::super::transaction::{self, FsChange, Recovered};
use super::super::{drift, health, private_files, quarantine};
use super::boot_guard;

/// How long to wait for another machinist that holds the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The root of the machine.
#[derive(Debug, Clone)]
pub(super) struct MachineDisk {
    path: PathBuf,
    /// How many configs were written since the daemon started.
    change_count: Arc<AtomicU64>,
}

/// A change of the disk that was made.
#[derive(Debug, Clone)]
pub(super) struct AppliedChange {
    /// The plan.
    pub(super) plan: ApplyPlan,
    /// What could not be cleaned up.
    pub(super) note: Option<String>,
}

impl MachineDisk {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), change_count: Arc::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How many configs were written since the daemon started.
    pub(super) fn change_count(&self) -> u64 {
        self.change_count.load(Ordering::Relaxed)
    }

    /// Runs a call with the root locked.
    async fn with_lock<T: Send + 'static>(
        &self,
        call: impl FnOnce(&HostRoot) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let path = self.path.clone();
        blocking(move || call(&open_locked(&path)?)).await
    }

    /// Reads the daemon's own files.
    pub(super) async fn read(&self) -> Result<DiskState> {
        let path = self.path.clone();
        blocking(move || DiskState::read(&HostRoot::open_read_only(&path)?)).await
    }

    /// Recovers an interrupted change, and restricts the daemon's own files to root.
    pub(super) async fn recover(&self) -> Result<Recovered> {
        self.with_lock(|root| {
            let recovered = transaction::recover(root)?;
            if let Err(error) = private_files::restrict(root) {
                // A read-only /etc must not stop the daemon: it reports that itself.
                tracing::error!(
                    error = format!("{error:#}"),
                    "cannot restrict the daemon's own files to root"
                );
            }
            Ok(recovered)
        })
        .await
    }

    /// Compares the disk with a config.
    pub(super) async fn check(&self, config: &MachineConfig) -> Result<Vec<DriftFinding>> {
        let reference = drift::reference(&self.path, config)?;
        let path = self.path.clone();
        blocking(move || Ok(drift::check(&path, &reference)?.findings)).await
    }

    /// Whether everything that differs from the current config is as the next one wants it.
    pub(super) async fn is_repaired_for(
        &self,
        current: &MachineConfig,
        next: &MachineConfig,
    ) -> Result<bool> {
        let current = drift::reference(&self.path, current)?;
        let next = drift::reference(&self.path, next)?;
        let path = self.path.clone();
        blocking(move || {
            let findings = drift::check(&path, &current)?.findings;
            Ok(is_repaired_for(&findings, &drift::check(&path, &next)?))
        })
        .await
    }

    /// The config that the machine rolled back from.
    pub(super) async fn failed_config(&self) -> Result<Option<FailedConfig>> {
        let path = self.path.clone();
        blocking(move || health::read(&HostRoot::open_read_only(&path)?)).await
    }

    /// Records the config that the machine rolls back from.
    pub(super) async fn record_failed_config(&self, marker: FailedConfig) -> Result<()> {
        self.with_lock(move |root| health::write(root, &marker)).await
    }

    /// Removes that record.
    pub(super) async fn clear_failed_config(&self) -> Result<()> {
        self.with_lock(health::remove).await
    }

    /// Removes the daemon's own files from a machine that is as it was before its first config.
    pub(super) async fn remove_own_files(&self) -> Result<()> {
        self.with_lock(state::remove_own_files).await
    }

    /// Checks that every path of a change can be changed. Writes nothing.
    pub(super) async fn check_obstacles(
        &self,
        old: MachineConfig,
        new: MachineConfig,
    ) -> Result<()> {
        let path = self.path.clone();
        blocking(move || {
            let root = HostRoot::open_read_only(&path)?;
            transaction::check_obstacles(&root, &transaction::plan(&root, &old, &new)?)
        })
        .await
    }

    /// Why the machine is degraded although it has its config: paths that an earlier change left wrong.
    /// Tries to restore them first.
    pub(super) async fn quarantine_reason(&self) -> Result<Option<String>> {
        let path = self.path.clone();
        let reason = move || {
            let root = HostRoot::open_read_only(&path)?;
            Ok(quarantine::read(&root)?.degraded_reason())
        };
        if blocking(reason.clone()).await?.is_none() {
            return Ok(None);
        }
        self.recover().await?;
        blocking(reason).await
    }

    /// Changes the disk, completely or not at all. `pending` is recorded first.
    pub(super) async fn apply_change(
        &self,
        old: MachineConfig,
        new: MachineConfig,
        pending: PendingChange,
        force: bool,
    ) -> Result<AppliedChange> {
        self.change_count.fetch_add(1, Ordering::Relaxed);
        self.with_lock(move |root| {
            transaction::recover(root)?;
            transaction::check_obstacles(root, &transaction::plan(root, &old, &new)?)?;
            state::set_pending(root, Some(&pending))?;
            if force {
                state::clear_force(root)?;
            }
            // Planned again: the record of the pending change may have created its directory.
            let plan = transaction::plan(root, &old, &new);
            let done = plan.and_then(|plan| Ok((transaction::commit(root, plan.clone())?, plan)));
            match done {
                Ok((note, plan)) => Ok(AppliedChange { plan, note }),
                Err(error) => {
                    // The disk is unchanged, so what was pending before is pending again.
                    let disk = old.metadata.name.clone().unwrap_or_default();
                    if let Err(second) = state::set_pending(root, pending.fallback(&disk).as_ref())
                    {
                        let error = format_args!("{second:#}");
                        tracing::warn!(%error, "cannot restore the record of the pending change");
                    }
                    Err(error)
                }
            }
        })
        .await
    }

    /// Returns to the previous config.
    pub(super) async fn roll_back(&self, pending: &PendingChange) -> Result<()> {
        self.change_count.fetch_add(1, Ordering::Relaxed);
        let previous = pending.previous.clone();
        self.with_lock(move |root| {
            let current = state::current_config(root)?
                .context("the disk does not name its current config")?;
            let plan = transaction::plan(root, &current, &previous)?;
            transaction::commit(root, plan)?;
            state::set_pending(root, None)?;
            end_guard(root);
            Ok(())
        })
        .await
    }

    /// Writes the files that the cluster keeps up to date. Returns the changes.
    pub(super) async fn refresh_cluster_files(&self, files: ClusterFiles) -> Result<Vec<FsChange>> {
        self.with_lock(move |root| {
            transaction::recover(root)?;
            let quarantine = quarantine::read(root)?;
            let tree = QuarantineView::new(root, &quarantine);
            let plan = apply::plan_cluster_files(&files, &tree, host_defaults())?;
            let done = transaction::commit_possible(root, plan)?;
            if let Some(note) = done.note {
                tracing::warn!(note, "cannot clean up after a change");
            }
            // The other certificates are in place: one that cannot be written does not hold them up.
            anyhow::ensure!(
                done.obstructed.is_empty(),
                apply::describe_obstructed(&done.obstructed)
            );
            Ok(done.changes)
        })
        .await
    }

    /// Records the pending change, or removes the record.
    pub(super) async fn set_pending(&self, pending: Option<PendingChange>) -> Result<()> {
        self.with_lock(move |root| {
            state::set_pending(root, pending.as_ref())?;
            if pending.is_none() {
                end_guard(root);
            }
            Ok(())
        })
        .await
    }

    /// Records the config that the first boot has applied as the current one.
    pub(super) async fn adopt(&self, config: MachineConfig) -> Result<()> {
        self.with_lock(move |root| {
            let plan = transaction::plan(root, &config, &config)?;
            transaction::commit(root, plan).map(drop)
        })
        .await
    }

    /// Writes the current config again.
    pub(super) async fn write_current_config(&self, config: MachineConfig) -> Result<()> {
        self.with_lock(move |root| state::write_current_config(root, &config)).await
    }

    /// Moves the files of the first boot away.
    pub(super) async fn end_first_boot(&self) -> Result<Vec<String>> {
        self.with_lock(state::end_first_boot).await
    }
}

/// Removes the boot guard, which has nothing left to guard. One that stays finds that out on the next boot.
fn end_guard(root: &HostRoot) {
    if let Err(error) = boot_guard::disarm(root.path()) {
        tracing::warn!(%error, "cannot remove the boot guard of this host");
    }
}

/// Opens and locks the root. Retries while another machinist holds the lock.
fn open_locked(path: &Path) -> Result<HostRoot> {
    HostRoot::open_read_only(path)?;
    let end = Instant::now() + LOCK_TIMEOUT;
    loop {
        match HostRoot::open(path) {
            Err(_) if Instant::now() < end => std::thread::sleep(LOCK_RETRY_INTERVAL),
            root => return root,
        }
    }
}

async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let work = move || {
        let _work = WorkOnDisk::begin();
        call()
    };
    tokio::task::spawn_blocking(work).await.context("the thread that works on the disk panicked")?
}
