//! Runs the command of a post-apply action as a transient unit: on the machine itself, even if this process is in a
//! container, bounded in time, and with its output in the journal. Called by `post_apply`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::operator::DisruptionAction;
use machinist_core::daemon::actions;

use super::super::systemd::{Systemd, TransientUnit};
use super::Agent;
use super::post_apply::{ActionResult, with_journal};

/// How long a command may take. A longer one is stopped, and the change is undone.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);
/// The unit, and the place of the output: `journalctl -u machinist-on-change`.
const COMMAND_UNIT: &str = "machinist-on-change.service";

/// Whether one of the services is active that the command is for.
async fn is_in_use(systemd: &Systemd, command: &[String]) -> Result<bool> {
    let units = actions::units_of_command(command);
    for unit in units {
        if systemd.active_state(unit).await? != "inactive" {
            return Ok(true);
        }
    }
    Ok(units.is_empty())
}

impl Agent {
    /// Runs a command. A failure undoes the change.
    pub(super) async fn run_command(
        &mut self,
        node: &Arc<Node>,
        systemd: &Systemd,
        action: &DisruptionAction,
        command: &[String],
    ) -> Result<ActionResult> {
        let text = command.join(" ");
        let is_there = command
            .first()
            .is_some_and(|first| self.disk.path().join(first.trim_start_matches('/')).exists());
        let why = match () {
            () if !action.if_present => None,
            () if !is_there => Some("this host does not have it"),
            () if !is_in_use(systemd, command).await? => {
                Some("its service does not run on this host")
            }
            () => None,
        };
        if let Some(why) = why {
            let skipped = format!("not applied: run {text}: {why}");
            tracing::info!(skipped, "skipped an action");
            self.reporter.event(node, "ActionSkipped", skipped);
            return Ok(ActionResult::Done);
        }
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let unit = TransientUnit {
            name: COMMAND_UNIT,
            description: "machinist: a command after a change",
            command: &words,
            runtime_directory: actions::runtime_directory(command),
            ..TransientUnit::default()
        };
        // A daemon that was killed may have left one.
        let _ = systemd.stop(COMMAND_UNIT).await;
        let run = systemd.run_and_wait(&unit, COMMAND_TIMEOUT);
        let Some(result) = self.unless_stopped(run).await else {
            return Ok(self.leave_job(COMMAND_UNIT));
        };
        if let Err(error) = with_journal(result, self.disk.path(), COMMAND_UNIT).await {
            let message = format!("Running {text} failed. Error: {error:#}");
            self.reporter.warn(node, "FailedCommand", message.as_str());
            return Err(anyhow!("could not apply update: running {text} failed. Error: {error:#}"));
        }
        let message = format!("Config changes do not require reboot. {text} was run.");
        self.reporter.event(node, "CommandRun", message);
        tracing::info!(command = text, output = COMMAND_UNIT, "ran the command of a change");
        Ok(ActionResult::Done)
    }
}
