//! Drift: changes by others are detected as they happen, reported, and healed if the policy says so.
//! The watch runs while the machine is idle; `update` and `post_apply` check before they go on.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfig;
use machinist_core::api::names::annotation::machinist::{DRIFT, DRIFT_CONFLICT, HEAL};
use machinist_core::api::names::state;
use machinist_core::daemon::{Phase, SessionEvent, annotations, reports};
use machinist_core::drift::{
    self, ConflictStep, DriftConflictPolicy, DriftFinding, DriftPolicy, DriftSeverity,
    HealConflict, MAX_HEAL_PAUSE, PathWriter,
};
use machinist_core::node::NodeView;

use super::super::drift::{DriftWatcher, HealReport, WriterProcess, heal, reference, suspect_unit};
use super::super::systemd::Systemd;
use super::{Agent, RetryLater, STATE_TASK};

/// How often drift is healed before the daemon does something else: paths may drift one after the other.
const MAX_HEALS: usize = 5;

/// How fast drift is healed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HealPace {
    /// Each path when its turn comes: see `HealLimit`.
    Limited,
    /// All paths at once. An update must not wait for a path that its config may no longer manage.
    Immediate,
}

/// The paths of findings.
fn drifted_paths(findings: &[DriftFinding]) -> BTreeSet<&str> {
    findings.iter().map(|finding| finding.path.as_str()).collect()
}

