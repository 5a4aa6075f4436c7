//! The health gate: a machine that fails its health checks on a new config rolls back on its own, and
//! does not try that config again until a person asks for it. Called by `update` and `post_apply`.

use std::sync::Arc;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfig;
use machinist_core::api::names::annotation::DESIRED_IMAGE;
use machinist_core::api::names::annotation::machinist::RETRY;
use machinist_core::api::names::state::DEGRADED;
use machinist_core::daemon::update::needs_offline_health_check;
use machinist_core::daemon::{PendingChange, Phase, SessionEvent, annotations};
use machinist_core::health::{FailedCheck, FailedConfig, RetryDecision, may_try};
use machinist_core::node::NodeView;
use machinist_core::os::layered_image;

use super::super::health::{self, HealthTarget};
use super::super::state::DiskState;
use super::drift_watch::HealPace;
use super::kubelet_health::{self, RESTART_DEADLINE};
use super::os::{BootedOs, plan_os_rollback};
use super::{Agent, NextReconcile};

/// The result of the health checks.
pub(super) enum HealthOutcome {
    /// All checks passed.
    Healthy,
    /// Not known: the daemon has to stop, or another config is desired.
    Unknown,
    /// A check failed until the deadline.
    Unhealthy(FailedCheck),
}

impl Agent {
    /// Whether the desired config may be tried. `Some` means no: the machine rolled back from it.
    pub(super) async fn may_try(
        &mut self,
        node: &Arc<Node>,
        state: &DiskState,
    ) -> Result<Option<NextReconcile>> {
        let view = NodeView(node);
        let desired = view.desired_config();
        let marker = self.disk.failed_config().await?;
        let wanted = (desired, view.annotation(DESIRED_IMAGE).unwrap_or_default());
        match may_try(marker.as_ref(), wanted, view.annotation(RETRY), state.force_rewrite) {
            RetryDecision::Allowed => {
                if marker.is_some() {
                    self.disk.clear_failed_config().await?;
                }
                Ok(None)
            }
            RetryDecision::RetryRequested => {
                tracing::info!(config = desired, "retrying a failed config on request");
                self.disk.clear_failed_config().await?;
                self.own_node.annotate(annotations::clear_retry()).await?;
                Ok(None)
            }
            RetryDecision::Denied { reason } => {
                self.stay_rolled_back(node, state, &reason).await.map(Some)
            }
        }
    }

    /// Finishes a rollback: the machine is uncordoned, and reports why it stays on the previous config.
    async fn stay_rolled_back(
        &mut self,
        node: &Arc<Node>,
        state: &DiskState,
        reason: &str,
    ) -> Result<NextReconcile> {
        let current = self.current_config(node, state).await?;
        let config = current.metadata.name.clone().unwrap_or_default();
        self.check_drift(node, &current, HealPace::Limited).await?;
        if let Some(pending) = &state.pending {
            match self.check_booted_os(&current, Some(pending)).await? {
                BootedOs::AsDesired => {}
                BootedOs::StageAgain(again) => {
                    self.disk.set_pending(Some(*again)).await?;
                    return Ok(NextReconcile::Immediately);
                }
                BootedOs::Failed(failing) => bail!("{failing}"),
            }
            if pending.os.is_some() {
                self.confirm_os().await;
            }
            self.disk.set_pending(None).await?;
            self.session.after(SessionEvent::ChangeCompleted);
        }
        if !annotations::is_uncordoned(node, &config) {
            self.own_node.annotate(annotations::request_uncordon(&config)).await?;
            return Ok(NextReconcile::Immediately);
        }
        self.session.after(SessionEvent::DiskVerified);
        self.start_watching(node, &current).await;
        bail!(reason.to_owned())
    }

