//! `machinist reboot`: permission to reboot for a machine that waits for it, or a request for any other.

use anyhow::Result;
use clap::Args;
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfigPool;
use machinist_core::api::names::annotation::machinist;
use machinist_core::node::NodeView;
use machinist_core::os::abilities::{HostAbilities, NO_INIT};
use machinist_core::rollout::{RolloutPolicy, pools_of};
use serde_json::json;

use super::cluster::session::SessionArgs;
use super::cluster::snapshot::SnapshotKind;
use super::node_request::{RequestDecision, request};
use super::{CommandOutcome, cluster, output};

/// Reboot a machine
///
/// A machine that waits for permission to reboot gets it. Any other machine that is up to date reboots as soon
/// as maxUnavailable allows: it is drained first, and no more machines than that are away. A
/// machine that is updating, failed or held, or that cannot reboot because no systemd runs on it, is refused with
/// exit code 3, and the error shows why.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist reboot worker-1")]
pub(super) struct RebootArgs {
    /// The name of the machine
    node: String,

    #[command(flatten)]
    session: SessionArgs,
}

impl RebootArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        cluster::block_on(async {
            let session = self.session.connect().await?;
            let pools: Vec<MachineConfigPool> = session.all(SnapshotKind::Pool).await?;
            let now = k8s_openapi::jiff::Timestamp::now().to_string();
            let done = request(&session, &self.node, async |node: &Node| {
                let view = NodeView(node);
                let config = view.desired_config().to_owned();
                Ok(match decide(view, &pools) {
                    RebootDecision::Approve => RequestDecision::Write(
                        json!({machinist::REBOOT_APPROVED: config}),
                        Ok(format!(
                            "{} reboots into {config} as soon as it is drained\n",
                            self.node
                        )),
                    ),
                    RebootDecision::Request => RequestDecision::Write(
                        json!({machinist::REBOOT_REQUESTED: now}),
                        Ok(format!(
                            "{} reboots as soon as maxUnavailable allows; `machinist status {}` shows it\n",
                            self.node, self.node
                        )),
                    ),
                    RebootDecision::Refuse(why) => RequestDecision::Refuse(Err(why)),
                })
            });
            match done.await? {
                Ok(text) => {
                    output::print(&text)?;
                    Ok(CommandOutcome::Done)
                }
                Err(why_not) => {
                    output::print_error(&why_not);
                    Ok(CommandOutcome::Refused)
                }
            }
        })
    }
}

/// What becomes of the wish to reboot a machine.
#[derive(Debug, PartialEq, Eq)]
enum RebootDecision {
    /// It waits for permission, and gets it.
    Approve,
    /// It is up to date, and is asked to reboot.
    Request,
    /// Neither, for this reason.
    Refuse(String),
}

fn decide(view: NodeView<'_>, pools: &[MachineConfigPool]) -> RebootDecision {
    let pool = pools_of(view.0, pools).ok().and_then(|pools| pools.first().copied());
    if view.held().is_some() {
        let name = view.name();
        let why = format!("{name} is held: first run `machinist release {name}`");
        return RebootDecision::Refuse(why);
    }
    if let Some(why) = cannot_reboot(view) {
        return RebootDecision::Refuse(why);
    }
    if view.is_done() {
        // The controller drains, and decides when the pool can do without the machine.
        return match pool {
            Some(_) => RebootDecision::Request,
            None => RebootDecision::Refuse(format!(
                "{} is in no pool, so nothing decides when it may reboot: give it the label of a pool",
                view.name()
            )),
        };
    }
    why_not(view, pools).map_or(RebootDecision::Approve, RebootDecision::Refuse)
}

/// Why no machine of this kind reboots, as its daemon reports it.
fn cannot_reboot(view: NodeView<'_>) -> Option<String> {
    let abilities = HostAbilities::parse(view.annotation(machinist::HOST)?)?;
    let (name, desired) = (view.name(), view.desired_config());
    if abilities.init != NO_INIT {
        return None;
    }
    let mut text = format!(
        "{name} cannot reboot: no systemd runs on it, as on a machine that is only a directory"
    );
    if view.awaits_reboot() {
        text.push_str(&format!(
            "; it waits to reboot into {desired}: take the change back, or say what it costs instead with the annotation {}",
            machinist::ON_CHANGE
        ));
    }
    Some(text)
}