fn path_writer(writer: &WriterProcess) -> PathWriter {
    PathWriter { process: Some(writer.to_string()), unit: writer.unit.clone(), suspect: None }
}

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
            let reference = reference(self.disk.path(), config)?;
            DriftWatcher::start(self.disk.path(), reference).await
        };
        let name = config.metadata.name.as_deref().unwrap_or_default();
        match start.await {
            Ok(watch) => {
                let message = format!("Config Drift Monitor started, watching against {name}");
                // MCO's literal line.
                tracing::info!("{message}");
                self.reporter.event(node, "ConfigDriftMonitorStarted", message);
                if let Some(unwatched) = watch.unwatched() {
                    self.reporter.warn(node, "ConfigDriftMonitorLimited", unwatched);
                }
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

    /// Reports drift. The next reconcile acts on it. A path that waits for its next heal is reported once.
    pub(super) async fn report_drift(&mut self) {
        let now = self.now();
        let (Some(watch), Some(node)) = (&self.drift_watcher, self.own_node.get()) else { return };
        let limit = &mut self.session.heal_limit;
        limit.observe(&drifted_paths(watch.findings()), now);
        let mut is_unreported = watch.findings().is_empty();
        for finding in watch.findings() {
            let writer = watch.writer(finding);
            if let Some(writer) = writer {
                limit.changed_by(&finding.path, path_writer(writer));
            }
            if !limit.take_unreported(&finding.path) {
                continue;
            }
            is_unreported = true;
            let by = writer.map(|writer| format!(" (by {writer})")).unwrap_or_default();
            let writer = writer.map(tracing::field::display);
            tracing::warn!(path = finding.path, problem = %finding, writer, "found drift");
            if finding.severity == DriftSeverity::Warning {
                self.reporter.warn(&node, "ConfigDriftWarning", format!("{finding}{by}"));
            }
        }
        if !is_unreported {
            return;
        }
        self.session.after(SessionEvent::RetryNow);
        let writer = |finding: &DriftFinding| watch.writer(finding).map(ToString::to_string);
        self.session.drifted = drift::drifted_paths(watch.findings(), writer);
        let Some(reason) = drift::degraded_reason(watch.findings()) else {
            self.metrics.set_drift(false);
            return;
        };
        self.metrics.set_drift(true);
        self.metrics.set_state(state::DEGRADED, &reason);
        self.reporter.warn(&node, "ConfigDriftDetected", reason.as_str());
        self.reporter.write_status(&node, reports::degraded(&self.own_node.name, &reason));
        let desired = NodeView(&node).desired_config();
        let failed = annotations::failed(state::DEGRADED, &reason, desired, &self.session.drifted);
        let written = self.own_node.annotate(failed).await;
        self.failures.record(STATE_TASK, &self.own_node.name, written);
    }

    /// Compares the disk with a config, and heals differences if the policy says so.
    pub(super) async fn check_drift(
        &mut self,
        node: &Arc<Node>,
        config: &MachineConfig,
        pace: HealPace,
    ) -> Result<()> {
        let name = config.metadata.name.clone().unwrap_or_default();
        let findings = self.disk.check(config).await?;
        let now = self.now();
        self.session.heal_limit.observe(&drifted_paths(&findings), now);
        self.set_drifted(&findings);
        let Some(mut unexpected) = drift::blocks_update_reason(&name, &findings) else {
            self.metrics.set_drift(false);
            return Ok(());
        };
        self.metrics.set_drift(true);
        let mut policy =
            DriftPolicy::from_annotation(NodeView(node).annotation(DRIFT), self.drift_policy)?;
        let mut pace = pace;
        // A person asks once; the policy decides about the next drift again.
        if NodeView(node).annotation(HEAL).is_some() {
            (policy, pace) = (DriftPolicy::Heal, HealPace::Immediate);
        }
        let (mut not_healed, mut findings) = (Vec::new(), findings);
        if policy == DriftPolicy::Heal {
            (findings, not_healed) = self.heal_until_stuck(node, config, findings, pace).await?;
            self.set_drifted(&findings);
            match drift::blocks_update_reason(&name, &findings) {
                None => {
                    self.metrics.set_drift(false);
                    return Ok(());
                }
                Some(left) => unexpected = left,
            }
        }
        // A repair by hand has to be noticed.
        self.start_watching(node, config).await;
        if !not_healed.is_empty() {
            let reason = format!("{unexpected}; cannot heal: {}", not_healed.join("; "));
            // Paths that only wait for their next heal do not wait for those that cannot be healed.
            let (now, limit) = (self.now(), &self.session.heal_limit);
            let pauses = drifted_paths(&findings).into_iter().map(|path| limit.pause(path, now));
            let Some(retry_in) = pauses.filter(|pause| !pause.is_zero()).min() else {
                anyhow::bail!(reason);
            };
            return Err(RetryLater { reason, retry_in }.into());
        }
        if policy == DriftPolicy::Heal
            && let Some(later) = self.heal_later(node, &findings, &unexpected).await?
        {
            return Err(later.into());
        }
        anyhow::bail!(unexpected)
    }

    /// Remembers the drift that a check found. Who caused it is known from the watch.
    fn set_drifted(&mut self, findings: &[DriftFinding]) {
        let known = std::mem::take(&mut self.session.drifted);
        let watch = self.drift_watcher.as_ref();
        let by = |finding: &DriftFinding| {
            let seen = watch.and_then(|watch| watch.writer(finding)).map(ToString::to_string);
            let before = || known.iter().find(|one| one.path == finding.path)?.by.clone();
            seen.or_else(before)
        };
        self.session.drifted = drift::drifted_paths(findings, by);
    }

    /// The failure of a machine with paths that are healed later; `None` if one of them is due now.
    async fn heal_later(
        &mut self,
        node: &Arc<Node>,
        findings: &[DriftFinding],
        unexpected: &str,
    ) -> Result<Option<RetryLater>> {
        let conflict = self.resolve_conflicts(node).await?;
        let (now, limit) = (self.now(), &self.session.heal_limit);
        let pauses = drifted_paths(findings).into_iter().map(|path| limit.pause(path, now));
        let Some(pause) = pauses.min().filter(|pause| !pause.is_zero()) else { return Ok(None) };
        let conflict = conflict.map(|conflict| format!("; {conflict}")).unwrap_or_default();
        let reason = format!("{unexpected}{conflict}; waiting before the next heal");
        Ok(Some(RetryLater { reason, retry_in: pause }))
    }

    /// Does what the policy says about paths that drift as often as they are healed. Returns why the machine
    /// stays degraded, if it does.
    pub(super) async fn resolve_conflicts(
        &mut self,
        node: &Arc<Node>,
    ) -> Result<Option<RetryLater>> {
        let conflicts = self.session.heal_limit.conflicts();
        if conflicts.is_empty() {
            return Ok(None);
        }
        let annotation = NodeView(node).annotation(DRIFT_CONFLICT);
        let policy = DriftConflictPolicy::from_annotation(annotation)?;
        let mut degrading = Vec::new();
        for mut conflict in conflicts {
            if !conflict.is_reported && conflict.writer.unit.is_none() {
                self.find_suspect(&mut conflict).await?;
            }
            let step = conflict.next_step(policy);
            if !conflict.is_reported {
                tracing::warn!(path = conflict.path, heals = conflict.heals, %conflict, "a path is contested");
                self.reporter.warn(node, "ConfigDriftConflict", conflict.to_string());
                self.session.heal_limit.conflict_reported(&conflict.path);
            }
            match step {
                ConflictStep::Report => {}
                ConflictStep::StopUnit(unit) => self.stop_unit(node, &conflict.path, &unit).await?,
                ConflictStep::Degrade => degrading.push(conflict),
            }
        }
        let Some(reason) = drift::describe_conflicts(&degrading) else { return Ok(None) };
        let retry_in = self.session.heal_limit.settles_in(self.now());
        Ok(Some(RetryLater { reason, retry_in: retry_in.unwrap_or(MAX_HEAL_PAUSE) }))
    }

    /// Looks for a unit that may be the one that changes a path, where the kernel did not say.
    async fn find_suspect(&mut self, conflict: &mut HealConflict) -> Result<()> {
        let path = conflict.path.clone();
        conflict.writer.suspect = tokio::task::spawn_blocking(move || suspect_unit(&path)).await?;
        self.session.heal_limit.changed_by(&conflict.path, conflict.writer.clone());
        Ok(())
    }

    /// Stops a unit that changes a path again and again.
    async fn stop_unit(&mut self, node: &Arc<Node>, path: &str, unit: &str) -> Result<()> {
        let systemd = Systemd::connect(self.disk.path()).await?;
        let systemd = systemd.context("systemd is not running on this machine")?;
        // Once, whatever comes of it: a unit that cannot be stopped degrades the machine.
        self.session.heal_limit.unit_stopped(path, unit);
        systemd.stop(unit).await.with_context(|| {
            format!("{path:?} is repeatedly changed by unit {unit}, which cannot be stopped")
        })?;
        tracing::warn!(path, unit, "stopped a unit that fights over a path");
        let message = format!(
            "stopped {unit}, which changed {path:?} as often as it was healed: run systemctl disable {unit}, or remove the path from the config"
        );
        self.reporter.warn(node, "ConfigDriftUnitStopped", message);
        Ok(())
    }

    /// Heals until nothing is due any more: other paths may drift while some are healed. Returns the drift
    /// that is left, and what kept it from being healed.
    async fn heal_until_stuck(
        &mut self,
        node: &Arc<Node>,
        config: &MachineConfig,
        mut findings: Vec<DriftFinding>,
        pace: HealPace,
    ) -> Result<(Vec<DriftFinding>, Vec<String>)> {
        let mut not_healed = Vec::new();
        for round in 0..MAX_HEALS {
            let now = self.now();
            let limit = &self.session.heal_limit;
            let is_later = |path: &&str| {
                (round > 0 || pace == HealPace::Limited) && !limit.pause(path, now).is_zero()
            };
            let drifted = drifted_paths(&findings);
            let later: BTreeSet<String> =
                drifted.iter().filter(|path| is_later(path)).map(ToString::to_string).collect();
            if later.len() == drifted.len() {
                return Ok((findings, not_healed));
            }
            let healed = self.heal_drift(node, config, later.clone()).await;
            let now = self.now();
            if let Ok(report) = &healed {
                // A path that cannot be healed is not contested.
                for change in report.changes.iter().filter(|it| drifted.contains(it.path.as_str()))
                {
                    self.session.heal_limit.healed(&change.path, now);
                }
            }
            // A repair by hand has to be noticed, and so has the next drift, whatever became of this one.
            self.start_watching(node, config).await;
            let healed = healed?;
            not_healed = healed.not_healed;
            // The watch compares when it starts, and reports every change after that.
            let left = match &self.drift_watcher {
                Some(watch) => watch.findings().to_vec(),
                None => self.disk.check(config).await?,
            };
            self.session.heal_limit.observe(&drifted_paths(&left), now);
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

    /// Reports what went wrong in an attempt to heal; nothing did if it is empty.
    fn report_while_healing(&self, task: &'static str, problem: String) {
        let outcome = if problem.is_empty() { Ok(()) } else { Err(problem) };
        self.failures.record(task, "", outcome);
    }

    /// Heals drift, except for some paths.
    async fn heal_drift(
        &mut self,
        node: &Arc<Node>,
        config: &MachineConfig,
        later: BTreeSet<String>,
    ) -> Result<HealReport> {
        self.stop_watching(node);
        self.enter(node, Phase::Healing);
        let (root, config) = (self.disk.path().to_owned(), config.clone());
        let healed = tokio::task::spawn_blocking(move || heal(&root, &config, &later)).await;
        self.enter(node, Phase::Idle);
        let healed = healed.context("the thread that heals drift panicked")??;
        for change in &healed.changes {
            tracing::info!(action = change.action.name(), path = change.path, "healed drift");
        }
        let left_out = healed.notes.join("; ");
        self.report_while_healing("heal drift completely", left_out);
        if healed.needs_daemon_reload
            && let Some(systemd) = Systemd::connect(self.disk.path()).await?
        {
            systemd.daemon_reload().await?;
        }
        self.report_while_healing("heal drift", healed.not_healed.join("; "));
        if !healed.changes.is_empty() {
            let message = match healed.changes.len() {
                1 => "healed 1 difference".to_owned(),
                count => format!("healed {count} differences"),
            };
            self.reporter.event(node, "ConfigDriftHealed", message);
        }
        Ok(healed)
    }
}
