//! Drift: changes by others are detected as they happen, reported, and healed if the policy says so.
//! The watch runs while the machine is idle; `update` and `post_apply` check before they go on.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfig;
use machinist_core::api::names::annotation::machinist::DRIFT;
use machinist_core::api::names::state;
use machinist_core::daemon::{Phase, SessionEvent, annotations, reports};
use machinist_core::drift::{self, DriftFinding, DriftPolicy, DriftReference, DriftSeverity};
use machinist_core::node::NodeView;

use super::super::drift::{DriftWatcher, HealReport, heal};
use super::super::systemd::Systemd;
use super::Agent;

/// How often drift is healed before the daemon looks at its Node again: someone may change files as fast as
/// it heals them.
const MAX_HEALS: usize = 5;

/// Waits for the next change of the drift; forever if nothing is watched.
pub(super) async fn next_drift(watch: &mut Option<DriftWatcher>) {
    match watch {
        None => std::future::pending().await,
        Some(active) => {
            if let Err(error) = active.next().await {
                let error = format_args!("{error:#}");
                tracing::warn!(%error, "stopped watching for drift");
                *watch = None;
            }
        }
    }
}

impl Agent {
    /// Starts to watch the disk for differences from a config.
    pub(super) async fn start_watching(&mut self, node: &Arc<Node>, config: &MachineConfig) {
        if self.drift_watcher.is_some() {
            return;
        }
        let start = async {
            let reference = DriftReference::new(config)?;
            DriftWatcher::start(self.disk.path(), reference).await
        };
        let name = config.metadata.name.as_deref().unwrap_or_default();
        match start.await {
            Ok(watch) => {
                let message = format!("Config Drift Monitor started, watching against {name}");
                // MCO's literal line.
                tracing::info!("{message}");
                self.reporter.event(node, "ConfigDriftMonitorStarted", message);
                self.drift_watcher = Some(watch);
            }
            Err(error) => {
                let error = format_args!("{error:#}");
                tracing::warn!(%error, config = name, "cannot watch for drift");
            }
        }
    }

    /// Stops watching, before the daemon itself changes the disk.
    pub(super) fn stop_watching(&mut self, node: &Arc<Node>) {
        if self.drift_watcher.take().is_some() {
            tracing::info!("Config Drift Monitor has shut down");
            let message = "Config Drift Monitor stopped";
            self.reporter.event(node, "ConfigDriftMonitorStopped", message);
        }
    }

    /// Whether the watch has found drift.
    pub(super) fn has_drifted(&self) -> bool {
        self.drift_watcher
            .as_ref()
            .is_some_and(|watch| drift::degraded_reason(watch.findings()).is_some())
    }

    /// Reports drift. The next reconcile acts on it.
    pub(super) async fn report_drift(&mut self) {
        let (Some(watch), Some(node)) = (&self.drift_watcher, self.own_node.get()) else { return };
        self.session.after(SessionEvent::RetryNow);
        for finding in watch.findings() {
            let writer = watch.writer(finding);
            let by = writer.map(|writer| format!(" (by {writer})")).unwrap_or_default();
            let writer = writer.map(tracing::field::display);
            tracing::warn!(path = finding.path, problem = %finding, writer, "found drift");
            if finding.severity == DriftSeverity::Warning {
                self.reporter.warn(&node, "ConfigDriftWarning", format!("{finding}{by}"));
            }
        }
        let Some(reason) = drift::degraded_reason(watch.findings()) else {
            self.metrics.set_drift(false);
            return;
        };
        self.metrics.set_drift(true);
        self.metrics.set_state(state::DEGRADED, &reason);
        self.reporter.warn(&node, "ConfigDriftDetected", reason.as_str());
        self.reporter.write_status(&node, reports::degraded(&self.own_node.name, &reason));
        if let Err(error) =
            self.own_node.annotate(annotations::failed(state::DEGRADED, &reason)).await
        {
            let error = format_args!("{error:#}");
            tracing::warn!(%error, "cannot report drift on the Node");
        }
    }

    /// Compares the disk with a config, and heals differences if the policy says so.
    pub(super) async fn check_drift(
        &mut self,
        node: &Arc<Node>,
        config: &MachineConfig,
    ) -> Result<()> {
        let name = config.metadata.name.clone().unwrap_or_default();
        let findings = self.disk.check(config).await?;
        let Some(mut unexpected) = drift::blocks_update_reason(&name, &findings) else {
            self.metrics.set_drift(false);
            return Ok(());
        };
        self.metrics.set_drift(true);
        let policy =
            DriftPolicy::from_annotation(NodeView(node).annotation(DRIFT), self.drift_policy)?;
        let mut not_healed = Vec::new();
        if policy == DriftPolicy::Heal {
            let (left, problems) = self.heal_until_stuck(node, config, findings).await?;
            match drift::blocks_update_reason(&name, &left) {
                None => {
                    self.metrics.set_drift(false);
                    return Ok(());
                }
                Some(left) => unexpected = left,
            }
            not_healed = problems;
        }
        // A repair by hand has to be noticed.
        self.start_watching(node, config).await;
        match not_healed.is_empty() {
            true => anyhow::bail!(unexpected),
            false => anyhow::bail!("{unexpected}; cannot heal: {}", not_healed.join("; ")),
        }
    }

    /// Heals until nothing changes any more: a path may drift again while others are healed. Returns the
    /// drift that is left, and what kept it from being healed.
    async fn heal_until_stuck(
        &mut self,
        node: &Arc<Node>,
        config: &MachineConfig,
        mut findings: Vec<DriftFinding>,
    ) -> Result<(Vec<DriftFinding>, Vec<String>)> {
        let mut not_healed = Vec::new();
        for _ in 0..MAX_HEALS {
            let healed = self.heal_drift(node, config).await;
            // A repair by hand has to be noticed, and so has the next drift, whatever became of this one.
            self.start_watching(node, config).await;
            let healed = healed?;
            not_healed = healed.not_healed;
            // The watch compares when it starts, and reports every change after that.
            let left = match &self.drift_watcher {
                Some(watch) => watch.findings().to_vec(),
                None => self.disk.check(config).await?,
            };
            let is_settled = drift::is_settled(healed.changes.len(), &findings, &left);
            findings = left;
            if is_settled {
                return Ok((findings, not_healed));
            }
        }
        // Someone changes files as fast as they are healed. The watch must not wait for the next change.
        if let Some(watch) = &mut self.drift_watcher {
            watch.report_again();
        }
        Ok((findings, not_healed))
    }

    /// Heals drift once.
    async fn heal_drift(&mut self, node: &Arc<Node>, config: &MachineConfig) -> Result<HealReport> {
        self.stop_watching(node);
        self.enter(node, Phase::Healing);
        let (root, config) = (self.disk.path().to_owned(), config.clone());
        let healed = tokio::task::spawn_blocking(move || heal(&root, &config)).await;
        self.enter(node, Phase::Idle);
        let healed = healed.context("the thread that heals drift panicked")??;
        for change in &healed.changes {
            tracing::info!(action = change.action.name(), path = change.path, "healed drift");
        }
        for note in &healed.notes {
            tracing::warn!(note, "healing left something out");
        }
        if healed.needs_daemon_reload
            && let Some(systemd) = Systemd::connect(self.disk.path()).await?
        {
            systemd.daemon_reload().await?;
        }
        for problem in &healed.not_healed {
            tracing::warn!(problem, "cannot heal drift");
        }
        if !healed.changes.is_empty() {
            let message = format!("healed {} differences", healed.changes.len());
            self.reporter.event(node, "ConfigDriftHealed", message);
        }
        Ok(healed)
    }
}
