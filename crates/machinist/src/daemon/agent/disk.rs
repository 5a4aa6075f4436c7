//! The disk, asked and changed beside the loop: one thread for each question, none while nobody asks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use machinist_core::api::MachineConfig;
use machinist_core::apply::{self, ApplyPlan, ClusterFiles};
use machinist_core::daemon::PendingChange;
use machinist_core::diff::parse_both;
use machinist_core::drift::{DriftFinding, DriftReference};
use machinist_core::health::FailedConfig;
use machinist_core::reconcile_check;

use super::super::root::HostRoot;
use super::super::state::{self, DiskState};
use super::super::transaction::{self, FsChange, Recovery};
use super::super::{drift, health};

/// How long somebody else may be at work on the disk.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The root of the machine.
#[derive(Debug, Clone)]
pub(super) struct MachineDisk {
    path: PathBuf,
    /// How often a config was written.
    change_count: Arc<AtomicU64>,
}

/// What a change did.
#[derive(Debug, Clone)]
pub(super) struct AppliedChange {
    /// The plan.
    pub(super) plan: ApplyPlan,
    /// What else there is to say.
    pub(super) note: Option<String>,
}

impl MachineDisk {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), change_count: Arc::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How often a config was written.
    pub(super) fn change_count(&self) -> u64 {
        self.change_count.load(Ordering::Relaxed)
    }

    /// Does something with the root, for itself alone.
    async fn with_lock<T: Send + 'static>(
        &self,
        act: impl FnOnce(&HostRoot) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let path = self.path.clone();
        blocking(move || act(&open_locked(&path)?)).await
    }

    /// What the disk says about the machine.
    pub(super) async fn read(&self) -> Result<DiskState> {
        let path = self.path.clone();
        blocking(move || DiskState::read(&HostRoot::open_read_only(&path)?)).await
    }

    /// Puts right what an interrupted change has left.
    pub(super) async fn recover(&self) -> Result<Option<Recovery>> {
        self.with_lock(transaction::recover).await
    }

    /// How the disk differs from a config.
    pub(super) async fn check(&self, config: &MachineConfig) -> Result<Vec<DriftFinding>> {
        let reference = DriftReference::new(config)?;
        let path = self.path.clone();
        blocking(move || Ok(drift::check(&path, &reference)?.findings)).await
    }

    /// The config that did the machine no good.
    pub(super) async fn failed_config(&self) -> Result<Option<FailedConfig>> {
        let path = self.path.clone();
        blocking(move || health::read(&HostRoot::open_read_only(&path)?)).await
    }

    /// Keeps in mind which config did the machine no good.
    pub(super) async fn record_failed_config(&self, marker: FailedConfig) -> Result<()> {
        self.with_lock(move |root| health::write(root, &marker)).await
    }

    /// Forgets it.
    pub(super) async fn clear_failed_config(&self) -> Result<()> {
        self.with_lock(health::remove).await
    }

    /// Changes the disk, completely or not at all. What is left to be done is written down first.
    pub(super) async fn apply_change(
        &self,
        old: MachineConfig,
        new: MachineConfig,
        change: reconcile_check::ConfigChange,
        pending: PendingChange,
        force: bool,
    ) -> Result<AppliedChange> {
        self.change_count.fetch_add(1, Ordering::Relaxed);
        self.with_lock(move |root| {
            transaction::recover(root)?;
            state::set_pending(root, Some(&pending))?;
            if force {
                state::clear_force(root)?;
            }
            let plan = transaction::plan(root, &old, &new, &change);
            let done = plan.and_then(|plan| Ok((transaction::commit(root, plan.clone())?, plan)));
            match done {
                Ok((note, plan)) => Ok(AppliedChange { plan, note }),
                Err(error) => {
                    // The disk is as it was, and so is what was left to be done.
                    let disk = old.metadata.name.clone().unwrap_or_default();
                    if let Err(second) = state::set_pending(root, pending.fallback(&disk).as_ref())
                    {
                        tracing::warn!("{second:#}");
                    }
                    Err(error)
                }
            }
        })
        .await
    }

    /// Goes back to the config before, whatever it takes.
    pub(super) async fn roll_back(&self, pending: &PendingChange) -> Result<()> {
        self.change_count.fetch_add(1, Ordering::Relaxed);
        let previous = pending.previous.clone();
        self.with_lock(move |root| {
            let current =
                transaction::current_config(root)?.context("the disk does not say what it has")?;
            let change = parse_both(&current, &previous)
                .ok_or_else(|| anyhow!("the config before cannot be read"))?;
            let plan = transaction::plan(root, &current, &previous, &change)?;
            transaction::commit(root, plan)?;
            state::set_pending(root, None)
        })
        .await
    }

    /// Brings the files up to date that the cluster keeps so. Gives what was done.
    pub(super) async fn refresh_cluster_files(
        &self,
        wanted: ClusterFiles,
    ) -> Result<Vec<FsChange>> {
        self.with_lock(move |root| {
            transaction::recover(root)?;
            let plan = apply::plan_cluster_files(&wanted, root, transaction::host_style())?;
            let changes = plan.steps.iter().map(transaction::describe).collect();
            if !plan.steps.is_empty()
                && let Some(note) = transaction::commit(root, plan)?
            {
                tracing::warn!("{note}");
            }
            Ok(changes)
        })
        .await
    }

    /// Writes down what is left to be done.
    pub(super) async fn set_pending(&self, pending: Option<PendingChange>) -> Result<()> {
        self.with_lock(move |root| state::set_pending(root, pending.as_ref())).await
    }

    /// Says which config the machine has, where its first boot has put it there.
    pub(super) async fn adopt(&self, config: MachineConfig) -> Result<()> {
        self.with_lock(move |root| {
            let change =
                parse_both(&config, &config).ok_or_else(|| anyhow!("the config cannot be read"))?;
            let plan = transaction::plan(root, &config, &config, &change)?;
            transaction::commit(root, plan).map(drop)
        })
        .await
    }

    /// Puts aside what only a new machine needs.
    pub(super) async fn end_first_boot(&self) -> Result<Vec<String>> {
        self.with_lock(state::end_first_boot).await
    }
}

/// Opens the root for this process alone; somebody else may be about to end.
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
    act: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(act).await.context("the work on the disk broke off")?
}
