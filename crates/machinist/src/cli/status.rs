//! `machinist status`: all machines at a glance. The reasons are those of `machinist rollout status`.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use machinist_core::api::names::annotation::machinist::UPGRADE;
use machinist_core::node::{DaemonReport, NodeView, UpgradeRequest};
use machinist_core::rollout::WaitReason;
use machinist_hub::table::human_duration;
use serde::Serialize;
use serde_json::Value;

use super::cluster::session::{ClusterSession, SessionArgs};
use super::cluster::snapshot::ClusterSnapshot;
use super::once::printable;
use super::output::{OutputFormat, format_columns};
use super::rollout::reasons;
use super::rollout::report::{PendingMachine, PoolState, report};
use super::{CommandOutcome, cluster, output};
use crate::kubernetes::request::{ACCEPT_JSON, status_code};

/// The namespace of the leases that say when a machine was last seen.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Show all machines: pool, state, when each was last seen, config, address, and what it waits for
///
/// Reasons and remedies are those of `machinist rollout status`. With names, only these machines are shown.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist status\n\n\
        More examples:\n  machinist status worker-1 -o json")]
pub(super) struct StatusArgs {
    /// The machines to show [default: all]
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,

    #[command(flatten)]
    session: SessionArgs,
}

/// One machine.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MachineRow {
    machine: String,
    /// Its pool; none if no pool selects it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen: Option<Time>,
    /// The config that it has.
    #[serde(skip_serializing_if = "String::is_empty")]
    config: String,
    /// The config that it should have.
    #[serde(skip_serializing_if = "String::is_empty")]
    desired: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// Its daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    daemon: Option<DaemonReport>,
    /// What it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<WaitReason>,
    /// The same as text, with the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl StatusArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        cluster::block_on(async {
            let session = self.session.connect().await?;
            let snapshot = session.visible_snapshot().await?;
            let leases = leases(&session).await?;
            let now = Time(k8s_openapi::jiff::Timestamp::now());
            let mut rows = rows(&snapshot, &leases, &now);
            for name in &self.nodes {
                if !rows.iter().any(|row| row.machine == *name) {
                    anyhow::bail!("Node {name} does not exist: `machinist status` lists all");
                }
            }
            rows.retain(|row| self.nodes.is_empty() || self.nodes.contains(&row.machine));
            match self.output {
                OutputFormat::Json => output::print_json(&rows)?,
                OutputFormat::Text if rows.is_empty() => {
                    output::print_note("no machine has joined: `machinist join --help`");
                }
                OutputFormat::Text => output::print(&text(&rows, &now))?,
            }
            Ok(CommandOutcome::Done)
        })
    }
}

/// When each machine renewed its lease; empty for users that may not read leases.
async fn leases(session: &ClusterSession) -> Result<BTreeMap<String, Time>> {
    let kind = |group: &str, kind: &str| {
        session.resources.0.iter().find(|it| it.group == group && it.kind == kind)
    };
    let Some(resource) = kind("coordination.k8s.io", "Lease") else { return Ok(BTreeMap::new()) };
    let path = resource.path(Some(LEASE_NAMESPACE), None);
    let list = match session.client.list_as(&path, ACCEPT_JSON).await {
        Err(error) if status_code(&error) == Some(403) => return Ok(BTreeMap::new()),
        list => list?,
    };
    let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
    let leases = items.filter_map(|item| serde_json::from_value::<Lease>(item.clone()).ok());
    Ok(leases
        .filter_map(|lease| {
            let renewed = lease.spec.as_ref()?.renew_time.as_ref()?.0;
            Some((lease.name_any(), Time(renewed)))
        })
        .collect())
}

