//! The health gate: a machine that is not well on its new config goes back by itself, and does not try
//! it again until it is told to.

use std::sync::Arc;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfig;
use machinist_core::api::names::annotation::DESIRED_IMAGE;
use machinist_core::api::names::annotation::machinist::RETRY;
use machinist_core::daemon::{PendingChange, annotations};
use machinist_core::diff::parse_both;
use machinist_core::health::{FailedCheck, FailedConfig, RetryDecision, may_try};
use machinist_core::node::NodeView;
use machinist_core::os::layered_image;

use super::super::health::{self, HealthTarget};
use super::super::state::DiskState;
use super::os::BootedOs;
use super::{Agent, NextReconcile};

/// What became of the question whether the machine is well.
pub(super) enum HealthOutcome {
    /// It is.
    Healthy,
    /// It is not known: the daemon is to stop, or another config is wanted.
    Unknown,
    /// It is not.
    Unhealthy(FailedCheck),
}

impl Agent {
    /// Whether the desired config may be tried; if not, the machine has gone back from it.
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
                tracing::info!("{desired} is tried once more");
                self.disk.clear_failed_config().await?;
                self.own_node.annotate(annotations::clear_retry()).await?;
                Ok(None)
            }
            RetryDecision::Denied { reason } => {
                self.stay_rolled_back(node, state, &reason).await.map(Some)
            }
        }
    }

    /// The machine is back on the config before: it gets work again, and says why it stays there.
    async fn stay_rolled_back(
        &mut self,
        node: &Arc<Node>,
        state: &DiskState,
        reason: &str,
    ) -> Result<NextReconcile> {
        let current = self.current_config(node, state).await?;
        let config = current.metadata.name.clone().unwrap_or_default();
        self.check_drift(node, &current).await?;
        if let Some(pending) = &state.pending {
            match self.check_booted_os(&current, Some(pending)).await? {
                BootedOs::AsWanted => {}
                BootedOs::NotStaged(again) => {
                    self.disk.set_pending(Some(*again)).await?;
                    return Ok(NextReconcile::Immediately);
                }
                BootedOs::Failed(failing) => bail!("{failing}"),
            }
            if pending.os.is_some() {
                self.confirm_os().await;
            }
            self.disk.set_pending(None).await?;
            self.actions_run_for = None;
        }
        if !annotations::is_uncordoned(node, &config) {
            self.own_node.annotate(annotations::request_uncordon(&config)).await?;
            return Ok(NextReconcile::Immediately);
        }
        self.is_checked = true;
        self.start_watching(node, &current).await;
        bail!(reason.to_owned())
    }

    /// Asks whether the machine is well on its config. Goes on asking until it is known, the daemon is
    /// to stop, or another config is wanted.
    pub(super) async fn check_health(&mut self, config: &MachineConfig) -> Result<HealthOutcome> {
        let name = config.metadata.name.clone().unwrap_or_default();
        let Some(spec) = health::spec(config)? else { return Ok(HealthOutcome::Healthy) };
        if self.healthy_on.as_ref() == Some(&name) {
            return Ok(HealthOutcome::Healthy);
        }
        tracing::info!("asking whether the machine is well on {name}");
        let patient = HealthTarget { root: self.disk.path(), client: Some(&self.client) };
        let mut changes = self.own_node.subscribe();
        let own = self.own_node.clone();
        let moved_on = async {
            while own.get().is_none_or(|node| NodeView(&node).desired_config() == name) {
                if changes.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => Ok(HealthOutcome::Unknown),
            () = moved_on => Ok(HealthOutcome::Unknown),
            answer = health::wait_until_healthy(&spec, patient) => Ok(match answer {
                Ok(()) => {
                    tracing::info!("the machine is well on {name}");
                    self.healthy_on = Some(name);
                    HealthOutcome::Healthy
                }
                Err(failing) => HealthOutcome::Unhealthy(failing),
            }),
        }
    }

    /// Goes back to the config before, by the same code and with the same actions as for any change.
    pub(super) async fn roll_back(
        &mut self,
        node: &Arc<Node>,
        current: MachineConfig,
        pending: PendingChange,
        failing: FailedCheck,
    ) -> Result<NextReconcile> {
        let name = |config: &MachineConfig| config.metadata.name.clone().unwrap_or_default();
        let previous = pending.previous.clone();
        let image = layered_image(&current).unwrap_or_default().to_owned();
        let marker =
            FailedConfig { config: name(&current), previous: name(&previous), image, failing };
        let reason = marker.reason();
        tracing::error!("{reason}");
        self.reporter.warn(node, "HealthCheckFailed", reason.as_str());
        self.disk.record_failed_config(marker).await?;
        let Some(change) = parse_both(&current, &previous) else {
            bail!("{reason}; the config before cannot be read");
        };
        self.set_sigterm_protection(node, true);
        let os = self.plan_os_rollback(&current, &pending).await?;
        let mut back = pending.rollback(&self.boot_id);
        back.os = os;
        self.actions_run_for = None;
        let mut done =
            self.disk.apply_change(current, previous, change, back.clone(), false).await.map(drop);
        if done.is_ok() {
            done = self.stage_os(Some(node), &mut back).await;
        }
        self.set_sigterm_protection(node, false);
        done?;
        let says = annotations::failed(machinist_core::api::names::state::DEGRADED, &reason);
        if let Err(error) = self.own_node.annotate(says).await {
            // The config may have cut the machine off: all the more it has to go back.
            tracing::warn!("cannot say so on the Node: {error:#}");
        }
        Ok(NextReconcile::Immediately)
    }

    /// A machine that cannot see its Node after a change may have been cut off by that very change: it
    /// is judged by what is on its disk. Ends when it has gone back; else never.
    pub(super) async fn check_health_offline(&mut self) -> Result<()> {
        let state = self.disk.read().await?;
        let (Some(current), Some(pending)) = (state.current, state.pending) else {
            return std::future::pending().await;
        };
        let name = current.metadata.name.clone().unwrap_or_default();
        let is_due = pending.config == name
            && !pending.is_way_back
            && pending.remaining_actions(&self.boot_id).is_empty();
        let spec = if is_due { health::spec(&current)? } else { None };
        let Some(spec) = spec else { return std::future::pending().await };
        tracing::info!("asking whether the machine is well on {name}, without its Node");
        let patient = HealthTarget { root: self.disk.path(), client: Some(&self.client) };
        let Err(failing) = health::wait_until_healthy(&spec, patient).await else {
            self.healthy_on = Some(name);
            return std::future::pending().await;
        };
        let previous = pending.previous.clone();
        let to = previous.metadata.name.clone().unwrap_or_default();
        let image = layered_image(&current).unwrap_or_default().to_owned();
        let marker = FailedConfig { config: name, previous: to, image, failing };
        tracing::error!("{}", marker.reason());
        self.disk.record_failed_config(marker).await?;
        let Some(change) = parse_both(&current, &previous) else {
            bail!("the config before cannot be read");
        };
        let os = self.plan_os_rollback(&current, &pending).await?;
        let mut back = pending.rollback(&self.boot_id);
        back.os = os;
        let restarts = back.needs_reboot(&self.boot_id);
        self.disk.apply_change(current, previous, change, back.clone(), false).await?;
        self.stage_os(None, &mut back).await?;
        if restarts {
            self.reboot_unreported("Node will reboot into the config before").await?;
        }
        Ok(())
    }
}
