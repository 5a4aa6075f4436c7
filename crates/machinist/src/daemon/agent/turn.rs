//! One turn: see, ask what comes next, do it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfig;
use machinist_core::api::names::annotation;
use machinist_core::apply::{EMPTY_CONFIG_NAME, empty_config};
use machinist_core::daemon::{
    DaemonSnapshot, DaemonStep, DaemonWait, annotations, next_step, reports,
};
use machinist_core::os::with_layered_image;
use machinist_core::rollout::NodeView;
use tokio::time::Instant;

use super::super::state::State;
use super::{Agent, Flow, node};

/// How long a drain and an uncordon may take before that is an error.
const DRAIN_PATIENCE: Duration = Duration::from_secs(3600);
const UNCORDON_PATIENCE: Duration = Duration::from_secs(600);

impl Agent {
    /// One turn.
    pub(super) async fn turn(&mut self, node: &Arc<Node>) -> Result<Flow> {
        if self.goes_down {
            tracing::info!("Node {} is queued for a reboot, skipping sync.", self.own.name);
            return Ok(Flow::Wait(None));
        }
        if let Some(recovered) = self.recovered.take() {
            self.reporter.warn(node, "InterruptedUpdateRecovered", recovered);
        }
        let state = self.disk.read().await?;
        let mut left = state.pending.clone();
        if let Some(left) = left.as_mut().filter(|left| self.acted.as_ref() == Some(&left.config)) {
            left.actions.clear();
        }
        let step = next_step(&DaemonSnapshot {
            node,
            config_on_disk: state.disk(),
            image_on_disk: state.image(),
            pending: left.as_ref(),
            boot_id: &self.boot,
            force: state.force,
            is_disk_verified: self.is_checked,
        });
        tracing::debug!(?step, "next");
        if !matches!(step, DaemonStep::Wait(_)) {
            self.waited = None;
        }
        match step {
            DaemonStep::Idle => self.rest(node, &state).await,
            DaemonStep::Wait(wait) => self.wait(node, &wait),
            DaemonStep::ReportInitialConfig => self.introduce(&state).await,
            DaemonStep::ReportReboot => self.say_restarted(node).await,
            DaemonStep::DropPendingChange => {
                let disk = state.disk().unwrap_or(NodeView(node).current_config()).to_owned();
                let left = state.pending.and_then(|pending| pending.fallback(&disk));
                self.disk.set_pending(left).await?;
                Ok(Flow::Again)
            }
            DaemonStep::Update => self.update(node, state).await,
            DaemonStep::RequestReboot { config } => {
                tracing::info!("{config} is in place and waits for the permission to restart");
                self.reporter.event(
                    node,
                    "RestartPending",
                    format!("{config} is in place and waits for the permission to restart"),
                );
                self.own.annotate(annotations::reboot_pending(&config)).await?;
                Ok(Flow::Again)
            }
            DaemonStep::Drain { config } => {
                self.request_drain(node, &config).await?;
                Ok(Flow::Again)
            }
            DaemonStep::RunActions => self.act(node, state).await,
            DaemonStep::Finish => self.finish(node, state).await,
        }
    }

    /// The config that the machine has: what is on its disk, else what its Node says.
    pub(super) async fn current(&self, node: &Node, state: &State) -> Result<MachineConfig> {
        match (&state.current, NodeView(node).current_config()) {
            (Some(current), _) => Ok(current.clone()),
            (None, EMPTY_CONFIG_NAME) => Ok(empty_config()),
            (None, name) => {
                let image = NodeView(node).annotation(annotation::CURRENT_IMAGE);
                Ok(with_layered_image(node::config(&self.client, name).await?, image))
            }
        }
    }

    async fn rest(&mut self, node: &Arc<Node>, state: &State) -> Result<Flow> {
        self.failures = 0;
        if let Some(current) = state.current.as_ref().filter(|_| self.watch.is_none()) {
            self.watch(node, current).await;
            // Between the last look and the watch somebody may have done something.
            if self.has_drifted() {
                self.drifted().await;
                return Ok(Flow::Again);
            }
        }
        let config = NodeView(node).current_config();
        self.metrics.state(machinist_core::api::names::state::DONE, "");
        self.metrics.updated(config, "");
        self.reporter.tell(node, reports::updated(&self.own.name));
        Ok(Flow::Wait(None))
    }

    async fn introduce(&mut self, state: &State) -> Result<Flow> {
        let wanted = annotations::initial_annotations(
            state.first_boot.as_ref(),
            state.disk(),
            EMPTY_CONFIG_NAME,
        );
        tracing::info!("No current config on the Node: setting initial node config");
        let node = self.own.annotate(wanted).await?;
        if NodeView(&node).current_config().is_empty() {
            bail!(
                "{}: it does not say which config the machine has: put the annotations back that it came with",
                machinist_core::api::names::path::NODE_ANNOTATIONS
            );
        }
        Ok(Flow::Again)
    }

    async fn say_restarted(&mut self, node: &Arc<Node>) -> Result<Flow> {
        tracing::info!("Detected Rebooting Annotation, applying MCN.");
        self.reporter.tell(node, reports::rebooted());
        let mut said = annotations::rebooting(false);
        said.extend(self.tell_finalized(node).await);
        self.own.annotate(said).await?;
        Ok(Flow::Again)
    }

    /// Waits for somebody else; says so when that takes too long.
    fn wait(&mut self, node: &Arc<Node>, wait: &DaemonWait) -> Result<Flow> {
        let (request, patience, what) = match wait {
            DaemonWait::DesiredConfig | DaemonWait::RebootApproval { .. } => {
                return Ok(Flow::Wait(None));
            }
            DaemonWait::Drain { request } => {
                (request, DRAIN_PATIENCE, ("FailedToDrain", "drain", "1 hour"))
            }
            DaemonWait::Uncordon { request } => {
                (request, UNCORDON_PATIENCE, ("FailedToUncordon", "uncordon", "10 minutes"))
            }
        };
        let waited = match self.waited.take() {
            Some((known, since, said)) if known == *request => (known, since, said),
            _ => (request.clone(), Instant::now(), false),
        };
        let (_, since, said) = &waited;
        let left = patience.saturating_sub(since.elapsed());
        let is_too_long = left.is_zero() && !said;
        self.waited = Some((waited.0.clone(), *since, *said || is_too_long));
        if is_too_long {
            let (reason, verb, time) = what;
            let message = format!(
                "failed to {verb} node: {} after {time}. Please see machine-config-controller logs for more information",
                self.own.name
            );
            self.reporter.warn(node, reason, message.as_str());
            bail!(message);
        }
        Ok(Flow::Wait((!left.is_zero()).then_some(left)))
    }

    /// Asks to be emptied.
    pub(super) async fn request_drain(&mut self, node: &Arc<Node>, config: &str) -> Result<()> {
        tracing::info!("Update prepared; requesting cordon and drain via annotation to controller");
        self.reporter.event(node, "Cordon", "Cordoned node to apply update");
        self.reporter.event(node, "Drain", "Draining node to update config.");
        self.own.annotate(annotations::request_drain(config)).await?;
        Ok(())
    }
}
