//! A machine that is only observed: compares it with its pool's config, and reports on its Node what that
//! would change and cost. Writes nothing to the machine. Called by `reconcile` for `AgentStep::Observe`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::names::annotation::DESIRED_IMAGE;
use machinist_core::api::names::annotation::machinist::{MODE, OBSERVATION, OBSERVED_CONFIG};
use machinist_core::api::names::path::DAEMON_DIR;
use machinist_core::api::names::state;
use machinist_core::apply::EMPTY_CONFIG_NAME;
use machinist_core::daemon::observation::Observation;
use machinist_core::daemon::{actions, annotations};
use machinist_core::node::{MachineMode, NodeView};
use machinist_core::os::with_layered_image;

use super::super::preview::{self, ChangePreview};
use super::super::state::DiskState;
use super::{Agent, NextReconcile, own_node};

/// How often the machine is compared again: others change it.
const COMPARE_INTERVAL: Duration = Duration::from_secs(300);

impl Agent {
    /// Whether the machine is only observed.
    pub(super) fn is_observed(&self, node: &Node) -> bool {
        MachineMode::for_daemon(NodeView(node), self.mode) == MachineMode::Observe
    }

    /// Compares the machine with its pool's config and reports the result.
    pub(super) async fn observe(
        &mut self,
        node: &Arc<Node>,
        disk: &DiskState,
    ) -> Result<NextReconcile> {
        self.stop_watching(node);
        let view = NodeView(node);
        if view.annotation(MODE).is_none() && self.mode == MachineMode::Observe {
            // The controller assigns no config to a machine that says so.
            self.own_node.annotate(annotations::observe_only()).await?;
        }
        if view.state() == state::WORKING && view.current_config() == view.desired_config() {
            // It was taken out of an update that had not begun to write.
            let patch = annotations::done(
                view.current_config(),
                disk.layered_image().filter(|image| !image.is_empty()),
            );
            self.own_node.annotate(patch).await?;
        }
        let Some(config) = view.annotation(OBSERVED_CONFIG).filter(|_| self.is_observed(node))
        else {
            return Ok(NextReconcile::Wait(None));
        };
        let observation = self.compare(node, disk, config).await?;
        let text = observation.text();
        let before = view.annotation(OBSERVATION);
        if before != Some(text.as_str()) {
            tracing::info!(observation = text, "compared the machine with its pool's config");
            self.reporter.event(node, "Observed", text.as_str());
            self.own_node.annotate(annotations::observation(&text)).await?;
        }
        Ok(NextReconcile::Wait(Some(COMPARE_INTERVAL)))
    }

    async fn compare(&self, node: &Node, disk: &DiskState, config: &str) -> Result<Observation> {
        let new = own_node::get_config(&self.client, config).await?;
        let new = with_layered_image(new, NodeView(node).annotation(DESIRED_IMAGE));
        let settings = own_node::get_machine_configuration(&self.client).await?;
        let root = self.disk.path().to_owned();
        let found =
            tokio::task::spawn_blocking(move || preview::preview(&root, &new, settings.as_ref()));
        let found = found.await.context("the thread that compares the machine panicked")??;
        let drift = match &disk.current {
            Some(current) if current.metadata.name.as_deref() != Some(EMPTY_CONFIG_NAME) => {
                let findings = self.disk.check(current).await?;
                findings.into_iter().map(|finding| finding.path).collect()
            }
            _ => Vec::new(),
        };
        Ok(observation(found, drift))
    }
}

fn observation(found: ChangePreview, drift: Vec<String>) -> Observation {
    let paths = found.changes.into_iter().map(|change| change.path);
    Observation {
        config: found.to,
        refused: found.refused,
        paths: paths.filter(|path| !path.starts_with(DAEMON_DIR)).collect(),
        os_changes: found.os_changes,
        actions: actions::actions_summary(&found.actions),
        needs_drain: found.needs_drain,
        drift,
    }
}
