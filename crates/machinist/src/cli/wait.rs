//! `machinist wait`: waits for conditions of objects.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use machinist_core::duration::parse_duration;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::cluster;
use super::cluster::session::{ClusterSession, ObjectTarget, SelectionArgs, SessionArgs};
use super::cluster::wait_condition::WaitCondition;
use super::{CommandOutcome, output};

/// Wait until objects meet a condition, have a value, exist or are gone
///
/// The command also waits for objects that do not exist yet. After the timeout, the exit code is 1 and the
/// error shows the current state.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist wait mcp worker --for=create --timeout=30s\n\n\
        More examples:\n  machinist wait mcp --all --for=condition=Updated --timeout=10m\n  \
        machinist wait mcp/worker --for=jsonpath='{.spec.paused}'=true")]
pub(super) struct WaitArgs {
    /// A kind and names (mcp worker), or objects with their kinds (mcp/worker node/a)
    #[arg(value_name = "TYPE NAME", required = true)]
    resource_args: Vec<String>,

    #[command(flatten)]
    selection: SelectionArgs,

    /// What to wait for: condition=TYPE[=STATUS], jsonpath={.PATH}[=VALUE], create or delete
    #[arg(long = "for", value_name = "GOAL", value_parser = WaitCondition::parse)]
    goal: WaitCondition,

    /// How long to wait for all objects together; 0 checks once
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,

    #[command(flatten)]
    session: SessionArgs,
}

impl WaitArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let many = self.selection.select(&self.resource_args)?;
        cluster::block_on(async {
            let session = self.session.connect().await?;
            let targets = session.targets(&many).await?;
            if targets.is_empty() {
                if self.goal == WaitCondition::Deleted {
                    return Ok(CommandOutcome::Done);
                }
                bail!("no matching resources found");
            }
            let end = Instant::now() + self.timeout;
            let mut outcome = CommandOutcome::Done;
            for target in &targets {
                if let Err(now) = self.wait(&session, target, end).await? {
                    let (object, goal) = (target.object_name(), self.goal.text());
                    output::print_error(&format!("{object}: timed out waiting for {goal}: {now}"));
                    outcome = CommandOutcome::Failed;
                    continue;
                }
                let word =
                    if self.goal == WaitCondition::Deleted { "deleted" } else { "condition met" };
                output::print(&format!("{} {word}\n", target.object_name()))?;
            }
            Ok(outcome)
        })
    }

    /// Waits for one object. The inner error is its state after the timeout.
    async fn wait(
        &self,
        session: &ClusterSession,
        target: &ObjectTarget<'_>,
        end: Instant,
    ) -> Result<Result<(), String>> {
        let checks_once = self.timeout.is_zero();
        let mut now = "the API server has not responded".to_owned();
        let check = |object: Option<&Value>| match self.goal.check(object) {
            Ok(()) => Some(true),
            Err(text) => {
                now = text;
                checks_once.then_some(false)
            }
        };
        let namespace = target.namespace.as_deref();
        let met = session.client.until(target.resource, namespace, &target.name, check);
        let met = if checks_once {
            met.await?
        } else {
            match timeout_at(end, met).await {
                Ok(met) => met?,
                Err(_) => false,
            }
        };
        Ok(if met { Ok(()) } else { Err(now) })
    }
}
