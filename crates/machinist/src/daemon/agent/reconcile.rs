//! One turn: see, ask what comes next, do it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfig;
use machinist_core::api::names::annotation;
use machinist_core::apply::{EMPTY_CONFIG_NAME, empty_config};
use machinist_core::daemon::{
    AgentSnapshot, AgentStep, AgentWait, annotations, next_step, reports,
};
use machinist_core::node::NodeView;
use machinist_core::os::with_layered_image;
use tokio::time::Instant;

use super::super::state::DiskState;
use super::{Agent, NextReconcile, own_node};

/// How long a drain and an uncordon may take before that is an error.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3600);
const UNCORDON_TIMEOUT: Duration = Duration::from_secs(600);

impl Agent {
    /// One turn.
    pub(super) async fn reconcile(&mut self, node: &Arc<Node>) -> Result<NextReconcile> {
        if self.reboot_ordered {
            tracing::info!("Node {} is queued for a reboot, skipping sync.", self.own_node.name);
            return Ok(NextReconcile::Wait(None));
        }
        if let Some(recovered) = self.unreported_recovery.take() {
            self.reporter.warn(node, "InterruptedUpdateRecovered", recovered);
        }
        let state = self.disk.read().await?;
        let mut left = state.pending.clone();
        if let Some(left) =
            left.as_mut().filter(|left| self.actions_run_for.as_ref() == Some(&left.config))
        {
            left.actions.clear();
        }
        let step = next_step(&AgentSnapshot {
            node,
            config_on_disk: state.current_name(),
            image_on_disk: state.layered_image(),
            pending: left.as_ref(),
            boot_id: &self.boot_id,
            force: state.force_rewrite,
            is_disk_verified: self.is_checked,
        });
        tracing::debug!(?step, "next");
        if !matches!(step, AgentStep::Wait(_)) {
            self.waiting = None;
        }
        match step {
            AgentStep::Idle => self.idle(node, &state).await,
            AgentStep::Wait(wait) => self.wait_with_timeout(node, &wait),
            AgentStep::ReportInitialConfig => self.report_initial_config(&state).await,
            AgentStep::ReportReboot => self.report_reboot(node).await,
            AgentStep::DropPendingChange => {
                let disk =
                    state.current_name().unwrap_or(NodeView(node).current_config()).to_owned();
                let left = state.pending.and_then(|pending| pending.fallback(&disk));
                self.disk.set_pending(left).await?;
                Ok(NextReconcile::Immediately)
            }
            AgentStep::Update => self.update(node, state).await,
            AgentStep::RequestReboot { config } => {
                tracing::info!("{config} is in place and waits for the permission to restart");
                self.reporter.event(
                    node,
                    "RestartPending",
                    format!("{config} is in place and waits for the permission to restart"),
                );
                self.own_node.annotate(annotations::reboot_pending(&config)).await?;
                Ok(NextReconcile::Immediately)
            }
            AgentStep::Drain { config } => {
                self.request_drain(node, &config).await?;
                Ok(NextReconcile::Immediately)
            }
            AgentStep::RunActions => self.run_actions(node, state).await,
            AgentStep::Finish => self.finish_update(node, state).await,
        }
    }

    /// The config that the machine has: what is on its disk, else what its Node says.
    pub(super) async fn current_config(
        &self,
        node: &Node,
        state: &DiskState,
    ) -> Result<MachineConfig> {
        match (&state.current, NodeView(node).current_config()) {
            (Some(current), _) => Ok(current.clone()),
            (None, EMPTY_CONFIG_NAME) => Ok(empty_config()),
            (None, name) => {
                let image = NodeView(node).annotation(annotation::CURRENT_IMAGE);
                Ok(with_layered_image(own_node::get_config(&self.client, name).await?, image))
            }
        }
    }

    async fn idle(&mut self, node: &Arc<Node>, state: &DiskState) -> Result<NextReconcile> {
        self.failures = 0;
        if let Some(current) = state.current.as_ref().filter(|_| self.drift_watcher.is_none()) {
            self.start_watching(node, current).await;
            // Between the last look and the watch somebody may have done something.
            if self.has_drifted() {
                self.report_drift().await;
                return Ok(NextReconcile::Immediately);
            }
        }
        let config = NodeView(node).current_config();
        self.metrics.set_state(machinist_core::api::names::state::DONE, "");
        self.metrics.set_updated(config, "");
        self.reporter.write_status(node, reports::updated(&self.own_node.name));
        Ok(NextReconcile::Wait(None))
    }

    async fn report_initial_config(&mut self, state: &DiskState) -> Result<NextReconcile> {
        let wanted = annotations::initial_annotations(
            state.first_boot_annotations.as_ref(),
            state.current_name(),
            EMPTY_CONFIG_NAME,
        );
        tracing::info!("No current config on the Node: setting initial node config");
        let node = self.own_node.annotate(wanted).await?;
        if NodeView(&node).current_config().is_empty() {
            bail!(
                "{}: it does not say which config the machine has: put the annotations back that it came with",
                machinist_core::api::names::path::NODE_ANNOTATIONS
            );
        }
        Ok(NextReconcile::Immediately)
    }

    async fn report_reboot(&mut self, node: &Arc<Node>) -> Result<NextReconcile> {
        tracing::info!("Detected Rebooting Annotation, applying MCN.");
        self.reporter.write_status(node, reports::rebooted());
        let mut said = annotations::rebooting(false);
        said.extend(self.finalize_annotations(node).await);
        self.own_node.annotate(said).await?;
        Ok(NextReconcile::Immediately)
    }

    /// Waits for somebody else; says so when that takes too long.
    fn wait_with_timeout(&mut self, node: &Arc<Node>, wait: &AgentWait) -> Result<NextReconcile> {
        let (request, patience, what) = match wait {
            AgentWait::DesiredConfig | AgentWait::RebootApproval { .. } => {
                return Ok(NextReconcile::Wait(None));
            }
            AgentWait::Drain { request } => {
                (request, DRAIN_TIMEOUT, ("FailedToDrain", "drain", "1 hour"))
            }
            AgentWait::Uncordon { request } => {
                (request, UNCORDON_TIMEOUT, ("FailedToUncordon", "uncordon", "10 minutes"))
            }
        };
        let waited = match self.waiting.take() {
            Some((known, since, said)) if known == *request => (known, since, said),
            _ => (request.clone(), Instant::now(), false),
        };
        let (_, since, said) = &waited;
        let left = patience.saturating_sub(since.elapsed());
        let is_too_long = left.is_zero() && !said;
        self.waiting = Some((waited.0.clone(), *since, *said || is_too_long));
        if is_too_long {
            let (reason, verb, time) = what;
            let message = format!(
                "failed to {verb} node: {} after {time}. Please see machine-config-controller logs for more information",
                self.own_node.name
            );
            self.reporter.warn(node, reason, message.as_str());
            bail!(message);
        }
        Ok(NextReconcile::Wait((!left.is_zero()).then_some(left)))
    }

    /// Asks to be emptied.
    pub(super) async fn request_drain(&mut self, node: &Arc<Node>, config: &str) -> Result<()> {
        tracing::info!("Update prepared; requesting cordon and drain via annotation to controller");
        self.reporter.event(node, "Cordon", "Cordoned node to apply update");
        self.reporter.event(node, "Drain", "Draining node to update config.");
        self.own_node.annotate(annotations::request_drain(config)).await?;
        Ok(())
    }
}
