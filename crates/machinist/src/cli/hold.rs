//! `machinist hold` and `machinist release`: one machine is left alone.

use anyhow::Result;
use clap::Args;
use machinist_core::api::names::annotation::machinist::HOLD;
use machinist_core::node::NodeView;
use serde_json::{Value, json};

use super::cluster::session::SessionArgs;
use super::node_request::{RequestDecision, request};
use super::{CommandOutcome, cluster, output};

/// The maximum length of a reason, in characters.
const MAX_REASON_CHARS: usize = 200;

/// Leave a machine alone: it gets no new config, nothing is written to its disk, and it does not reboot
///
/// A step that has begun is completed. The rest of the pool continues. The machine is shown as held until
/// `machinist release`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist hold worker-1 --reason 'a disk is replaced'")]
pub(super) struct HoldArgs {
    /// The name of the machine
    node: String,

    /// Why, for everyone who looks at the machine
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, value_parser = reason)]
    reason: String,

    #[command(flatten)]
    session: SessionArgs,
}

/// Release a machine that is held: it gets the changes made in the meantime
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist release worker-1")]
pub(super) struct ReleaseArgs {
    /// The name of the machine
    node: String,

    #[command(flatten)]
    session: SessionArgs,
}

fn reason(text: &str) -> Result<String, String> {
    if text.chars().any(char::is_control) {
        return Err("a reason is one line without control characters".to_owned());
    }
    if text.chars().count() > MAX_REASON_CHARS {
        return Err(format!("a reason has at most {MAX_REASON_CHARS} characters"));
    }
    Ok(text.to_owned())
}

impl HoldArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        set_hold(&self.session, &self.node, Some(&self.reason))
    }
}

impl ReleaseArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        set_hold(&self.session, &self.node, None)
    }
}

fn set_hold(session: &SessionArgs, name: &str, hold: Option<&str>) -> Result<CommandOutcome> {
    cluster::block_on(async {
        let session = session.connect().await?;
        let text = request(&session, name, async |node| {
            let view = NodeView(node);
            let text = text(view, hold);
            Ok(if view.held() == hold {
                RequestDecision::Refuse(text)
            } else {
                RequestDecision::Write(json!({HOLD: hold.map_or(Value::Null, Value::from)}), text)
            })
        });
        output::print(&text.await?)?;
        Ok(CommandOutcome::Done)
    })
}

/// What that means for the machine.
fn text(view: NodeView<'_>, hold: Option<&str>) -> String {
    let (name, config, desired) = (view.name(), view.current_config(), view.desired_config());
    let config = if config.is_empty() { "no config" } else { config };
    match hold {
        None if view.held().is_none() => format!("{name} is not held\n"),
        None => format!("{name} is released\n"),
        Some(_) if view.is_done() => format!("{name} is held; it stays on {config}\n"),
        Some(_) if config == desired => {
            format!("{name} is held with {config}; it is {} and stays so\n", view.state())
        }
        Some(_) => format!(
            "{name} is held between {config} and {desired}: what has begun is completed, nothing else is\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;

    #[test]
    fn the_text_says_what_the_machine_has() {
        let node = |current: &str, desired: &str, state: &str, hold: Option<&str>| -> Node {
            let key = |key: &str| format!("machineconfiguration.openshift.io/{key}");
            let mut annotations = json!({
                key("currentConfig"): current, key("desiredConfig"): desired, key("state"): state,
            });
            if let Some(hold) = hold {
                annotations[HOLD] = json!(hold);
            }
            serde_json::from_value(json!({"metadata": {"name": "a", "annotations": annotations}}))
                .unwrap()
        };
        for (node, hold, expected) in [
            (node("x", "x", "Done", None), Some(""), "a is held; it stays on x\n"),
            (
                node("x", "x", "Degraded", None),
                Some("why"),
                "a is held with x; it is Degraded and stays so\n",
            ),
            (
                node("x", "y", "Working", None),
                Some(""),
                "a is held between x and y: what has begun is completed, nothing else is\n",
            ),
            (node("x", "x", "Done", Some("")), None, "a is released\n"),
            (node("x", "x", "Done", None), None, "a is not held\n"),
        ] {
            assert_eq!(text(NodeView(&node), hold), expected);
        }
        assert!(reason("a\u{1b}[2J").is_err() && reason(&"x".repeat(201)).is_err());
        assert!(reason("a disk is replaced").is_ok());
    }
}
