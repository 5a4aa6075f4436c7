//! One reconcile step of the daemon: observe Node and disk, let `core::daemon::next_step` decide, and
//! perform the step. Called by the loop in `mod.rs` whenever the Node, the disk or a timer changes.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfig;
use machinist_core::api::names::annotation;
use machinist_core::api::names::annotation::machinist::HEAL;
use machinist_core::apply::{EMPTY_CONFIG_NAME, asks_for_nothing, empty_config};
use machinist_core::daemon::session::WaitStatus;
use machinist_core::daemon::{
    AgentStep, AgentWait, Observed, PendingChange, SessionEvent, annotations, next_step, reports,
};
use machinist_core::node::NodeView;
use machinist_core::os::with_layered_image;

use super::super::os::abilities::detect_abilities;
use super::super::state::DiskState;
use super::super::systemd::Systemd;
use super::super::{upgrade, watchdog};
use super::{Agent, NextReconcile, own_node};

/// Why a machine that is a directory does not reboot.
const CANNOT_REBOOT: &str =
    "this machine cannot reboot, because no systemd runs on it: the request was removed";

impl Agent {
    /// Performs one step.
    pub(super) async fn reconcile(&mut self, node: &Arc<Node>) -> Result<NextReconcile> {
        if let Some(next) = self.claim_identity(node).await? {
            return Ok(next);
        }
        if self.session.needs_recovery {
            let recovered = self.disk.recover().await;
            let recovered = recovered.context("an interrupted change cannot be recovered")?;
            self.session.after(super::recovered_event(&recovered));
            if !recovered.unreadable.is_empty() {
                self.session.after(SessionEvent::DiskSuspected);
            }
        }
        if let Some(recovered) = self.session.unreported_recovery.take() {
            self.reporter.warn(node, "InterruptedUpdateRecovered", recovered);
        }
        let state = match self.disk.read().await {
            // The disk may be unmounted while the machine goes down; no step needs it any more.
            Err(_) if self.session.is_reboot_ordered => DiskState::default(),
            state => state?,
        };
        if let Some(damage) = &state.damage {
            return self.rebuild_current_config(node, &state, damage).await;
        }
        if let Some(damage) = &state.lost_pending
            && let Some(next) = self.replace_lost_pending(node, &state, damage).await?
        {
            return Ok(next);
        }
        let observed = Observed {
            node,
            config_on_disk: state.current_name(),
            image_on_disk: state.layered_image(),
            pending: state.pending.as_ref(),
            boot_id: &self.boot_id,
            force: state.force_rewrite,
            mode: self.mode,
        };
        let step = next_step(&observed, &self.session);
        tracing::debug!(?step, "chose the next step");
        self.session.begin(&step);
        self.report_abilities(node, &step).await?;
        match step {
            AgentStep::Idle => self.idle(node, &state).await,
            AgentStep::AwaitReboot => {
                // MCO's literal line.
                let name = &self.own_node.name;
                tracing::info!("Node {name} is queued for a reboot, skipping sync.");
                Ok(NextReconcile::Wait(None))
            }
            AgentStep::Observe => self.observe(node, &state).await,
            AgentStep::Wait(wait) => self.wait_with_timeout(node, &wait),
            AgentStep::ReportInitialConfig => self.report_initial_config(&state).await,
            AgentStep::CorrectCurrentConfig { on_disk } => {
                self.correct_current_config(node, &on_disk).await
            }
            AgentStep::ReportReboot => self.report_reboot(node).await,
            AgentStep::DropPendingChange => {
                let disk =
                    state.current_name().unwrap_or(NodeView(node).current_config()).to_owned();
                let earlier = state.pending.and_then(|pending| pending.fallback(&disk));
                self.disk.set_pending(earlier).await?;
                Ok(NextReconcile::Immediately)
            }
            AgentStep::Update => self.update(node, state).await,
            AgentStep::PrepareReboot { request } => {
                self.prepare_reboot(node, &state, &request).await
            }
            AgentStep::RequestReboot { config } => {
                tracing::info!(config, "the config is in place and waits for a reboot approval");
                let message = format!("{config} is in place and waits for a reboot approval");
                self.reporter.event(node, "RestartPending", message);
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

    /// Reports what the host can do, if that is due.
    async fn report_abilities(&mut self, node: &Arc<Node>, step: &AgentStep) -> Result<()> {
        if !self.session.are_abilities_due(step, self.disk.change_count()) {
            return Ok(());
        }
        let root = self.disk.path().to_owned();
        let abilities = tokio::task::spawn_blocking(move || detect_abilities(&root)).await?;
        let patch = annotations::changed_only(node, annotations::host(&abilities));
        // A report must not keep the machine from its config.
        match self.own_node.annotate(patch).await {
            Ok(_) => self.session.abilities_reported_at = Some(self.disk.change_count()),
            Err(error) => {
                let error = format_args!("{error:#}");
                tracing::warn!(%error, "cannot report what this host can do");
            }
        }
        Ok(())
    }

    /// The current config: the one on disk, otherwise the one that the Node names.
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
        if let Some(current) = state.current.as_ref().filter(|_| self.drift_watcher.is_none()) {
            self.start_watching(node, current).await;
            // Something may have changed between the last check and the start of the watch.
            if self.has_drifted() {
                self.report_drift().await;
                return Ok(NextReconcile::Immediately);
            }
        }
        if let Some(reason) = self.disk.quarantine_reason().await? {
            bail!(reason);
        }
        // In a pod, nothing of ours runs on the host: once its config asks for nothing, nothing of ours stays there, and
        // an uninstallation needs no step on the machines.
        if self.is_in_pod()
            && state.pending.is_none()
            && !self.has_drifted()
            && state.current.as_ref().is_some_and(asks_for_nothing)
        {
            self.stop_watching(node);
            self.disk.remove_own_files().await?;
        }
        if NodeView(node).annotation(HEAL).is_some() && !self.has_drifted() {
            self.own_node.annotate(annotations::clear_heal()).await?;
        }
        let config = NodeView(node).current_config();
        self.metrics.set_state(machinist_core::api::names::state::DONE, "");
        self.metrics.set_updated(config, "");
        self.reporter.write_status(node, reports::updated(&self.own_node.name));
        if self.session.take_last_good() {
            self.store_last_good(node);
        }
        Ok(NextReconcile::Wait(None))
    }

    /// Records the reboot that an administrator has asked for. The controller approves it when the pool can
    /// do without the machine.
    async fn prepare_reboot(
        &mut self,
        node: &Arc<Node>,
        state: &DiskState,
        request: &str,
    ) -> Result<NextReconcile> {
        tracing::info!(request, "an administrator asks for a reboot");
        // `machinist reboot` refuses this; others write the annotation themselves.
        if Systemd::connect(self.disk.path()).await?.is_none() {
            self.reporter.warn(node, "RebootRefused", CANNOT_REBOOT);
            self.own_node.annotate(annotations::clear_reboot_request()).await?;
            return Ok(NextReconcile::Immediately);
        }
        let current = self.current_config(node, state).await?;
        let pending = PendingChange::reboot(&current, request, &self.boot_id);
        self.disk.set_pending(Some(pending)).await?;
        self.own_node.annotate(annotations::working(node)).await?;
        Ok(NextReconcile::Immediately)
    }

    /// Notes that this daemon has completed a pass, if it is a new one: from now on only a crash loop brings the last one
    /// back.
    pub(super) async fn note_came_up(&mut self) {
        if std::mem::replace(&mut self.is_up_noted, true) {
            return;
        }
        let root = self.disk.path().to_owned();
        let noted = tokio::task::spawn_blocking(move || upgrade::note_came_up(&root)).await;
        if let Ok(Err(error)) = noted {
            tracing::warn!(error = %format_args!("{error:#}"), "cannot note that this daemon has come up");
            self.is_up_noted = false;
        }
    }

    /// Stores this daemon for the watchdog in the background, and reports what the watchdog has restored. A failure is
    /// not worth stopping for.
    fn store_last_good(&self, node: &Arc<Node>) {
        let (root, node) = (self.disk.path().to_owned(), Arc::clone(node));
        let (reporter, is_good) = (self.reporter.clone(), self.is_good.clone());
        tokio::task::spawn_blocking(move || match watchdog::store_last_good(&root) {
            Ok(restored) => {
                is_good.send_replace(true);
                for message in restored {
                    tracing::warn!(message, "the watchdog restored this daemon");
                    reporter.warn(&node, "DaemonRestored", message);
                }
            }
            Err(error) => {
                let error = format_args!("{error:#}");
                tracing::warn!(%error, "cannot store this daemon for its watchdog");
            }
        });
    }

    async fn report_initial_config(&mut self, state: &DiskState) -> Result<NextReconcile> {
        let patch = annotations::initial_annotations(
            state.first_boot_annotations.as_ref(),
            state.current_name(),
            EMPTY_CONFIG_NAME,
        );
        tracing::info!("No current config on the Node: setting initial node config");
        let node = self.own_node.annotate(patch).await?;
        if NodeView(&node).current_config().is_empty() {
            bail!(
                "{}: does not name the current config: restore the annotations that the machine was installed with",
                machinist_core::api::names::path::NODE_ANNOTATIONS
            );
        }
        Ok(NextReconcile::Immediately)
    }

    /// The disk is right: the Node may be that of a restored API server.
    async fn correct_current_config(
        &self,
        node: &Arc<Node>,
        on_disk: &str,
    ) -> Result<NextReconcile> {
        let claimed = NodeView(node).current_config();
        tracing::warn!(claimed, on_disk, "the Node names another current config than the disk");
        let message = format!(
            "the Node named {claimed} as the current config, but the machine has {on_disk}: corrected the Node"
        );
        self.reporter.warn(node, "CurrentConfigMismatch", message);
        self.own_node.annotate(annotations::current_config(on_disk)).await?;
        Ok(NextReconcile::Immediately)
    }

    async fn report_reboot(&mut self, node: &Arc<Node>) -> Result<NextReconcile> {
        tracing::info!("Detected Rebooting Annotation, applying MCN.");
        self.reporter.write_status(node, reports::rebooted());
        let mut patch = annotations::rebooting(false);
        patch.extend(self.finalize_annotations(node).await);
        self.own_node.annotate(patch).await?;
        Ok(NextReconcile::Immediately)
    }

    /// Waits for someone else, and reports when that takes too long.
    fn wait_with_timeout(&mut self, node: &Arc<Node>, wait: &AgentWait) -> Result<NextReconcile> {
        let now = self.now();
        match self.session.wait(wait, &self.own_node.name, now) {
            WaitStatus::Waiting(pause) => Ok(NextReconcile::Wait(pause)),
            WaitStatus::TimedOut(timeout) => {
                self.reporter.warn(node, timeout.event_reason, timeout.message.as_str());
                bail!(timeout.message)
            }
        }
    }

    /// Asks the controller to drain the machine.
    pub(super) async fn request_drain(&mut self, node: &Arc<Node>, config: &str) -> Result<()> {
        // MCO's literal line.
        tracing::info!("Update prepared; requesting cordon and drain via annotation to controller");
        self.reporter.event(node, "Cordon", "Cordoned node to apply update");
        self.reporter.event(node, "Drain", "Draining node to update config.");
        self.own_node.annotate(annotations::request_drain(config)).await?;
        Ok(())
    }
}