fn rows(
    snapshot: &ClusterSnapshot,
    leases: &BTreeMap<String, Time>,
    now: &Time,
) -> Vec<MachineRow> {
    let mut pools: BTreeMap<String, String> = BTreeMap::new();
    let mut pending: BTreeMap<String, PendingMachine> = BTreeMap::new();
    let mut pool_states: BTreeMap<String, PoolState> = BTreeMap::new();
    for pool in &snapshot.pools {
        let (members, _) =
            machinist_core::rollout::nodes_of(pool, &snapshot.pools, &snapshot.nodes);
        pools.extend(members.iter().map(|node| (node.name_any(), pool.name_any())));
        let report = report(snapshot, pool, now);
        pool_states.insert(pool.name_any(), report.state);
        pending.extend(report.pending.into_iter().map(|one| (one.machine.clone(), one)));
    }
    let row = |node: &Node| {
        let (view, name) = (NodeView(node), node.name_any());
        let pool = pools.get(&name).cloned();
        let entry = pending.remove(&name);
        let waiting = entry.as_ref().and_then(|entry| entry.waiting.clone());
        let reason = match (&waiting, &pool) {
            (Some(waiting), _) => {
                let drain = entry.and_then(|entry| entry.drain);
                let drain = drain.map(|drain| format!(": {drain}")).unwrap_or_default();
                Some(reasons::waiting_reason(&name, waiting, now) + &drain)
            }
            (None, None) => Some(
                "no pool selects it: give it the label of a pool, `machinist label node`"
                    .to_owned(),
            ),
            (None, Some(_)) => view.held().map(|because| {
                let because = because.to_owned();
                reasons::waiting_reason(&name, &WaitReason::Held { because }, now)
            }),
        };
        MachineRow {
            state: state(view, pool.as_deref(), waiting.as_ref(), &pool_states),
            last_seen: last_seen(node, leases),
            config: view.current_config().to_owned(),
            desired: view.desired_config().to_owned(),
            address: address(node),
            daemon: DaemonReport::of(view),
            machine: name,
            pool,
            waiting,
            reason: both(reason, upgrade_reason(view)),
        }
    };
    let mut rows: Vec<MachineRow> = snapshot.nodes.iter().map(row).collect();
    rows.sort_by(|a, b| a.machine.cmp(&b.machine));
    rows
}

fn both(one: Option<String>, other: Option<String>) -> Option<String> {
    match (one, other) {
        (Some(one), Some(other)) => Some(format!("{one}; {other}")),
        (one, other) => one.or(other),
    }
}

/// Where the upgrade of its daemon is, if one was asked for.
fn upgrade_reason(view: NodeView<'_>) -> Option<String> {
    let request = UpgradeRequest::parse(view.annotation(UPGRADE)?).ok()?;
    let report = DaemonReport::of(view).filter(|report| report.sha256 != request.sha256)?;
    Some(match report.failed.filter(|failed| failed.id == request.id) {
        Some(failed) => format!("the upgrade of its daemon failed: {}", failed.reason),
        None => "its daemon is upgrading".to_owned(),
    })
}

/// The state of a machine in one word.
fn state(
    view: NodeView<'_>,
    pool: Option<&str>,
    waiting: Option<&WaitReason>,
    pools: &BTreeMap<String, PoolState>,
) -> &'static str {
    if pool.is_none() {
        return "unmanaged";
    }
    match waiting {
        _ if view.held().is_some() => "held",
        Some(
            WaitReason::Failing { .. } | WaitReason::Drifted { .. } | WaitReason::Degraded { .. },
        ) => "degraded",
        Some(WaitReason::NotReady { .. }) => "notReady",
        Some(
            WaitReason::Working { .. }
            | WaitReason::Draining { .. }
            | WaitReason::Superseded { .. },
        ) => "updating",
        Some(_) => "waiting",
        None if view.is_done() => "updated",
        // It gets its config now, or its pool has a problem that its status shows.
        None if pool.and_then(|pool| pools.get(pool)) == Some(&PoolState::Invalid) => "waiting",
        None => "updating",
    }
}

/// The last sign of life: the lease, or the heartbeat in the condition `Ready`.
fn last_seen(node: &Node, leases: &BTreeMap<String, Time>) -> Option<Time> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    let heartbeat = ready.next().and_then(|condition| condition.last_heartbeat_time.clone());
    leases.get(&node.name_any()).cloned().into_iter().chain(heartbeat).max()
}

