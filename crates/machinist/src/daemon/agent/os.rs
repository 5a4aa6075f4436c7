//! The OS part of an update: planned and downloaded before the drain, staged after the files, checked
//! after the reboot. Called by `update`, `post_apply` and `health_gate`. The rules are in
//! `core::daemon::os_plan`; the host is changed by `daemon::os`.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfig;
use machinist_core::daemon::annotations::{self, NodeAnnotationPatch};
use machinist_core::daemon::os_plan::{self, BootVerdict, OsObserved};
use machinist_core::daemon::{PendingChange, PendingOsChange, Phase, SessionEvent, reports};
use machinist_core::health::FailedCheck;
use machinist_core::os::host::HostKind;
use machinist_core::os::{DesiredOs, OsChange, layered_image};

use super::super::os::detect::OsBackend;
use super::super::state::DiskState;
use super::Agent;

/// The operating system after a reboot.
pub(super) enum BootedOs {
    /// It is as the config says.
    AsDesired,
    /// The staged OS was lost: stage it again with this change.
    StageAgain(Box<PendingChange>),
    /// The new OS does not come up: roll back.
    Failed(FailedCheck),
}

/// Runs a call to the host on a blocking thread.
async fn on_host_thread<T: Send + 'static>(
    backend: &Arc<OsBackend>,
    call: impl FnOnce(&OsBackend) -> Result<T> + Send + 'static,
) -> Result<T> {
    let backend = Arc::clone(backend);
    let result = tokio::task::spawn_blocking(move || call(&backend)).await;
    result.context("the thread that changes the operating system panicked")?
}

async fn observe_os(backend: &Arc<OsBackend>) -> Result<OsObserved> {
    on_host_thread(backend, |backend| {
        Ok(OsObserved {
            kind: backend.kind,
            status: backend.os.status()?,
            command_line: backend.command_line(),
        })
    })
    .await
}

/// The OS part of a rollback.
pub(super) async fn plan_os_rollback(
    backend: &Arc<OsBackend>,
    config: &MachineConfig,
    pending: &PendingChange,
) -> Result<Option<PendingOsChange>> {
    if pending.os.is_none() {
        return Ok(None);
    }
    Ok(os_plan::plan_os_rollback(config, pending, &observe_os(backend).await?))
}

/// Stages a change of the OS for the next boot, or drops what is staged if nothing is to change.
pub(super) async fn stage_os_change(
    backend: &Arc<OsBackend>,
    change: OsChange,
    is_rollback: bool,
) -> Result<()> {
    on_host_thread(backend, move |backend| match change.is_empty() {
        true => backend.os.unstage(),
        false => backend.os.stage(&change, is_rollback),
    })
    .await
}

