//! `machinist heal`: restores what others have changed on a machine, once.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use machinist_core::api::names::annotation::machinist::HEAL;
use machinist_core::duration::parse_duration;
use machinist_core::node::NodeView;
use serde_json::json;

use super::cluster::session::SessionArgs;
use super::node_request::{RequestDecision, request, wait_for_daemon};
use super::{CommandOutcome, cluster, output};

/// Restore what others have changed on a machine, once
///
/// The daemon of the machine restores every path that differs from the config, as with the annotation
/// machinist.dev/drift=heal, and the machine is up to date again. The exit code is 3 if something could not be
/// restored, or if the machine is held.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist heal worker-1")]
pub(super) struct HealArgs {
    /// The name of the machine
    node: String,

    /// How long to wait for the machine
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,

    #[command(flatten)]
    session: SessionArgs,
}

impl HealArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        cluster::block_on(async {
            let session = self.session.connect().await?;
            let now = k8s_openapi::jiff::Timestamp::now().to_string();
            let asked = request(&session, &self.node, async |node| {
                Ok(match refusal(NodeView(node)) {
                    Some(refusal) => RequestDecision::Refuse(Err(refusal)),
                    None => RequestDecision::Write(json!({HEAL: now}), Ok(())),
                })
            });
            if let Err(refusal) = asked.await? {
                output::print_error(&refusal);
                return Ok(CommandOutcome::Refused);
            }
            let is_over = |view: NodeView<'_>| {
                // The daemon removes the request together with the outcome.
                let is_answered = view.annotation(HEAL) != Some(&now);
                is_answered.then(|| view.is_degraded().then(|| view.reason().to_owned()))
            };
            let name = &self.node;
            match wait_for_daemon(&session, name, self.timeout, is_over).await? {
                None => {
                    output::print(&format!("{name} has what its config says\n"))?;
                    Ok(CommandOutcome::Done)
                }
                Some(left) => {
                    output::print_error(&format!("{name} is still degraded: {left}"));
                    Ok(CommandOutcome::Refused)
                }
            }
        })
    }
}

/// Why a machine is not asked.
fn refusal(view: NodeView<'_>) -> Option<String> {
    let name = view.name();
    if view.current_config().is_empty() {
        return Some(format!("{name} is not managed: its Node names no config"));
    }
    view.held().map(|_| format!("{name} is held: first run `machinist release {name}`"))
}