/// The address that an administrator connects to.
fn address(node: &Node) -> Option<String> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    let of_type = |kind: &str| addresses.iter().find(|address| address.type_ == kind);
    let kinds = ["ExternalIP", "InternalIP", "Hostname"];
    kinds.iter().find_map(|kind| of_type(kind)).map(|address| address.address.clone())
}

fn text(rows: &[MachineRow], now: &Time) -> String {
    let header = ["MACHINE", "POOL", "STATE", "LAST SEEN", "CONFIG", "ADDRESS", "REASON"];
    let or_none = |text: Option<&str>| text.filter(|it| !it.is_empty()).unwrap_or("-").to_owned();
    let mut lines = vec![header.map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        let seen = row
            .last_seen
            .as_ref()
            .map(|seen| format!("{} ago", human_duration(now.0.duration_since(seen.0))));
        [
            row.machine.clone(),
            or_none(row.pool.as_deref()),
            row.state.to_owned(),
            or_none(seen.as_deref()),
            or_none(Some(&row.config)),
            or_none(row.address.as_deref()),
            row.reason.clone().unwrap_or_default(),
        ]
        .map(|cell| printable(&cell))
    }));
    format_columns(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, role: &str, annotations: &Value) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"role": role}, "annotations": annotations},
            "status": {
                "conditions": [{
                    "type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-15T10:00:00Z",
                }],
                "addresses": [
                    {"type": "Hostname", "address": name},
                    {"type": "InternalIP", "address": "192.0.2.7"},
                ],
            },
        }))
        .unwrap()
    }

    fn annotations(current: &str, desired: &str, state: &str) -> Value {
        let key = |key: &str| format!("machineconfiguration.openshift.io/{key}");
        json!({key("currentConfig"): current, key("desiredConfig"): desired, key("state"): state})
    }

    #[test]
    fn each_machine_has_a_line_with_its_reason() {
        let mut drifted = annotations("new", "new", "Degraded");
        drifted["machinist.dev/drifted"] = json!(r#"[{"path":"/etc/motd","kind":"content"}]"#);
        let mut held = annotations("new", "new", "Done");
        held["machinist.dev/hold"] = json!("a disk\u{1b}[2J is replaced");
        let mut upgraded = annotations("new", "new", "Done");
        upgraded["machinist.dev/upgrade"] =
            json!(json!({"id": "2", "sha256": "b".repeat(64), "size": 1}).to_string());
        let report = json!({
            "version": "0.1.0", "sha256": "a".repeat(64), "since": "2026-01-01T10:00:00Z",
            "architecture": "amd64", "failed": {"id": "2", "reason": "it crashed"},
        });
        upgraded["machinist.dev/daemon"] = json!(report.to_string());
        let nodes = vec![
            node("d", "w", &upgraded),
            node("a", "w", &drifted),
            node("b", "w", &held),
            node("c", "other", &json!({})),
        ];
        let pool = serde_json::from_value(json!({
            "metadata": {"name": "worker"},
            "spec": {
                "configuration": {"name": "new"}, "nodeSelector": {"matchLabels": {"role": "w"}},
            },
        }))
        .unwrap();
        let snapshot = ClusterSnapshot { pools: vec![pool], nodes, ..ClusterSnapshot::default() };
        let time = |text: &str| -> Time { serde_json::from_value(json!(text)).unwrap() };
        let leases = BTreeMap::from([("a".to_owned(), time("2026-11-15T10:00:50Z"))]);
        let now = time("2026-11-15T10:01:00Z");
        let rows = rows(&snapshot, &leases, &now);
        let text = text(&rows, &now);
        let expected = [
            "MACHINE  POOL    STATE      LAST SEEN  CONFIG  ADDRESS    REASON",
            "a        worker  degraded   10s ago    new     192.0.2.7  degraded: /etc/motd was changed by hand; `machinist heal a`",
            "b        worker  held       60s ago    new     192.0.2.7  is held (a disk\\u{1b}[2J is replaced); `machinist release b`",
            "c        -       unmanaged  60s ago    -       192.0.2.7  no pool selects it: give it the label of a pool, `machinist label node`",
            "d        worker  updated    60s ago    new     192.0.2.7  the upgrade of its daemon failed: it crashed",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
