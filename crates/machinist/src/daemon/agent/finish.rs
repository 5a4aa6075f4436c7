//! The end of an update: performs the steps that `core::daemon::finish` orders. Called by `reconcile` when nothing of a
//! change is left to do.

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfig;
use machinist_core::daemon::finish::{FinishFacts, FinishStep, done_annotations};
use machinist_core::daemon::{PendingChange, SessionEvent, annotations, reports};
use machinist_core::node::NodeView;
use machinist_core::os::layered_image;

use super::super::state::DiskState;
use super::drift_watch::HealPace;
use super::health_gate::HealthOutcome;
use super::os::BootedOs;
use super::{Agent, NextReconcile};

/// What the steps have in common.
struct FinishPass<'a> {
    node: &'a Arc<Node>,
    current: &'a MachineConfig,
    config: &'a str,
    state: &'a DiskState,
    /// Whether the disk is compared with its config for the first time since the daemon started.
    is_first_check: bool,
}

impl FinishPass<'_> {
    fn image(&self) -> Option<&str> {
        layered_image(self.current)
    }

    /// The change that failed, for a rollback.
    fn failed_change(&self) -> Result<PendingChange> {
        self.state.pending.clone().context("the failed change is not recorded on disk")
    }
}

impl Agent {
    /// Verifies OS, disk and health, requests an uncordon, and reports `Done`.
    pub(super) async fn finish_update(
        &mut self,
        node: &Arc<Node>,
        state: DiskState,
    ) -> Result<NextReconcile> {
        let current = self.current_config(node, &state).await?;
        let config = current.metadata.name.clone().unwrap_or_default();
        let pass = FinishPass {
            node,
            current: &current,
            config: &config,
            state: &state,
            is_first_check: !self.session.is_disk_verified,
        };
        let mut done = None;
        loop {
            let facts = FinishFacts {
                node,
                config: &config,
                pending: state.pending.as_ref(),
                boot_id: &self.boot_id,
                has_config_on_disk: state.current.is_some(),
                has_first_boot_annotations: state.first_boot_annotations.is_some(),
            };
            let Some(step) = facts.next(&self.session, done) else {
                return Ok(NextReconcile::Immediately);
            };
            if let Some(next) = self.perform_finish_step(step, &pass).await? {
                return Ok(next);
            }
            done = Some(step);
        }
    }

    /// Performs one step. `Some` ends the sequence.
    async fn perform_finish_step(
        &mut self,
        step: FinishStep,
        pass: &FinishPass<'_>,
    ) -> Result<Option<NextReconcile>> {
        let FinishPass { node, current, config, state, .. } = *pass;
        match step {
            FinishStep::VerifyOs => return self.verify_os(pass).await,
            FinishStep::VerifyDisk => {
                let checked = self.check_drift(node, current, HealPace::Limited).await;
                checked.inspect_err(|error| self.report_unverified(pass, error))?;
            }
            FinishStep::CheckHealth => match self.check_health(current).await? {
                HealthOutcome::Healthy => {}
                HealthOutcome::Unknown => return Ok(Some(NextReconcile::Immediately)),
                HealthOutcome::Unhealthy(failing) => {
                    let pending = pass.failed_change()?;
                    return self.roll_back(node, current.clone(), pending, failing).await.map(Some);
                }
            },
            FinishStep::AdoptConfig => self.disk.adopt(current.clone()).await?,
            FinishStep::EndFirstBoot => {
                for note in self.disk.end_first_boot().await? {
                    // MCO's literal line.
                    tracing::warn!("{note}");
                }
            }
            FinishStep::ReportVerified => {
                if state.pending.is_some() {
                    self.reporter.write_status(node, reports::succeeded(&self.own_node.name));
                }
                self.reporter.write_status(node, reports::resumed(config));
            }
            FinishStep::RequestUncordon => {
                self.own_node.annotate(annotations::request_uncordon(config)).await?;
                let node = self.own_node.get();
                // The next step waits for the controller.
                if node.is_some_and(|node| !annotations::is_uncordoned(&node, config)) {
                    return Ok(Some(NextReconcile::Immediately));
                }
            }
            FinishStep::ConfirmOs => self.confirm_os().await,
            FinishStep::CheckLeftovers => {
                let problem = match self.disk.quarantine_reason().await? {
                    Some(reason) => Some(anyhow!(reason)),
                    None => self.resolve_conflicts(node).await?.map(Into::into),
                };
                if let Some(problem) = problem {
                    return self
                        .mark_degraded(node, current, pass.image(), problem)
                        .await
                        .map(Some);
                }
            }
            FinishStep::ReportDone => self.mark_done(pass).await?,
            FinishStep::RestartDaemon => self.restart_daemon(node).await,
        }
        Ok(None)
    }

