//! From one config to another: check, policy, drain, disk.

use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfig;
use machinist_core::api::names::annotation::DESIRED_IMAGE;
use machinist_core::api::operator::{DisruptionAction, DisruptionActionType};
use machinist_core::daemon::{self, PendingChange, PendingOsChange, actions, annotations, reports};
use machinist_core::diff::{ChangeFlags, diff};
use machinist_core::disruption::disruption;
use machinist_core::node::NodeView;
use machinist_core::os::with_layered_image;
use machinist_core::reconcile_check::{ConfigChange, IrreconcilableSection, check_reconcilable};

use super::super::health;
use super::super::os::detect;
use super::super::state::DiskState;
use super::{Agent, NextReconcile, Unreconcilable, own_node};

/// A change that can be made.
struct PreparedUpdate {
    change: ConfigChange,
    flags: ChangeFlags,
    actions: Vec<DisruptionAction>,
    needs_drain: bool,
    os: Option<PendingOsChange>,
}

impl Agent {
    /// Changes to the desired config, as far as nobody has to be waited for.
    pub(super) async fn update(
        &mut self,
        node: &Arc<Node>,
        state: DiskState,
    ) -> Result<NextReconcile> {
        let desired = NodeView(node).desired_config().to_owned();
        if let Some(flow) = self.may_try(node, &state).await? {
            return Ok(flow);
        }
        self.reporter.write_status(node, reports::needs_update(&self.own_node.name));
        let old = self.current_config(node, &state).await?;
        let new = own_node::get_config(&self.client, &desired).await?;
        let new = with_layered_image(new, NodeView(node).annotation(DESIRED_IMAGE));
        if !state.force_rewrite {
            self.preflight(node, &old).await?;
        }
        self.is_checked = true;
        // What cannot be understood is refused before anything is written.
        health::spec(&new)?;
        self.stop_watching(node);
        let node = &self.own_node.annotate(annotations::working(node)).await?;
        self.metrics.set_state(NodeView(node).state(), "");
        self.set_sigterm_protection(node, true);
        let prepared = self.prepare_update(node, &old, &new, &state).await?;
        // While the machine still works: so it is away as short as possible.
        if !self.fetch_os(node, prepared.os.as_ref()).await? {
            return Ok(NextReconcile::Immediately);
        }
        let waits = annotations::defers_reboot(node) && actions::needs_reboot(&prepared.actions);
        self.reporter.write_spec(node);
        if prepared.needs_drain && !waits {
            if !annotations::needs_no_drain(node, &desired) {
                // Nothing has been written yet: whoever is told to stop while it waits may go.
                self.request_drain(node, &desired).await?;
                self.set_sigterm_protection(node, false);
                return Ok(NextReconcile::Immediately);
            }
            if annotations::supports_drain(node) {
                tracing::info!("drain is already completed on this node");
            } else {
                tracing::info!("Drain not required, skipping");
                self.reporter.write_status(node, reports::drain_not_required());
                self.reporter.event(node, "Drain", "Drain not required, skipping");
            }
        } else {
            tracing::info!("Changes do not require drain, skipping.");
            self.reporter.write_status(node, reports::drain_not_required());
        }
        self.write_update(node, old, new, prepared, state).await?;
        self.set_sigterm_protection(node, false);
        Ok(NextReconcile::Immediately)
    }

    /// Nothing is built on a disk that is not as it should be.
    async fn preflight(&mut self, node: &Arc<Node>, old: &MachineConfig) -> Result<()> {
        self.check_drift(node, old).await.inspect_err(|error| {
            let message = format!("{error:#}");
            self.reporter.warn(node, "PreflightConfigDriftCheckFailed", message);
        })
    }

    /// May the machine change in place, and what does that cost?
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
        tracing::info!("Checking Reconcilable for config {from} to {to}");
        let checked = check_reconcilable(old, new, daemon::validation_overrides(settings.as_ref()));
        let os = self.plan_os(old, new, state).await?;
        let os_refusal = self.os_refusal(os.as_ref()).await?;
        let checked = checked.map_err(|refusal| refusal.to_string()).and_then(|change| {
            let wanted = new.spec.fips.unwrap_or_default();
            match detect::fips_enabled(self.disk.path()) {
                Some(has) if has != wanted => Err(IrreconcilableSection::Fips.to_string()),
                _ => os_refusal.map_or(Ok(change), Err),
            }
        });
        let change = match checked {
            Ok(change) => change,
            Err(reason) => {
                self.reporter.write_status(node, reports::refused(&from, &to, &reason));
                let message = format!("can't reconcile config {from} with {to}: {reason}");
                self.reporter.warn(node, "FailedToReconcile", message.as_str());
                return Err(Unreconcilable(message).into());
            }
        };
        let mut flags = diff(old, new, &change).flags;
        // An image may be another one by another name, or the same by another name.
        flags.os_update = os.as_ref().is_some_and(|os| os.change.image.is_some());
        tracing::info!("Starting update from {from} to {to}: {flags:?}");
        let actions = if state.force_rewrite {
            tracing::info!("The force file is there: everything is written anew");
            let type_ = DisruptionActionType::Reboot;
            vec![DisruptionAction { type_, ..DisruptionAction::default() }]
        } else {
            disruption(&change, flags, &daemon::effective_disruption_policy(settings.as_ref()))
                .actions
        };
        let needs_drain = actions::needs_drain(&actions, &change);
        tracing::info!("Drain calculated for node disruption: {needs_drain} for config {to}");
        self.reporter.write_status(
            node,
            reports::prepared(&actions::actions_summary(&actions), needs_drain),
        );
        Ok(PreparedUpdate { change, flags, actions, needs_drain, os })
    }

    /// Changes the disk.
    async fn write_update(
        &mut self,
        node: &Arc<Node>,
        old: MachineConfig,
        new: MachineConfig,
        prepared: PreparedUpdate,
        state: DiskState,
    ) -> Result<()> {
        let PreparedUpdate { change, flags, actions, os, .. } = prepared;
        self.reporter.write_status(node, reports::applying(flags));
        let mut earlier = state.pending;
        if let Some(earlier) =
            earlier.as_mut().filter(|one| self.actions_run_for.as_ref() == Some(&one.config))
        {
            earlier.actions.clear();
        }
        self.actions_run_for = None;
        let mut pending = PendingChange::new(&old, &new, actions, &self.boot_id, earlier);
        pending.os = os;
        let changed =
            self.disk.apply_change(old, new, change, pending.clone(), state.force_rewrite).await;
        let done = changed.inspect_err(|error| {
            self.reporter.write_status(node, reports::apply_failed(&format!("{error:#}")));
        })?;
        for step in &done.plan.steps {
            let change = super::super::transaction::describe(step);
            tracing::info!("{:?} {:?}", change.action, change.path);
        }
        for note in done.plan.notes.iter().chain(&done.note) {
            tracing::warn!("{note}");
        }
        let (from, to, count) = (&done.plan.from, &done.plan.to, done.plan.steps.len());
        tracing::info!("The disk has {to} now (it had {from}): {count} changes");
        if let Err(error) = self.stage_os(Some(node), &mut pending).await {
            return Err(self.undo_change(node, &pending, error).await);
        }
        self.reporter.write_status(node, reports::applied(flags));
        Ok(())
    }
}