impl Agent {
    async fn on_host_thread<T: Send + 'static>(
        &self,
        call: impl FnOnce(&OsBackend) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        on_host_thread(&self.os_backend, call).await
    }

    /// What an update does to the operating system; `None` if nothing.
    pub(super) async fn plan_os(
        &self,
        old: &MachineConfig,
        new: &MachineConfig,
        state: &DiskState,
    ) -> Result<Option<PendingOsChange>> {
        let (earlier, force) = (state.pending.as_ref(), state.force_rewrite);
        if !os_plan::may_change_os(old, new, earlier, force) {
            return Ok(None);
        }
        let observed = observe_os(&self.os_backend).await?;
        Ok(os_plan::plan_os_change(old, new, earlier, force, &self.boot_id, &observed))
    }

    /// Why the host cannot make a change.
    pub(super) async fn os_refusal(&self, os: Option<&PendingOsChange>) -> Result<Option<String>> {
        let Some(change) = os.map(|os| os.change.clone()) else { return Ok(None) };
        self.on_host_thread(move |backend| Ok(backend.os.refusal(&change))).await
    }

    /// Downloads everything that an OS change needs. Returns false if the daemon has to stop, which it
    /// may do here because nothing has been written yet.
    pub(super) async fn fetch_os(
        &mut self,
        node: &Arc<Node>,
        os: Option<&PendingOsChange>,
    ) -> Result<bool> {
        let change = os.map(|os| &os.change).filter(|change| self.session.needs_fetch(change));
        let Some(change) = change else { return Ok(true) };
        if change.image.is_some() || change.kernel_type.is_some() || change.extensions.is_some() {
            let image = change.image.as_deref().unwrap_or_default();
            let message = format!("Updating from oscontainer {image}");
            self.reporter.event(node, "InClusterUpgrade", message);
        }
        self.reporter.event(node, "OSUpdateStarted", change.describe());
        tracing::info!(change = change.describe(), "downloading the operating system");
        let requested = change.clone();
        self.enter(node, Phase::FetchingOs);
        tokio::select! {
            () = self.stop.cancelled() => return Ok(false),
            fetched = self.on_host_thread(move |backend| backend.os.fetch(&requested)) => fetched?,
        }
        self.enter(node, Phase::Preparing);
        self.session.after(SessionEvent::OsFetched(change.clone()));
        Ok(true)
    }

    /// Stages the OS part of a change for the next boot, unless it is staged already.
    pub(super) async fn stage_os(
        &mut self,
        node: Option<&Arc<Node>>,
        pending: &mut PendingChange,
    ) -> Result<()> {
        let Some(os) = pending.os.as_mut().filter(|os| !os.is_staged) else { return Ok(()) };
        let (change, is_rollback) = (os.change.clone(), pending.is_rollback);
        let staged = stage_os_change(&self.os_backend, change.clone(), is_rollback).await;
        if !change.is_empty() {
            self.metrics.set_pivot_failed(staged.is_err());
        }
        staged?;
        os.is_staged = true;
        self.disk.set_pending(Some(pending.clone())).await?;
        let Some(node) = node.filter(|_| !change.is_empty()) else { return Ok(()) };
        let config = &pending.config;
        match &change.image {
            Some(image) => {
                let message = format!(
                    "OS upgrade applied; new MachineConfig ({config}) has new OS image ({image})"
                );
                self.reporter.event(node, "OSUpgradeApplied", message);
            }
            None => {
                let previous = pending.previous.metadata.name.as_deref().unwrap_or_default();
                let image = DesiredOs::from_config(&pending.previous).image.unwrap_or_default();
                let message = format!(
                    "OS upgrade skipped; new MachineConfig ({config}) has same OS image ({image}) as old MachineConfig ({previous})"
                );
                self.reporter.event(node, "OSUpgradeSkipped", message);
            }
        }
        self.reporter.event(node, "OSUpdateStaged", "Changes to OS staged");
        Ok(())
    }

    /// Drops what is staged and not booted.
    pub(super) async fn unstage_os(&self) -> Result<()> {
        self.on_host_thread(|backend| backend.os.unstage()).await
    }

    /// Removes what was kept for a rollback. A failure is left to the next update.
    pub(super) async fn confirm_os(&mut self) {
        self.session.after(SessionEvent::OsConfirmed);
        if let Err(error) = self.on_host_thread(|backend| backend.os.confirm()).await {
            let error = format_args!("{error:#}");
            tracing::warn!(%error, "cannot clean up after the OS update");
        }
    }

    /// Compares the booted OS with a config.
    ///
    /// # Errors
    /// It differs, and there is no update to roll back.
    pub(super) async fn check_booted_os(
        &self,
        config: &MachineConfig,
        pending: Option<&PendingChange>,
    ) -> Result<BootedOs> {
        if !os_plan::needs_boot_check(config, pending, &self.boot_id) {
            return Ok(BootedOs::AsDesired);
        }
        let observed = observe_os(&self.os_backend).await?;
        let problem = match os_plan::boot_verdict(config, pending, &self.boot_id, &observed) {
            BootVerdict::StageAgain(again) => {
                tracing::warn!("the staged operating system was not deployed: staging it again");
                return Ok(BootedOs::StageAgain(again));
            }
            BootVerdict::NotBooted { problem } => {
                let problem = self.with_finalize_failure(problem).await;
                let check = "operating system".to_owned();
                return Ok(BootedOs::Failed(FailedCheck { check, problem }));
            }
            BootVerdict::Mismatch { problem } => Some(problem),
            BootVerdict::Matches => {
                let desired = DesiredOs::from_config(config);
                self.on_host_thread(move |backend| Ok(backend.os.problem(&desired))).await?
            }
        };
        let Some(problem) = problem else { return Ok(BootedOs::AsDesired) };
        let name = config.metadata.name.as_deref();
        let name = layered_image(config).or(name).unwrap_or_default();
        let problem = self.with_finalize_failure(problem).await;
        bail!("unexpected on-disk state validating against {name}: {problem}")
    }

    /// Reports how ostree deployed the staged OS at the reboot.
    pub(super) async fn finalize_annotations(&self, node: &Arc<Node>) -> NodeAnnotationPatch {
        if self.os_backend.kind == HostKind::Plain {
            return NodeAnnotationPatch::new();
        }
        let failure =
            self.on_host_thread(|backend| Ok(backend.finalize_failure())).await.ok().flatten();
        if let Some(failure) = &failure {
            self.reporter.warn(node, "FailedFinalization", failure.as_str());
        }
        annotations::finalize_failure(failure.as_deref())
    }

    /// Adds what ostree logged about a problem.
    async fn with_finalize_failure(&self, problem: String) -> String {
        let cause =
            self.on_host_thread(|backend| Ok(backend.finalize_failure())).await.ok().flatten();
        match cause {
            Some(cause) => format!("{problem}; possible root cause: {cause}"),
            None => problem,
        }
    }

    /// Reports that the disk could not be changed, and restores files and OS.
    pub(super) async fn undo_change(
        &mut self,
        node: &Arc<Node>,
        pending: &PendingChange,
        error: anyhow::Error,
    ) -> anyhow::Error {
        self.reporter.write_status(node, reports::apply_failed(&format!("{error:#}")));
        let unstaged = if pending.os.is_some() { self.unstage_os().await } else { Ok(()) };
        match self.disk.roll_back(pending).await.and(unstaged) {
            Ok(()) => error,
            Err(second) => error.context(format!("and the rollback failed: {second:#}")),
        }
    }
}
