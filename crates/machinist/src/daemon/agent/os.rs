//! The operating system beneath the files: planned and fetched before the drain, staged after the
//! files, looked at after the restart.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfig;
use machinist_core::daemon::annotations::{self, NodeAnnotationPatch};
use machinist_core::daemon::{PendingChange, PendingOsChange, reports};
use machinist_core::health::FailedCheck;
use machinist_core::os::host::HostKind;
use machinist_core::os::verify_boot::{
    BootOutcome, MAX_STAGE_ATTEMPTS, after_reboot, image_mismatch, kernel_arguments_mismatch,
};
use machinist_core::os::{DesiredOs, OsChange, OsStatus, layered_image};

use super::super::os::detect::OsBackend;
use super::super::state::DiskState;
use super::Agent;

/// What the operating system is found to be after a change.
pub(super) enum BootedOs {
    /// As the config wants it.
    AsWanted,
    /// It was not put in place: the change has to be made once more.
    NotStaged(Box<PendingChange>),
    /// It does not come up: the machine has to go back.
    Failed(FailedCheck),
}

/// What is seen of an operating system.
struct OsObservation {
    status: OsStatus,
    command_line: Option<String>,
}

impl Agent {
    /// Asks the host or has it do something, on a thread of its own.
    async fn on_host_thread<T: Send + 'static>(
        &self,
        act: impl FnOnce(&OsBackend) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let found = Arc::clone(&self.os_backend);
        let done = tokio::task::spawn_blocking(move || act(&found)).await;
        done.context("the work on the operating system broke off")?
    }

    async fn observe_os(&self) -> Result<OsObservation> {
        self.on_host_thread(|found| {
            Ok(OsObservation { status: found.os.status()?, command_line: found.command_line() })
        })
        .await
    }

    /// What a change does to the operating system; nothing where it does nothing to it.
    pub(super) async fn plan_os(
        &self,
        old: &MachineConfig,
        new: &MachineConfig,
        state: &DiskState,
    ) -> Result<Option<PendingOsChange>> {
        let earlier = state.pending.as_ref().filter(|earlier| earlier.os.is_some());
        let (mut base, wanted) = (DesiredOs::from_config(old), DesiredOs::from_config(new));
        if earlier.is_none() && base == wanted && !state.force_rewrite {
            return Ok(None);
        }
        let OsObservation { status, command_line: line } = self.observe_os().await?;
        let (mut was, mut is_open) = (status.booted.clone(), false);
        if let Some((earlier, step)) = earlier.and_then(|it| it.os.as_ref().map(|os| (it, os))) {
            // The machine may still run, or run again, what it had before the earlier change.
            is_open = earlier.needs_reboot(&self.boot_id);
            let outcome = after_reboot(
                &step.change,
                &step.was,
                &base,
                &status,
                line.as_deref(),
                MAX_STAGE_ATTEMPTS,
            );
            // The files of a host of packages say what comes next, whatever is booted.
            let is_old = outcome != BootOutcome::Booted && self.os_backend.kind != HostKind::Plain;
            if is_open || is_old {
                base = DesiredOs::from_config(&earlier.previous);
            }
            was = step.was.clone();
        }
        let mut change = OsChange::between(&base, &wanted, &status.booted);
        if state.force_rewrite {
            let repair =
                OsChange::repair(&wanted, &status.booted, line.as_deref().unwrap_or_default());
            change.image = change.image.or(repair.image);
            if change.kernel_arguments.is_empty() && line.is_some() {
                change.kernel_arguments = repair.kernel_arguments;
            }
        }
        if change.is_empty() && earlier.is_none() {
            return Ok(None);
        }
        let is_staged = change.is_empty() && !is_open;
        Ok(Some(PendingOsChange { change, was, is_staged, attempts: 0 }))
    }

    /// Why the host cannot make a change.
    pub(super) async fn os_refusal(
        &self,
        step: Option<&PendingOsChange>,
    ) -> Result<Option<String>> {
        let Some(change) = step.map(|step| step.change.clone()) else { return Ok(None) };
        if !change.kernel_arguments.is_empty() && !self.os_backend.supports_kernel_arguments {
            tracing::warn!(
                "spec.kernelArguments: nobody reads them here: {}",
                self.os_backend.reason
            );
        }
        self.on_host_thread(move |found| Ok(found.os.refusal(&change))).await
    }

    /// Brings everything onto the machine that a change needs. Nothing has been written yet: whoever
    /// is told to stop meanwhile goes; false then.
    pub(super) async fn fetch_os(
        &mut self,
        node: &Arc<Node>,
        step: Option<&PendingOsChange>,
    ) -> Result<bool> {
        let change = step.map(|step| &step.change).filter(|change| !change.is_empty());
        let Some(change) = change.filter(|change| self.fetched_os_change.as_ref() != Some(change))
        else {
            return Ok(true);
        };
        if change.image.is_some() || change.kernel_type.is_some() || change.extensions.is_some() {
            let image = change.image.as_deref().unwrap_or_default();
            let text = format!("Updating from oscontainer {image}");
            self.reporter.event(node, "InClusterUpgrade", text);
        }
        self.reporter.event(node, "OSUpdateStarted", change.describe());
        tracing::info!("operating system: {}", change.describe());
        let asked = change.clone();
        self.set_sigterm_protection(node, false);
        tokio::select! {
            () = self.stop.cancelled() => return Ok(false),
            fetched = self.on_host_thread(move |found| found.os.fetch(&asked)) => fetched?,
        }
        self.set_sigterm_protection(node, true);
        self.fetched_os_change = Some(change.clone());
        Ok(true)
    }

    /// Makes the change of a pending one for the next boot, unless it is made.
    pub(super) async fn stage_os(
        &mut self,
        node: Option<&Arc<Node>>,
        pending: &mut PendingChange,
    ) -> Result<()> {
        let Some(step) = pending.os.as_mut().filter(|step| !step.is_staged) else { return Ok(()) };
        let (change, now) = (step.change.clone(), pending.is_way_back);
        if change.is_empty() {
            self.unstage_os().await?;
        } else {
            let asked = change.clone();
            self.on_host_thread(move |found| found.os.stage(&asked, now)).await.inspect_err(
                |_| {
                    self.metrics.set_pivot_failed(true);
                },
            )?;
            self.metrics.set_pivot_failed(false);
        }
        step.is_staged = true;
        self.disk.set_pending(Some(pending.clone())).await?;
        let Some(node) = node.filter(|_| !change.is_empty()) else { return Ok(()) };
        let config = &pending.config;
        match &change.image {
            Some(image) => {
                let text = format!(
                    "OS upgrade applied; new MachineConfig ({config}) has new OS image ({image})"
                );
                self.reporter.event(node, "OSUpgradeApplied", text);
            }
            None => {
                let previous = pending.previous.metadata.name.as_deref().unwrap_or_default();
                let image = DesiredOs::from_config(&pending.previous).image.unwrap_or_default();
                let text = format!(
                    "OS upgrade skipped; new MachineConfig ({config}) has same OS image ({image}) as old MachineConfig ({previous})"
                );
                self.reporter.event(node, "OSUpgradeSkipped", text);
            }
        }
        self.reporter.event(node, "OSUpdateStaged", "Changes to OS staged");
        Ok(())
    }

    /// Takes back what has not been booted.
    pub(super) async fn unstage_os(&self) -> Result<()> {
        self.on_host_thread(|found| found.os.unstage()).await
    }

    /// The change has proved itself. What cannot be cleaned up now is the next one's.
    pub(super) async fn confirm_os(&mut self) {
        self.fetched_os_change = None;
        if let Err(error) = self.on_host_thread(|found| found.os.confirm()).await {
            tracing::warn!(
                "what the change of the operating system has left is not cleaned up: {error:#}"
            );
        }
    }

    /// Whether the machine runs what its config wants.
    pub(super) async fn check_booted_os(
        &self,
        config: &MachineConfig,
        pending: Option<&PendingChange>,
    ) -> Result<BootedOs> {
        let wanted = DesiredOs::from_config(config);
        let pending = pending.filter(|pending| pending.boot != self.boot_id);
        let step = pending.and_then(|pending| pending.os.as_ref());
        if step.is_none()
            && wanted
                == (DesiredOs { kernel_type: wanted.kernel_type.clone(), ..DesiredOs::default() })
        {
            return Ok(BootedOs::AsWanted);
        }
        let OsObservation { status, command_line: line } = self.observe_os().await?;
        if let (Some(pending), Some(step)) = (pending, step) {
            // A host of packages loses nothing: what is in its files is there.
            let attempts = if self.os_backend.kind == HostKind::Plain {
                MAX_STAGE_ATTEMPTS
            } else {
                step.attempts
            };
            let line = line.as_deref();
            match after_reboot(&step.change, &step.was, &wanted, &status, line, attempts) {
                BootOutcome::Lost => {
                    tracing::warn!(
                        "the operating system was not put in place at the restart: it is staged once more"
                    );
                    return Ok(BootedOs::NotStaged(Box::new(pending.clone().retry(&self.boot_id))));
                }
                BootOutcome::NotBooted { problem } if !pending.is_way_back => {
                    let problem = self.with_finalize_failure(problem).await;
                    return Ok(BootedOs::Failed(FailedCheck {
                        check: "operating system".to_owned(),
                        problem,
                    }));
                }
                // Whoever is on the way back has nowhere else to go: it is told below.
                BootOutcome::Booted | BootOutcome::NotBooted { .. } => {}
            }
        }
        let image = (self.os_backend.kind != HostKind::Plain)
            .then(|| image_mismatch(&wanted, &status.booted));
        let arguments =
            || line.as_deref().and_then(|line| kernel_arguments_mismatch(&wanted, line));
        let problem = match image.flatten().or_else(arguments) {
            Some(problem) => Some(problem),
            None => {
                let wanted = wanted.clone();
                self.on_host_thread(move |found| Ok(found.os.problem(&wanted))).await?
            }
        };
        let Some(problem) = problem else { return Ok(BootedOs::AsWanted) };
        let name = config.metadata.name.as_deref();
        let name = layered_image(config).or(name).unwrap_or_default();
        let problem = self.with_finalize_failure(problem).await;
        bail!("unexpected on-disk state validating against {name}: {problem}")
    }

    /// What there is to say about how the staged operating system was put in place at the restart.
    pub(super) async fn finalize_annotations(&self, node: &Arc<Node>) -> NodeAnnotationPatch {
        if self.os_backend.kind == HostKind::Plain {
            return NodeAnnotationPatch::new();
        }
        let failure =
            self.on_host_thread(|found| Ok(found.finalize_failure())).await.ok().flatten();
        if let Some(failure) = &failure {
            self.reporter.warn(node, "FailedFinalization", failure.as_str());
        }
        annotations::finalize_failure(failure.as_deref())
    }

    /// A problem together with what ostree has said about it.
    async fn with_finalize_failure(&self, problem: String) -> String {
        let cause = self.on_host_thread(|found| Ok(found.finalize_failure())).await.ok().flatten();
        match cause {
            Some(cause) => format!("{problem}; possible root cause: {cause}"),
            None => problem,
        }
    }

    /// The way back from a change, as far as it is about the operating system.
    pub(super) async fn plan_os_rollback(
        &self,
        config: &MachineConfig,
        pending: &PendingChange,
    ) -> Result<Option<PendingOsChange>> {
        let Some(step) = &pending.os else { return Ok(None) };
        let OsObservation { status, command_line: line } = self.observe_os().await?;
        let (now, before) =
            (DesiredOs::from_config(config), DesiredOs::from_config(&pending.previous));
        let line = line.as_deref();
        let outcome =
            after_reboot(&step.change, &step.was, &now, &status, line, MAX_STAGE_ATTEMPTS);
        let change = match outcome {
            BootOutcome::Booted => OsChange::rollback(&now, &before, &status.booted, &step.was),
            // What is in the files of a host of packages is there, booted or not.
            _ if self.os_backend.kind == HostKind::Plain => {
                OsChange::between(&now, &before, &status.booted)
            }
            // What does not come up has not been left: it only has to go.
            BootOutcome::Lost | BootOutcome::NotBooted { .. } => OsChange::default(),
        };
        Ok(Some(PendingOsChange { change, was: status.booted, is_staged: false, attempts: 0 }))
    }

    /// Tells that the disk could not be changed, and puts everything back.
    pub(super) async fn undo_change(
        &mut self,
        node: &Arc<Node>,
        pending: &PendingChange,
        error: anyhow::Error,
    ) -> anyhow::Error {
        self.reporter.write_status(node, reports::apply_failed(&format!("{error:#}")));
        let has_os = pending.os.is_some();
        let dropped = if has_os { self.unstage_os().await } else { Ok(()) };
        match self.disk.roll_back(pending).await.and(dropped) {
            Ok(()) => error,
            Err(second) => error.context(format!("and going back failed: {second:#}")),
        }
    }
}