    async fn verify_os(&mut self, pass: &FinishPass<'_>) -> Result<Option<NextReconcile>> {
        let pending = pass.state.pending.as_ref();
        match self.check_booted_os(pass.current, pending).await {
            Ok(BootedOs::AsDesired) => Ok(None),
            Ok(BootedOs::StageAgain(again)) => {
                self.disk.set_pending(Some(*again)).await?;
                Ok(Some(NextReconcile::Immediately))
            }
            Ok(BootedOs::Failed(failing)) => {
                let (current, pending) = (pass.current.clone(), pass.failed_change()?);
                self.roll_back(pass.node, current, pending, failing).await.map(Some)
            }
            Err(error) => {
                self.report_unverified(pass, &error);
                Err(error)
            }
        }
    }

    fn report_unverified(&self, pass: &FinishPass<'_>, error: &anyhow::Error) {
        if pass.is_first_check {
            let message = format!("{error:#}");
            self.reporter.warn(pass.node, "OnDiskStateValidationFailed", message);
        }
    }

    /// Completes a change on a machine with a path that an earlier change left wrong, or that is fought
    /// over. The machine has its config, and stays degraded until that is over.
    async fn mark_degraded(
        &mut self,
        node: &Arc<Node>,
        current: &MachineConfig,
        image: Option<&str>,
        error: anyhow::Error,
    ) -> Result<NextReconcile> {
        let reason = error.to_string();
        let config = current.metadata.name.as_deref().unwrap_or_default();
        self.disk.set_pending(None).await?;
        self.session.after(SessionEvent::ChangeCompleted);
        self.disk.clear_failed_config().await?;
        self.own_node.annotate(annotations::done_but_degraded(config, image, &reason)).await?;
        self.metrics.set_updated(config, "");
        self.session.after(SessionEvent::DiskVerified);
        // Other paths are watched and healed meanwhile.
        self.start_watching(node, current).await;
        Err(error)
    }

    async fn mark_done(&mut self, pass: &FinishPass<'_>) -> Result<()> {
        let FinishPass { node, config, state, .. } = *pass;
        let image = pass.image();
        self.disk.set_pending(None).await?;
        self.session.after(SessionEvent::ChangeCompleted);
        self.disk.clear_failed_config().await?;
        // A machine without the cluster's certificates is not done.
        self.refresh_certificates().await?;
        let done = done_annotations(node, config, image, state.pending.as_ref());
        if !annotations::changed_only(node, done.clone()).is_empty() {
            let message =
                format!("Update completed for config {config} and node has been uncordoned");
            self.reporter.event(node, "Uncordon", message);
            let name = &self.own_node.name;
            let message = format!("Setting node {name}, currentConfig {config} to Done");
            self.reporter.event(node, "NodeDone", message);
            let node = self.own_node.annotate(done).await?;
            let image = image.map(|image| format!(" / Image: {image}")).unwrap_or_default();
            // MCO's literal line.
            tracing::info!("In desired state MachineConfig: {config}{image}");
            self.reporter.write_status(&node, reports::updated(name));
        }
        self.session.after(SessionEvent::UpdateFinished);
        let state = self.own_node.get().map(|node| NodeView(&node).state().to_owned());
        self.metrics.set_state(&state.unwrap_or_default(), "");
        self.metrics.set_updated(config, "");
        Ok(())
    }
}
