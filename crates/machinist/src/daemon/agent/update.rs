//! An update from one config to another: check, download, drain, write. Called by `reconcile` for
//! `AgentStep::Update`. The rules are in `core::daemon::update`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfig;
use machinist_core::api::names::annotation::DESIRED_IMAGE;
use machinist_core::api::names::path::DAEMON_DIR;
use machinist_core::api::operator::DisruptionAction;
use machinist_core::apply::ApplyPlan;
use machinist_core::daemon::os_plan;
use machinist_core::daemon::update::{self, DrainDecision, HostLimits};
use machinist_core::daemon::{
    self, PendingChange, PendingOsChange, Phase, SessionEvent, actions, annotations, reports,
};
use machinist_core::diff::ChangeFlags;
use machinist_core::disruption::DisruptionRules;
use machinist_core::node::NodeView;
use machinist_core::os::with_layered_image;

use super::super::health;
use super::super::os::abilities::{detect_abilities, with_user_rules};
use super::super::os::detect;
use super::super::state::DiskState;
use super::super::systemd::Systemd;
use super::super::transaction;
use super::drift_watch::HealPace;
use super::kubelet_health;
use super::{Agent, NextReconcile, RetryLater, Unreconcilable, own_node};

/// How often a machine that gave up on its config looks for the force file.
const FORCE_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// An update that the machine can take.
struct PreparedUpdate {
    flags: ChangeFlags,
    actions: Vec<DisruptionAction>,
    needs_drain: bool,
    os: Option<PendingOsChange>,
}

impl Agent {
    /// Updates to the desired config, up to the point where someone else has to act.
    pub(super) async fn update(
        &mut self,
        node: &Arc<Node>,
        state: DiskState,
    ) -> Result<NextReconcile> {
        let desired = NodeView(node).desired_config().to_owned();
        if let Some(next) = self.may_try(node, &state).await? {
            return Ok(next);
        }
        if state.force_rewrite {
            self.session.after(SessionEvent::AttemptForced);
        }
        if let Some(reason) = self.session.gave_up_on(&desired) {
            return Err(RetryLater { reason, retry_in: FORCE_CHECK_INTERVAL }.into());
        }
        self.reporter.write_status(node, reports::needs_update(&self.own_node.name));
        let old = self.current_config(node, &state).await?;
        let new = own_node::get_config(&self.client, &desired).await?;
        let new = with_layered_image(new, NodeView(node).annotation(DESIRED_IMAGE));
        if !state.force_rewrite {
            self.preflight(node, &old, &new).await?;
        }
        self.session.after(SessionEvent::DiskVerified);
        // An invalid health spec is refused before anything is written.
        health::spec(&new)?;
        self.stop_watching(node);
        let node = &self.own_node.annotate(annotations::working(node)).await?;
        self.metrics.set_state(NodeView(node).state(), "");
        self.enter(node, Phase::Preparing);
        let prepared = self.prepare_update(node, &old, &new, &state).await?;
        // Downloaded before the drain, so that the machine is out of service as briefly as possible.
        if !self.fetch_os(node, prepared.os.as_ref()).await? {
            return Ok(NextReconcile::Immediately);
        }
        self.reporter.write_spec(node);
        let PreparedUpdate { actions, needs_drain, .. } = &prepared;
        match update::drain_decision(node, &desired, actions, *needs_drain) {
            DrainDecision::Request => {
                // Nothing has been written yet, so SIGTERM need not wait for the drain.
                self.request_drain(node, &desired).await?;
                self.enter(node, Phase::Idle);
                return Ok(NextReconcile::Immediately);
            }
            DrainDecision::AlreadyDrained => {
                tracing::info!("drain is already completed on this node");
            }
            DrainDecision::Unsupported => {
                tracing::info!("Drain not required, skipping");
                self.reporter.write_status(node, reports::drain_not_required());
                self.reporter.event(node, "Drain", "Drain not required, skipping");
            }
            DrainDecision::NotNeeded => {
                tracing::info!("Changes do not require drain, skipping.");
                self.reporter.write_status(node, reports::drain_not_required());
            }
        }
        self.enter(node, Phase::Writing);
        self.write_update(node, old, new, prepared, state).await?;
        self.enter(node, Phase::Idle);
        Ok(NextReconcile::Immediately)
    }

    /// Refuses to build on a disk that has drifted, unless only paths have that were healed and that something else
    /// changes at once again, or that somebody has repaired by hand as the new config does.
    async fn preflight(
        &mut self,
        node: &Arc<Node>,
        old: &MachineConfig,
        new: &MachineConfig,
    ) -> Result<()> {
        let Err(error) = self.check_drift(node, old, HealPace::Immediate).await else {
            return Ok(());
        };
        let error_text = format!("{error:#}");
        if self.session.may_update_despite_drift() {
            tracing::warn!(error = error_text, "continuing despite drift in contested paths");
            return Ok(());
        }
        if self.disk.is_repaired_for(old, new).await? {
            tracing::info!(drift = error_text, "the disk is already as the new config wants it");
            return Ok(());
        }
        self.reporter.warn(node, "PreflightConfigDriftCheckFailed", error_text);
        Err(error)
    }

