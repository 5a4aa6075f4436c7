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
use machinist_core::os::layered_image;
use machinist_core::rollout::NodeView;

use super::super::health::{self, Patient};
use super::super::state::State;
use super::os::Booted;
use super::{Agent, Flow};

/// What became of the question whether the machine is well.
pub(super) enum Well {
    /// It is.
    Yes,
    /// It is not known: the daemon is to stop, or another config is wanted.
    Unknown,
    /// It is not.
    No(FailedCheck),
}

impl Agent {
    /// Whether the desired config may be tried; if not, the machine has gone back from it.
    pub(super) async fn may_try(
        &mut self,
        node: &Arc<Node>,
        state: &State,
    ) -> Result<Option<Flow>> {
        let view = NodeView(node);
        let desired = view.desired_config();
        let marker = self.disk.recall().await?;
        let wanted = (desired, view.annotation(DESIRED_IMAGE).unwrap_or_default());
        match may_try(marker.as_ref(), wanted, view.annotation(RETRY), state.force) {
            RetryDecision::Allowed => {
                if marker.is_some() {
                    self.disk.forget().await?;
                }
                Ok(None)
            }
            RetryDecision::RetryRequested => {
                tracing::info!("{desired} is tried once more");
                self.disk.forget().await?;
                self.own.annotate(annotations::clear_retry()).await?;
                Ok(None)
            }
            RetryDecision::Denied { reason } => {
                self.stay_back(node, state, &reason).await.map(Some)
            }
        }
    }

    /// The machine is back on the config before: it gets work again, and says why it stays there.
    async fn stay_back(&mut self, node: &Arc<Node>, state: &State, reason: &str) -> Result<Flow> {
        let current = self.current(node, state).await?;
        let config = current.metadata.name.clone().unwrap_or_default();
        self.compare(node, &current).await?;
        if let Some(pending) = &state.pending {
            match self.is_booted(&current, Some(pending)).await? {
                Booted::Right => {}
                Booted::Lost(again) => {
                    self.disk.set_pending(Some(*again)).await?;
                    return Ok(Flow::Again);
                }
                Booted::Wrong(failing) => bail!("{failing}"),
            }
            if pending.os.is_some() {
                self.confirm_os().await;
            }
            self.disk.set_pending(None).await?;
            self.acted = None;
        }
        if !annotations::is_uncordoned(node, &config) {
            self.own.annotate(annotations::request_uncordon(&config)).await?;
            return Ok(Flow::Again);
        }
        self.is_checked = true;
        self.watch(node, &current).await;
        bail!(reason.to_owned())
    }

    /// Asks whether the machine is well on its config. Goes on asking until it is known, the daemon is
    /// to stop, or another config is wanted.
    pub(super) async fn is_well(&mut self, config: &MachineConfig) -> Result<Well> {
        let name = config.metadata.name.clone().unwrap_or_default();
        let Some(spec) = health::spec(config)? else { return Ok(Well::Yes) };
        if self.well.as_ref() == Some(&name) {
            return Ok(Well::Yes);
        }
        tracing::info!("asking whether the machine is well on {name}");
        let patient = Patient { root: self.disk.path(), client: Some(&self.client) };
        let mut changes = self.own.changes();
        let own = self.own.clone();
        let moved_on = async {
            while own.get().is_none_or(|node| NodeView(&node).desired_config() == name) {
                if changes.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => Ok(Well::Unknown),
            () = moved_on => Ok(Well::Unknown),
            answer = health::gate(&spec, patient) => Ok(match answer {
                Ok(()) => {
                    tracing::info!("the machine is well on {name}");
                    self.well = Some(name);
                    Well::Yes
                }
                Err(failing) => Well::No(failing),
            }),
        }
    }

    /// Goes back to the config before, by the same code and with the same actions as for any change.
    pub(super) async fn go_back(
        &mut self,
        node: &Arc<Node>,
        current: MachineConfig,
        pending: PendingChange,
        failing: FailedCheck,
    ) -> Result<Flow> {
        let name = |config: &MachineConfig| config.metadata.name.clone().unwrap_or_default();
        let previous = pending.previous.clone();
        let image = layered_image(&current).unwrap_or_default().to_owned();
        let marker =
            FailedConfig { config: name(&current), previous: name(&previous), image, failing };
        let reason = marker.reason();
        tracing::error!("{reason}");
        self.reporter.warn(node, "HealthCheckFailed", reason.as_str());
        self.disk.remember(marker).await?;
        let Some(change) = parse_both(&current, &previous) else {
            bail!("{reason}; the config before cannot be read");
        };
        self.protect(node, true);
        let os = self.plan_os_back(&current, &pending).await?;
        let mut back = pending.rollback(&self.boot);
        back.os = os;
        self.acted = None;
        let mut done =
            self.disk.change(current, previous, change, back.clone(), false).await.map(drop);
        if done.is_ok() {
            done = self.stage_os(Some(node), &mut back).await;
        }
        self.protect(node, false);
        done?;
        let says = annotations::failed(machinist_core::api::names::state::DEGRADED, &reason);
        if let Err(error) = self.own.annotate(says).await {
            // The config may have cut the machine off: all the more it has to go back.
            tracing::warn!("cannot say so on the Node: {error:#}");
        }
        Ok(Flow::Again)
    }

    /// A machine that cannot see its Node after a change may have been cut off by that very change: it
    /// is judged by what is on its disk. Ends when it has gone back; else never.
    pub(super) async fn judge_alone(&mut self) -> Result<()> {
        let state = self.disk.read().await?;
        let (Some(current), Some(pending)) = (state.current, state.pending) else {
            return std::future::pending().await;
        };
        let name = current.metadata.name.clone().unwrap_or_default();
        let is_due = pending.config == name
            && !pending.is_way_back
            && pending.remaining_actions(&self.boot).is_empty();
        let spec = if is_due { health::spec(&current)? } else { None };
        let Some(spec) = spec else { return std::future::pending().await };
        tracing::info!("asking whether the machine is well on {name}, without its Node");
        let patient = Patient { root: self.disk.path(), client: Some(&self.client) };
        let Err(failing) = health::gate(&spec, patient).await else {
            self.well = Some(name);
            return std::future::pending().await;
        };
        let previous = pending.previous.clone();
        let to = previous.metadata.name.clone().unwrap_or_default();
        let image = layered_image(&current).unwrap_or_default().to_owned();
        let marker = FailedConfig { config: name, previous: to, image, failing };
        tracing::error!("{}", marker.reason());
        self.disk.remember(marker).await?;
        let Some(change) = parse_both(&current, &previous) else {
            bail!("the config before cannot be read");
        };
        let os = self.plan_os_back(&current, &pending).await?;
        let mut back = pending.rollback(&self.boot);
        back.os = os;
        let restarts = back.needs_reboot(&self.boot);
        self.disk.change(current, previous, change, back.clone(), false).await?;
        self.stage_os(None, &mut back).await?;
        if restarts {
            self.restart_machine("Node will reboot into the config before").await?;
        }
        Ok(())
    }
}
