//! What follows a change of the disk: post-apply actions and the reboot. Called by `reconcile` for
//! `AgentStep::RunActions`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::operator::DisruptionAction;
use machinist_core::daemon::actions::{self, SystemdAction};
use machinist_core::daemon::{PendingChange, Phase, SessionEvent, annotations, reports};

use super::super::os::detect::OsBackend;
use super::super::state::DiskState;
use super::super::systemd::{Systemd, TransientUnit};
use super::{Agent, NextReconcile};

/// The transient unit that reboots the machine, by the name that MCO gives it.
const REBOOT_UNIT: &str = "machine-config-daemon-reboot";
/// How long a job may still take after the daemon was asked to stop.
const JOB_GRACE_PERIOD: Duration = Duration::from_secs(10);
/// How many lines of a service's journal an error contains.
const JOURNAL_LINES: &str = "5";
/// How long journalctl may take.
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(5);
/// How many characters of the journal an error contains.
const MAX_JOURNAL_CHARS: usize = 600;

/// Why a change that needs a reboot fails on a machine that is a directory.
const CANNOT_REBOOT: &str = "the change needs a reboot, which this machine cannot do: take the change back, or say what it costs instead with the annotation machinist.dev/on-change";

/// What became of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ActionResult {
    /// It has run.
    Done,
    /// It runs, and the daemon has to stop for it.
    StopsDaemon,
}

/// Adds the last lines of a service's journal to the error of its job.
pub(super) async fn with_journal(result: Result<()>, root: &Path, service: &str) -> Result<()> {
    let Err(error) = result else { return Ok(()) };
    let mut command = tokio::process::Command::new("journalctl");
    command.arg("--root").arg(root).args(["--unit", service, "--lines", JOURNAL_LINES]);
    command.args(["--output", "cat", "--no-pager", "--quiet"]).kill_on_drop(true);
    let lines = match tokio::time::timeout(JOURNAL_TIMEOUT, command.output()).await {
        Ok(Ok(output)) => String::from_utf8_lossy(&output.stdout).trim().replace('\n', " | "),
        _ => String::new(),
    };
    match lines.is_empty() {
        true => Err(error),
        false => {
            let lines: String = lines.chars().take(MAX_JOURNAL_CHARS).collect();
            Err(anyhow!("{error:#}: its last output: {lines}"))
        }
    }
}

/// Reboots the machine, after what is staged is deployed.
pub(super) async fn order_reboot(
    systemd: &Systemd,
    backend: &OsBackend,
    reason: &str,
) -> Result<()> {
    // ostree deploys what is staged while the machine shuts down.
    let finalizer: Vec<&str> = backend.finalize_unit().into_iter().collect();
    let description = format!("machine-config-daemon: {reason}");
    let unit = TransientUnit {
        name: REBOOT_UNIT,
        description: &description,
        command: &["/bin/sh", "-c", "systemctl reboot"],
        requires: &finalizer,
        after: &finalizer,
        ..TransientUnit::default()
    };
    systemd.run_transient(&unit).await.map_err(|error| {
        tracing::error!(error = %format_args!("{error:#}"), "failed to run reboot");
        anyhow!("reboot command failed, something is seriously wrong")
    })
}

impl Agent {
    /// Runs the actions of a change. A failure undoes the change.
    pub(super) async fn run_actions(
        &mut self,
        node: &Arc<Node>,
        state: DiskState,
    ) -> Result<NextReconcile> {
        let Some(mut pending) = state.pending else { return Ok(NextReconcile::Immediately) };
        self.enter(node, Phase::RunningActions);
        let staged = self.stage_os(Some(node), &mut pending).await;
        if pending.is_rollback && staged.is_err() {
            // A rollback has nothing to return to: it is retried.
            self.enter(node, Phase::Idle);
            return staged.map(|()| NextReconcile::Immediately);
        }
        let is_staged = staged.is_ok();
        let result = match staged {
            Ok(()) => self.run_pending_actions(node, &pending).await,
            Err(error) => Err(error),
        };
        let error = match result {
            Ok(ActionResult::StopsDaemon) => {
                self.enter(node, Phase::Idle);
                return Ok(NextReconcile::Immediately);
            }
            Ok(ActionResult::Done) => None,
            Err(error) => Some(error),
        };
        if let Some(error) = error {
            if is_staged {
                let (config, reason) = (pending.config.clone(), format!("{error:#}"));
                self.session.after(SessionEvent::ActionsFailed { config, reason });
            }
            let error = self.undo_change(node, &pending, error).await;
            let reloaded = self.reload_units().await;
            self.enter(node, Phase::Idle);
            return Err(match reloaded {
                Ok(()) => error,
                Err(reload) => error.context(format!(
                    "systemd still has the units of {}: run systemctl daemon-reload; it failed with: {reload:#}",
                    pending.config
                )),
            });
        }
        // Not recorded on disk: reloading a service once more after a crash does no harm.
        self.session.after(SessionEvent::ActionsRun { config: pending.config });
        self.enter(node, Phase::Idle);
        Ok(NextReconcile::Immediately)
    }

