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

use super::super::once::{self, Change, Recovered};
use super::super::root::Root;
use super::super::state::{self, State};
use super::super::{drift, health};

/// How long somebody else may be at work on the disk.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

/// The root of the machine.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    path: PathBuf,
    /// How often a config was written.
    changes: Arc<AtomicU64>,
}

/// What a change did.
#[derive(Debug, Clone)]
pub(super) struct Done {
    /// The plan.
    pub(super) plan: ApplyPlan,
    /// What else there is to say.
    pub(super) note: Option<String>,
}

impl Disk {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), changes: Arc::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How often a config was written.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Does something with the root, for itself alone.
    async fn alone<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Root) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let path = self.path.clone();
        blocking(move || act(&open(&path)?)).await
    }

    /// What the disk says about the machine.
    pub(super) async fn read(&self) -> Result<State> {
        let path = self.path.clone();
        blocking(move || State::read(&Root::to_look_at(&path)?)).await
    }

    /// Puts right what an interrupted change has left.
    pub(super) async fn recover(&self) -> Result<Option<Recovered>> {
        self.alone(once::recover).await
    }

    /// How the disk differs from a config.
    pub(super) async fn check(&self, config: &MachineConfig) -> Result<Vec<DriftFinding>> {
        let reference = DriftReference::new(config)?;
        let path = self.path.clone();
        blocking(move || Ok(drift::check(&path, &reference)?.findings)).await
    }

    /// The config that did the machine no good.
    pub(super) async fn recall(&self) -> Result<Option<FailedConfig>> {
        let path = self.path.clone();
        blocking(move || health::recall(&Root::to_look_at(&path)?)).await
    }

    /// Keeps in mind which config did the machine no good.
    pub(super) async fn remember(&self, marker: FailedConfig) -> Result<()> {
        self.alone(move |root| health::remember(root, &marker)).await
    }

    /// Forgets it.
    pub(super) async fn forget(&self) -> Result<()> {
        self.alone(health::forget).await
    }

    /// Changes the disk, completely or not at all. What is left to be done is written down first.
    pub(super) async fn change(
        &self,
        old: MachineConfig,
        new: MachineConfig,
        change: reconcile_check::ConfigChange,
        pending: PendingChange,
        force: bool,
    ) -> Result<Done> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.alone(move |root| {
            once::recover(root)?;
            state::set_pending(root, Some(&pending))?;
            if force {
                state::consume_force(root)?;
            }
            let plan = once::plan(root, &old, &new, &change);
            let done = plan.and_then(|plan| Ok((once::carry_out(root, plan.clone())?, plan)));
            match done {
                Ok((note, plan)) => Ok(Done { plan, note }),
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
    pub(super) async fn go_back(&self, pending: &PendingChange) -> Result<()> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        let previous = pending.previous.clone();
        self.alone(move |root| {
            let current = once::current(root)?.context("the disk does not say what it has")?;
            let change = parse_both(&current, &previous)
                .ok_or_else(|| anyhow!("the config before cannot be read"))?;
            let plan = once::plan(root, &current, &previous, &change)?;
            once::carry_out(root, plan)?;
            state::set_pending(root, None)
        })
        .await
    }

    /// Brings the files up to date that the cluster keeps so. Gives what was done.
    pub(super) async fn refresh(&self, wanted: ClusterFiles) -> Result<Vec<Change>> {
        self.alone(move |root| {
            once::recover(root)?;
            let plan = apply::plan_cluster_files(&wanted, root, once::style())?;
            let changes = plan.steps.iter().map(once::describe).collect();
            if !plan.steps.is_empty()
                && let Some(note) = once::carry_out(root, plan)?
            {
                tracing::warn!("{note}");
            }
            Ok(changes)
        })
        .await
    }

    /// Writes down what is left to be done.
    pub(super) async fn set_pending(&self, pending: Option<PendingChange>) -> Result<()> {
        self.alone(move |root| state::set_pending(root, pending.as_ref())).await
    }

    /// Says which config the machine has, where its first boot has put it there.
    pub(super) async fn adopt(&self, config: MachineConfig) -> Result<()> {
        self.alone(move |root| {
            let change =
                parse_both(&config, &config).ok_or_else(|| anyhow!("the config cannot be read"))?;
            let plan = once::plan(root, &config, &config, &change)?;
            once::carry_out(root, plan).map(drop)
        })
        .await
    }

    /// Puts aside what only a new machine needs.
    pub(super) async fn end_first_boot(&self) -> Result<Vec<String>> {
        self.alone(state::end_first_boot).await
    }
}

/// Opens the root for this process alone; somebody else may be about to end.
fn open(path: &Path) -> Result<Root> {
    Root::to_look_at(path)?;
    let end = Instant::now() + PATIENCE;
    loop {
        match Root::open(path) {
            Err(_) if Instant::now() < end => std::thread::sleep(PAUSE),
            root => return root,
        }
    }
}

async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(act).await.context("the work on the disk broke off")?
}
