//! `machinist reboot`: permission to reboot, for a machine that waits for it.

use anyhow::Result;
use clap::Args;
use http::Method;
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfigPool;
use machinist_core::api::names::annotation::machinist;
use machinist_core::node::NodeView;
use machinist_core::rollout::{RolloutPolicy, pools_of};
use serde_json::json;

use super::cluster::session::SessionArgs;
use super::cluster::snapshot::{SnapshotKind, deserialize};
use super::{CommandOutcome, cluster, output};
use crate::kubernetes::request::{MERGE_PATCH, status_code, with_query};

/// How often a write is retried after a conflict with another writer.
const MAX_CONFLICT_RETRIES: usize = 5;

/// Allow a machine that waits for a reboot to restart
///
/// Machines of a pool with the annotation machinist.dev/reboot=deferred wait for this permission. If the
/// machine does not wait for a reboot, the exit code is 3 and the error shows what it does instead.
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
            let path = session.needed(SnapshotKind::Node)?.path(None, Some(&self.node));
            let mut tries = 0;
            loop {
                tries += 1;
                let object = session.client.get(&path).await?;
                let node: Node = deserialize(SnapshotKind::Node, &object)?;
                let view = NodeView(&node);
                let pools: Vec<MachineConfigPool> = session.all(SnapshotKind::Pool).await?;
                if let Some(why_not) = why_not(view, &pools) {
                    output::print_error(&why_not);
                    return Ok(CommandOutcome::Refused);
                }
                let config = view.desired_config();
                // The resource version makes the write fail if the machine no longer waits for this.
                let patch = json!({"metadata": {
                    "resourceVersion": node.metadata.resource_version,
                    "annotations": {machinist::REBOOT_APPROVED: config},
                }});
                let path = with_query(&path, &[("fieldManager", "machinist")]);
                match session.client.write(Method::PATCH, &path, MERGE_PATCH, &patch).await {
                    Err(error)
                        if tries < MAX_CONFLICT_RETRIES && status_code(&error) == Some(409) => {}
                    Err(error) => return Err(error),
                    Ok(_) => {
                        output::print(&format!(
                            "{} reboots into {config} as soon as it is drained\n",
                            self.node
                        ))?;
                        return Ok(CommandOutcome::Done);
                    }
                }
            }
        })
    }
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
    } else if view.is_done() {
        format!("{name} does not wait for a reboot: it has {desired} and is done")
    } else if view.is_failing() {
        format!("{name} does not wait for a reboot: it failed on {desired}: {}", view.reason())
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
        let done = json!({CURRENT_CONFIG: "b", DESIRED_CONFIG: "b", STATE: "Done"});
        for (annotations, expected) in [
            (with(&json!({pending: "b"})), None),
            (with(&json!({pending: "b", machinist::REBOOT_APPROVED: "a"})), None),
            (with(&json!({pending: "b", machinist::REBOOT_APPROVED: "b"})), Some("already")),
            (with(&json!({pending: "a"})), Some("the reboot into a is no longer needed")),
            (working.clone(), Some("is updating to b (Working)")),
            (with(&json!({STATE: "Degraded", REASON: "disk full"})), Some("disk full")),
            (done, Some("has b and is done")),
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
        let node = node(&with(&json!({pending: "b"})));
        assert!(why_not(NodeView(&node), &[pool]).unwrap().contains("bad-configs"));
    }
}