    /// Makes systemd read the unit files, which are the previous ones again.
    async fn reload_units(&self) -> Result<()> {
        match Systemd::connect(self.disk.path()).await? {
            Some(systemd) => systemd.daemon_reload().await,
            None => Ok(()),
        }
    }

    async fn run_pending_actions(
        &mut self,
        node: &Arc<Node>,
        pending: &PendingChange,
    ) -> Result<ActionResult> {
        let systemd = Systemd::connect(self.disk.path()).await?;
        if let Some(systemd) = systemd.as_ref().filter(|_| !pending.needs_reboot(&self.boot_id)) {
            // Systemd sees enabled and disabled units only after this, whatever the policy says.
            systemd.daemon_reload().await?;
        }
        for (index, action) in pending.remaining_actions(&self.boot_id).iter().enumerate() {
            let systemd_action = actions::systemd_action(action);
            if systemd_action == SystemdAction::Nothing {
                continue;
            }
            let (name, config) = (actions::action_name(action), &pending.config);
            // MCO's literal line, which its tests look for.
            tracing::info!("Performing post config change action: {name} for config {config}");
            let run = self.run_action(node, pending, action, systemd_action, systemd.as_ref());
            if run.await? == ActionResult::StopsDaemon {
                // The next process goes on with the actions that are left.
                let mut rest = pending.clone();
                rest.actions_done += index + 1;
                self.disk.set_pending(Some(rest)).await?;
                return Ok(ActionResult::StopsDaemon);
            }
        }
        Ok(ActionResult::Done)
    }

    async fn run_action(
        &mut self,
        node: &Arc<Node>,
        pending: &PendingChange,
        action: &DisruptionAction,
        systemd_action: SystemdAction,
        systemd: Option<&Systemd>,
    ) -> Result<ActionResult> {
        let systemd = || systemd.ok_or_else(|| anyhow!("systemd is not running on this machine"));
        match systemd_action {
            SystemdAction::Nothing => {}
            SystemdAction::LogNoAction => {
                self.reporter.event(node, "SkipReboot", "Config changes do not require reboot.");
                self.reporter.write_status(node, reports::no_post_actions());
                tracing::info!("Node has Desired Config {}, skipping reboot", pending.config);
            }
            SystemdAction::Reboot => {
                let systemd = systemd().context(CANNOT_REBOOT)?;
                self.reboot(node, pending, systemd).await?;
            }
            SystemdAction::Reload(service) => {
                let systemd = systemd()?;
                if self.skips_action(node, systemd, action, "reload", &service).await? {
                    return Ok(ActionResult::Done);
                }
                let job = systemd.reload(&service);
                let Some(result) = self.unless_stopped(job).await else {
                    return Ok(self.leave_job(&service));
                };
                let result = with_journal(result, self.disk.path(), &service).await;
                self.report_reload(node, &service, result)?;
            }
            SystemdAction::DaemonReload => {
                let result = systemd()?.daemon_reload().await;
                self.report_reload(node, "daemon-reload", result)?;
            }
            SystemdAction::Restart(service) => {
                let systemd = systemd()?;
                if self.skips_action(node, systemd, action, "restart", &service).await? {
                    return Ok(ActionResult::Done);
                }
                let job = systemd.restart(&service);
                let Some(result) = self.unless_stopped(job).await else {
                    return Ok(self.leave_job(&service));
                };
                if let Err(error) = with_journal(result, self.disk.path(), &service).await {
                    let message = format!("Restarting {service} service failed. Error: {error:#}");
                    self.reporter.warn(node, "FailedServiceRestart", message);
                    return Err(anyhow!(
                        "could not apply update: restarting {service} service failed. Error: {error:#}"
                    ));
                }
                let message = format!(
                    "Config changes do not require reboot. Service {service} was restarted."
                );
                self.reporter.event(node, "ServiceRestart", message);
                tracing::info!("{service} service restarted successfully!");
            }
            SystemdAction::Run(command) => {
                return self.run_command(node, systemd()?, action, &command).await;
            }
            SystemdAction::RestartDaemon => {
                tracing::info!(
                    unit = actions::DAEMON_UNIT,
                    "restarting after the change is complete"
                );
            }
            SystemdAction::Unknown(_) => {
                let name = actions::action_name(action);
                return Err(anyhow!(
                    "MachineConfiguration cluster: spec.nodeDisruptionPolicy: unknown action {name}: use Reboot"
                ));
            }
        }
        Ok(ActionResult::Done)
    }