    /// Runs the health checks of a config until they pass, the deadline is over, the daemon has to stop,
    /// or another config is desired.
    pub(super) async fn check_health(&mut self, config: &MachineConfig) -> Result<HealthOutcome> {
        let name = config.metadata.name.clone().unwrap_or_default();
        let spec = health::spec(config)?;
        let kubelet = self.kubelet.as_ref().filter(|_| self.session.has_kubelet_run);
        if spec.is_none() && kubelet.is_none() {
            return Ok(HealthOutcome::Healthy);
        }
        tracing::info!(config = name, "checking the health of the machine");
        let target = HealthTarget { root: self.disk.path(), client: Some(&self.client) };
        let checked = async {
            if let Some(spec) = &spec {
                health::wait_until_healthy(spec, target).await?;
            }
            match kubelet {
                Some(endpoint) => {
                    kubelet_health::wait_until_running(endpoint, RESTART_DEADLINE).await
                }
                None => Ok(()),
            }
        };
        let mut changes = self.own_node.subscribe();
        let own_node = self.own_node.clone();
        let superseded = async {
            while own_node.get().is_none_or(|node| NodeView(&node).desired_config() == name) {
                if changes.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => Ok(HealthOutcome::Unknown),
            () = superseded => Ok(HealthOutcome::Unknown),
            result = checked => Ok(match result {
                Ok(()) => {
                    tracing::info!(config = name, "the machine is healthy");
                    self.session.after(SessionEvent::HealthPassed { config: name });
                    HealthOutcome::Healthy
                }
                Err(failing) => HealthOutcome::Unhealthy(failing),
            }),
        }
    }

    /// Rolls back to the previous config, with the same code and actions as for any update.
    pub(super) async fn roll_back(
        &mut self,
        node: &Arc<Node>,
        current: MachineConfig,
        pending: PendingChange,
        failing: FailedCheck,
    ) -> Result<NextReconcile> {
        let marker = failed_config(&current, &pending, failing);
        let reason = marker.reason();
        tracing::error!(reason, "rolling back");
        self.reporter.warn(node, "HealthCheckFailed", reason.as_str());
        self.disk.record_failed_config(marker).await?;
        self.enter(node, Phase::RollingBack);
        let written = self.write_rollback(Some(node), current, pending).await;
        self.enter(node, Phase::Idle);
        written?;
        let desired = NodeView(node).desired_config();
        let patch = annotations::failed(DEGRADED, &reason, desired, &[]);
        if let Err(error) = self.own_node.annotate(patch).await {
            // The failed config may have cut the machine off, which makes the rollback all the more
            // necessary.
            let error = format_args!("{error:#}");
            tracing::warn!(%error, "cannot report the rollback on the Node");
        }
        Ok(NextReconcile::Immediately)
    }

    /// Writes the previous config and stages the previous OS. Returns what is left to do.
    async fn write_rollback(
        &mut self,
        node: Option<&Arc<Node>>,
        current: MachineConfig,
        pending: PendingChange,
    ) -> Result<PendingChange> {
        let previous = pending.previous.clone();
        let os = plan_os_rollback(&self.os_backend, &current, &pending).await?;
        let mut rollback = pending.rollback(&self.boot_id);
        rollback.os = os;
        self.session.after(SessionEvent::WriteStarted);
        self.disk.apply_change(current, previous, rollback.clone(), false).await?;
        self.stage_os(node, &mut rollback).await?;
        Ok(rollback)
    }

    /// Checks the health of a machine that cannot see its Node after a change, because that change may
    /// have cut it off. Returns when the machine has rolled back, otherwise never.
    pub(super) async fn check_health_offline(&mut self) -> Result<()> {
        let state = self.disk.read().await?;
        let (Some(current), Some(pending)) = (state.current, state.pending) else {
            return std::future::pending().await;
        };
        let config = current.metadata.name.clone().unwrap_or_default();
        let is_due = needs_offline_health_check(&config, &pending, &self.boot_id);
        let spec = if is_due { health::spec(&current)? } else { None };
        let Some(spec) = spec else { return std::future::pending().await };
        tracing::info!(config, "checking the health of the machine without its Node");
        let target = HealthTarget { root: self.disk.path(), client: Some(&self.client) };
        let Err(failing) = health::wait_until_healthy(&spec, target).await else {
            self.session.after(SessionEvent::HealthPassed { config });
            return std::future::pending().await;
        };
        let marker = failed_config(&current, &pending, failing);
        tracing::error!(reason = marker.reason(), "rolling back");
        self.disk.record_failed_config(marker).await?;
        let rollback = self.write_rollback(None, current, pending).await?;
        if rollback.needs_reboot(&self.boot_id) {
            self.reboot_unreported("Node will reboot into the config before").await?;
        }
        Ok(())
    }
}

/// The record that keeps a machine from trying a failed config again.
pub(super) fn failed_config(
    current: &MachineConfig,
    pending: &PendingChange,
    failing: FailedCheck,
) -> FailedConfig {
    let name = |config: &MachineConfig| config.metadata.name.clone().unwrap_or_default();
    let image = layered_image(current).unwrap_or_default().to_owned();
    FailedConfig { config: name(current), previous: name(&pending.previous), image, failing }
}
