//! Writes `currentconfig` and the record of an incomplete change again after they were emptied or damaged, so that the
//! machine goes on as before. Called by `reconcile` before it decides anything. `core::daemon::candidate_configs` says which
//! configs the machine may have.

use std::sync::Arc;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfig;
use machinist_core::api::names::annotation;
use machinist_core::api::names::path::{CURRENT_CONFIG, FORCE};
use machinist_core::apply::empty_config;
use machinist_core::daemon::{CandidateConfig, PendingChange, SessionEvent, candidate_configs};
use machinist_core::drift;
use machinist_core::node::NodeView;
use machinist_core::os::with_layered_image;

use super::super::state::DiskState;
use super::{Agent, NextReconcile, own_node};

impl Agent {
    /// Writes the config that the machine most likely has.
    pub(super) async fn rebuild_current_config(
        &mut self,
        node: &Arc<Node>,
        state: &DiskState,
        damage: &str,
    ) -> Result<NextReconcile> {
        let candidates = candidate_configs(node, state.pending.as_ref(), &empty_config());
        let names: Vec<&str> = candidates.iter().map(CandidateConfig::name).collect();
        let names = names.join(", ");
        let mut likeliest = None;
        for candidate in candidates {
            let Some(config) = self.read_candidate(node, candidate).await? else { continue };
            let name = config.metadata.name.clone().unwrap_or_default();
            let findings = self.disk.check(&config).await?;
            if drift::blocks_update_reason(&name, &findings).is_none() {
                return self.write_rebuilt(node, config, damage, "which the disk matches").await;
            }
            likeliest.get_or_insert(config);
        }
        if let Some(config) = likeliest {
            // The differences are drift, and are treated as such.
            let matches = "which the disk differs from";
            return self.write_rebuilt(node, config, damage, matches).await;
        }
        if state.force_rewrite {
            let matches = "because of the force file: files of an earlier config may be left";
            return self.write_rebuilt(node, empty_config(), damage, matches).await;
        }
        bail!(
            "{damage}; the API server has none of the configs that the machine may have ({names}): restore {CURRENT_CONFIG}, or create {FORCE} to write the desired config over whatever is there"
        )
    }

    /// Reads a candidate; `None` if the API server does not have it.
    async fn read_candidate(
        &self,
        node: &Node,
        candidate: CandidateConfig,
    ) -> Result<Option<MachineConfig>> {
        let name = match candidate {
            CandidateConfig::Known(config) => return Ok(Some(*config)),
            CandidateConfig::Named(name) => name,
        };
        let key = match name == NodeView(node).current_config() {
            true => annotation::CURRENT_IMAGE,
            false => annotation::DESIRED_IMAGE,
        };
        match own_node::get_config(&self.client, &name).await {
            Ok(config) => Ok(Some(with_layered_image(config, NodeView(node).annotation(key)))),
            Err(error) if own_node::is_unreachable(&error) => Err(error),
            Err(error) => {
                tracing::debug!(error = %format_args!("{error:#}"), name, "not a candidate");
                Ok(None)
            }
        }
    }

    /// Replaces the record of an incomplete change that cannot be read. The machine reboots, unless it has reported the config
    /// on its disk as done. Returns nothing where an administrator wants the machine to be left alone, and for a new machine.
    pub(super) async fn replace_lost_pending(
        &mut self,
        node: &Arc<Node>,
        state: &DiskState,
        damage: &str,
    ) -> Result<Option<NextReconcile>> {
        let view = NodeView(node);
        let is_new = state.current.is_none() && view.current_config().is_empty();
        if is_new || view.held().is_some() || self.is_observed(node) {
            return Ok(None);
        }
        let current = self.current_config(node, state).await?;
        let name = current.metadata.name.clone().unwrap_or_default();
        let is_complete = view.is_done() && view.current_config() == name;
        let lost = PendingChange::with_lost_record(&current, &self.boot_id);
        self.disk.set_pending((!is_complete).then_some(lost)).await?;
        let then = match is_complete {
            true => "the machine has its config",
            false => "the machine reboots, because nobody knows what was left to do",
        };
        let message = format!("{damage}: {then}");
        tracing::warn!(damage, config = name, then, "lost the record of an incomplete change");
        self.reporter.warn(node, "PendingChangeLost", message);
        Ok(Some(NextReconcile::Immediately))
    }

    async fn write_rebuilt(
        &mut self,
        node: &Arc<Node>,
        config: MachineConfig,
        damage: &str,
        matches: &str,
    ) -> Result<NextReconcile> {
        let name = config.metadata.name.clone().unwrap_or_default();
        self.disk.write_current_config(config).await?;
        // Whatever damaged the file may have damaged others.
        self.session.after(SessionEvent::DiskSuspected);
        self.stop_watching(node);
        let message = format!("{damage}: wrote it again as {name}, {matches}");
        tracing::warn!(damage, config = name, matches, "wrote the current config again");
        self.reporter.warn(node, "CurrentConfigRebuilt", message);
        Ok(NextReconcile::Immediately)
    }
}