    /// Whether an action is skipped because the host does not have the unit, which is reported.
    async fn skips_action(
        &self,
        node: &Arc<Node>,
        systemd: &Systemd,
        action: &DisruptionAction,
        verb: &str,
        service: &str,
    ) -> Result<bool> {
        let state = systemd.load_state(service).await?;
        let mut skipped = actions::skipped_action(verb, service, &state);
        if action.if_present && skipped.is_none() {
            let active = systemd.active_state(service).await?;
            skipped = actions::absent_action(verb, service, &state, &active);
            if skipped.is_some() && actions::stops_without_file(&state, &active) {
                systemd.stop(service).await?;
            }
        }
        let Some(skipped) = skipped else { return Ok(false) };
        tracing::info!(service, verb, skipped, "skipped an action");
        self.reporter.event(node, "ActionSkipped", skipped);
        Ok(true)
    }

    /// Waits for a job; `None` if this process is asked to stop and the job does not end soon after that. It
    /// may wait for this process, which therefore must not wait for it.
    pub(super) async fn unless_stopped(
        &self,
        job: impl Future<Output = Result<()>>,
    ) -> Option<Result<()>> {
        let stopped = async {
            self.stop.cancelled().await;
            tokio::time::sleep(JOB_GRACE_PERIOD).await;
        };
        tokio::select! {
            result = job => Some(result),
            () = stopped => None,
        }
    }

    pub(super) fn leave_job(&self, service: &str) -> ActionResult {
        tracing::warn!(service, "the job may wait for the daemon to stop: not waiting for it");
        ActionResult::StopsDaemon
    }

    /// Restarts the daemon, after the change that asks for it is recorded as complete. It happens once: the
    /// next process finds no pending change.
    pub(super) async fn restart_daemon(&mut self, node: &Arc<Node>) {
        let requested = match Systemd::connect(self.disk.path()).await {
            Ok(Some(systemd)) => systemd.request_restart(actions::DAEMON_UNIT).await,
            Ok(None) => Err(anyhow!("systemd is not running on this machine")),
            Err(error) => Err(error),
        };
        let service = actions::DAEMON_UNIT;
        match requested {
            Ok(()) => {
                tracing::info!(
                    service,
                    "restarting the daemon, as the node disruption policy asks"
                );
                let message = format!(
                    "Config changes do not require reboot. Service {service} was restarted."
                );
                self.reporter.event(node, "ServiceRestart", message);
            }
            Err(error) => {
                let message = format!("Restarting {service} service failed. Error: {error:#}");
                tracing::warn!(error = %format_args!("{error:#}"), service, "cannot restart the daemon");
                self.reporter.warn(node, "FailedServiceRestart", message);
            }
        }
    }

    fn report_reload(&mut self, node: &Arc<Node>, service: &str, result: Result<()>) -> Result<()> {
        if let Err(error) = result {
            let message = format!("Reloading service {service} failed. Error: {error:#}");
            self.reporter.warn(node, "FailedServiceReload", message);
            return Err(anyhow!(
                "could not apply update: reloading {service} configuration failed. Error: {error:#}"
            ));
        }
        self.reporter.write_status(node, reports::reloaded(service));
        let message =
            format!("Config changes do not require reboot. Service {service} was reloaded.");
        self.reporter.event(node, "ServiceReload", message);
        tracing::info!("{service} service reloaded successfully!");
        Ok(())
    }

    /// Reboots the machine.
    async fn reboot(
        &mut self,
        node: &Arc<Node>,
        pending: &PendingChange,
        systemd: &Systemd,
    ) -> Result<()> {
        self.reporter.write_status(node, reports::rebooting());
        tracing::info!("Rebooting node");
        self.enter(node, Phase::Rebooting);
        let reason = format!("Node will reboot into config {}", pending.config);
        self.reporter.event(node, "Reboot", reason.as_str());
        tracing::info!("initiating reboot: {reason}");
        if let Err(error) = self.own_node.annotate(annotations::rebooting(true)).await {
            let error = format_args!("{error:#}");
            tracing::warn!(%error, "cannot report the reboot on the Node");
        }
        self.reporter.flush().await;
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.report_shutdown().await;
        }
        self.arm_boot_guard(node, pending).await;
        order_reboot(systemd, &self.os_backend, &reason)
            .await
            .inspect_err(|_| self.metrics.count_failed_reboot())?;
        self.session.after(SessionEvent::RebootOrdered);
        tracing::info!("reboot successful");
        Ok(())
    }

    /// Reboots a machine that cannot reach the API server.
    pub(super) async fn reboot_unreported(&mut self, reason: &str) -> Result<()> {
        let systemd = Systemd::connect(self.disk.path()).await?;
        let systemd = systemd.ok_or_else(|| anyhow!("systemd is not running on this machine"))?;
        tracing::info!("initiating reboot: {reason}");
        order_reboot(&systemd, &self.os_backend, reason).await?;
        self.session.after(SessionEvent::RebootOrdered);
        Ok(())
    }
}