    /// Finds out whether the machine can take the update in place, and at what cost.
    async fn prepare_update(
        &mut self,
        node: &Arc<Node>,
        old: &MachineConfig,
        new: &MachineConfig,
        state: &DiskState,
    ) -> Result<PreparedUpdate> {
        let name = |config: &MachineConfig| config.metadata.name.clone().unwrap_or_default();
        let (from, to) = (name(old), name(new));
        let settings = own_node::get_machine_configuration(&self.client).await?;
        // MCO's literal line.
        tracing::debug!("Checking Reconcilable for config {from} to {to}");
        let os = self.plan_os(old, new, state).await?;
        let root = self.disk.path().to_owned();
        let abilities = tokio::task::spawn_blocking(move || detect_abilities(&root)).await?;
        let host = HostLimits {
            fips: detect::fips_enabled(self.disk.path()),
            profile_refusal: abilities.profile_refusal(old, new),
            os_refusal: self.os_refusal(os.as_ref()).await?,
        };
        let overrides = daemon::validation_overrides(settings.as_ref());
        let overrides = with_user_rules(self.disk.path(), overrides);
        let change = match update::check_update(old, new, overrides, host) {
            Ok(change) => change,
            Err(reason) => {
                self.reporter.write_status(node, reports::refused(&from, &to, &reason));
                let message = format!("can't reconcile config {from} with {to}: {reason}");
                self.reporter.warn(node, "FailedToReconcile", message.as_str());
                return Err(Unreconcilable(message).into());
            }
        };
        // Before the drain: a machine that cannot take the change keeps its pods.
        if let Err(error) = self.disk.check_obstacles(old.clone(), new.clone()).await {
            let error = error.context("nothing was changed");
            let reason = format!("{error:#}");
            self.reporter.write_status(node, reports::refused(&from, &to, &reason));
            return Err(error);
        }
        let reads_arguments = self.os_backend.supports_kernel_arguments;
        let os = os_plan::performed_os_change(os, reads_arguments);
        let flags = update::update_flags(old, new, &change, os.as_ref(), reads_arguments);
        // MCO's literal line; MCO appends its struct of flags.
        tracing::info!(
            os_update = flags.os_update,
            kargs = flags.kargs,
            files = flags.files,
            units = flags.units,
            passwd = flags.passwd,
            kernel_type = flags.kernel_type,
            extensions = flags.extensions,
            force = state.force_rewrite,
            "Starting update from {from} to {to}"
        );
        let policy = daemon::effective_disruption_policy(settings.as_ref());
        let rules = DisruptionRules::new(&policy, old, new, Some(&abilities));
        let actions = update::update_actions(&change, flags, &rules, state.force_rewrite);
        let needs_drain = actions::needs_drain(&actions, &change, self.runs_pods().await);
        // MCO's literal line, which its tests look for.
        tracing::info!("Drain calculated for node disruption: {needs_drain} for config {to}");
        let report = reports::prepared(&actions::actions_summary(&actions), needs_drain);
        self.reporter.write_status(node, report);
        Ok(PreparedUpdate { flags, actions, needs_drain, os })
    }

    /// Whether the host has a unit that runs pods. Without an answer it is assumed to: a drain too many does less harm
    /// than one too few.
    async fn runs_pods(&self) -> bool {
        let Ok(Some(systemd)) = Systemd::connect(self.disk.path()).await else { return true };
        for unit in actions::POD_UNITS {
            if systemd.load_state(unit).await.is_ok_and(|state| state == "not-found") {
                continue;
            }
            return true;
        }
        false
    }

    /// Writes the config to the disk and stages the OS.
    async fn write_update(
        &mut self,
        node: &Arc<Node>,
        old: MachineConfig,
        new: MachineConfig,
        prepared: PreparedUpdate,
        state: DiskState,
    ) -> Result<()> {
        let PreparedUpdate { flags, actions, os, .. } = prepared;
        self.reporter.write_status(node, reports::applying(flags));
        // After a reboot, a daemon in a pod runs only if the kubelet does.
        self.session.has_kubelet_run = match &self.kubelet {
            Some(endpoint) if actions::restarts_services(&actions) => {
                kubelet_health::responds(endpoint).await
            }
            _ => false,
        };
        let earlier = self.session.unfinished(state.pending);
        self.session.after(SessionEvent::WriteStarted);
        let mut pending = PendingChange::new(&old, &new, actions, &self.boot_id, earlier);
        pending.os = os;
        let written = self.disk.apply_change(old, new, pending.clone(), state.force_rewrite).await;
        let written = written.inspect_err(|error| {
            self.reporter.write_status(node, reports::apply_failed(&format!("{error:#}")));
        })?;
        for step in &written.plan.steps {
            let change = transaction::describe(step);
            tracing::debug!(action = change.action.name(), path = change.path, "changed the disk");
        }
        for note in written.plan.notes.iter().chain(&written.note) {
            tracing::warn!(note, "the change left something out");
            self.reporter.warn(node, "ConfigPartlyApplied", note.as_str());
        }
        let (from, to) = (&written.plan.from, &written.plan.to);
        let (changes, paths) = (written.plan.steps.len(), first_paths(&written.plan));
        tracing::info!(from, to, changes, paths, "wrote the config to disk");
        if let Err(error) = self.stage_os(Some(node), &mut pending).await {
            return Err(self.undo_change(node, &pending, error).await);
        }
        self.reporter.write_status(node, reports::applied(flags));
        Ok(())
    }
}

/// The first paths that a change wrote, without the daemon's own files. One line must do for any number of them.
fn first_paths(plan: &ApplyPlan) -> String {
    const SHOWN: usize = 5;
    let is_own = |path: &str| path.starts_with(DAEMON_DIR);
    let paths: Vec<&str> =
        plan.steps.iter().map(|step| step.path.as_str()).filter(|path| !is_own(path)).collect();
    let shown = paths[..paths.len().min(SHOWN)].join(", ");
    if paths.len() > SHOWN { format!("{shown}, and {} more", paths.len() - SHOWN) } else { shown }
}