/// Why a machine gets no permission; none if it waits for it.
fn why_not(view: NodeView<'_>, pools: &[MachineConfigPool]) -> Option<String> {
    let (name, desired) = (view.name(), view.desired_config());
    if view.awaits_reboot() {
        let pool = pools_of(view.0, pools).ok().and_then(|pools| pools.first().copied())?;
        let bad = RolloutPolicy::from_annotations(pool)
            .map(|policy| policy.bad_configs)
            .unwrap_or_default();
        let pool = pool.metadata.name.as_deref().unwrap_or_default();
        return bad.contains(desired).then(|| {
            format!("{name} waits to reboot into {desired}, which is marked as bad: first remove it from the annotation {} of MachineConfigPool {pool}", machinist::BAD_CONFIGS)
        });
    }
    let pending = view.annotation(machinist::REBOOT_PENDING).filter(|config| !config.is_empty());
    Some(if desired.is_empty() {
        format!("{name} is not managed: its Node names no config")
    } else if view.is_degraded() {
        format!("{name} does not wait for a reboot: it is degraded: {}", view.reason())
    } else if pending == Some(desired) {
        format!("{name} already has permission to reboot into {desired}")
    } else {
        let mut text = format!(
            "{name} does not wait for a reboot: it is updating to {desired} ({})",
            view.state()
        );
        if let Some(config) = pending {
            text.push_str(&format!("; the reboot into {config} is no longer needed"));
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinist_core::api::names::annotation::{CURRENT_CONFIG, DESIRED_CONFIG, REASON, STATE};
    use serde_json::Value;

    fn node(annotations: &Value) -> Node {
        let labels = json!({"node-role.kubernetes.io/worker": ""});
        let metadata = json!({"name": "a", "labels": labels, "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn only_waiting_machines_get_permission() {
        let pending = machinist::REBOOT_PENDING;
        let working = json!({CURRENT_CONFIG: "a", DESIRED_CONFIG: "b", STATE: "Working"});
        let with = |more: &Value| {
            let mut all = working.clone();
            for (key, value) in more.as_object().unwrap() {
                all[key] = value.clone();
            }
            all
        };
        for (annotations, expected) in [
            (with(&json!({pending: "b"})), None),
            (with(&json!({pending: "b", machinist::REBOOT_APPROVED: "a"})), None),
            (with(&json!({pending: "b", machinist::REBOOT_APPROVED: "b"})), Some("already")),
            (with(&json!({pending: "a"})), Some("the reboot into a is no longer needed")),
            (working.clone(), Some("is updating to b (Working)")),
            (with(&json!({STATE: "Degraded", REASON: "disk full"})), Some("disk full")),
            (json!({}), Some("is not managed")),
        ] {
            let node = node(&annotations);
            let found = why_not(NodeView(&node), &[]);
            match expected {
                None => assert_eq!(found, None, "{annotations}"),
                Some(part) => {
                    assert!(found.as_ref().is_some_and(|f| f.contains(part)), "{found:?}");
                }
            }
        }
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "metadata": {"name": "worker", "annotations": {machinist::BAD_CONFIGS: "b"}},
            "spec": {"nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}},
        }))
        .unwrap();
        let waiting = node(&with(&json!({pending: "b"})));
        let pools = [pool];
        assert!(why_not(NodeView(&waiting), &pools).unwrap().contains("bad-configs"));
        assert_eq!(decide(NodeView(&waiting), &[]), RebootDecision::Approve);
        let mut done = json!({CURRENT_CONFIG: "b", DESIRED_CONFIG: "b", STATE: "Done"});
        assert_eq!(decide(NodeView(&node(&done)), &pools), RebootDecision::Request);
        let refused = |node: &Node, pools: &[MachineConfigPool], part: &str| {
            let decision = decide(NodeView(node), pools);
            let RebootDecision::Refuse(why) = decision else { panic!("{decision:?}") };
            assert!(why.contains(part), "{why}");
        };
        refused(&node(&done), &[], "is in no pool");
        done[machinist::HOST] = json!(r#"{"init":"none"}"#);
        refused(&node(&done), &pools, "a cannot reboot: no systemd runs on it");
        let mut directory = with(&json!({pending: "b"}));
        directory[machinist::HOST] = json!(r#"{"init":"none"}"#);
        refused(&node(&directory), &[], "take the change back");
        done[machinist::HOST] = json!(r#"{"init":"systemd"}"#);
        assert_eq!(decide(NodeView(&node(&done)), &pools), RebootDecision::Request);
        done[machinist::HOLD] = json!("");
        refused(&node(&done), &pools, "machinist release a");
    }
}
