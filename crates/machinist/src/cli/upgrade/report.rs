//! What `machinist upgrade` shows of a pool or a machine.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use machinist_core::api::MachineConfigPool;
use machinist_core::api::names::annotation::machinist::UPGRADE;
use machinist_core::node::{DaemonReport, NodeView, UpgradeRequest};
use machinist_core::rollout::{
    RolloutPolicy, UpgradeDecision, UpgradeState, decide_upgrade, halted_reason, max_unavailable,
    upgrade_state,
};
use serde::Serialize;

use crate::cli::once::printable;

/// How much of a digest people read.
const SHORT_DIGEST: usize = 12;

/// The upgrade of a pool, or of a machine that was named itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UpgradeReport {
    /// The pool or the machine.
    pub(super) name: String,
    /// What they should run; none if nothing was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<UpgradeRequest>,
    /// Why the request is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
    #[serde(flatten)]
    pub(super) decision: UpgradeDecision,
    /// What each machine runs.
    pub(super) versions: Vec<(String, Option<DaemonReport>)>,
}

impl UpgradeReport {
    /// Of a pool, for a request, or for the one that it has.
    pub(super) fn of_pool(
        pool: &MachineConfigPool,
        members: &[&Node],
        request: Option<UpgradeRequest>,
        now: &Time,
    ) -> Self {
        let mut report = Self::new(pool.name_any(), members);
        let wanted = request.map(Ok).or_else(|| parse(pool.annotations().get(UPGRADE)?));
        let policy = RolloutPolicy::from_annotations(pool).map_err(|error| error.to_string());
        let max = max_unavailable(pool, members.len()).map_err(|error| error.to_string());
        match (wanted, policy, max) {
            (None, ..) => {}
            (Some(Ok(wanted)), Ok(policy), Ok(max)) => {
                report.decision = decide_upgrade(pool, members, &wanted, &policy, max, now);
                report.request = Some(wanted);
            }
            (Some(Err(error)), ..) | (_, Err(error), _) | (.., Err(error)) => {
                report.problem = Some(error);
            }
        }
        report
    }

    /// Of a machine, for a request, or for the one that it has.
    pub(super) fn of_node(node: &Node, request: Option<UpgradeRequest>) -> Self {
        let mut report = Self::new(node.name_any(), &[node]);
        match request.map(Ok).or_else(|| parse(node.annotations().get(UPGRADE)?)) {
            None => {}
            Some(Ok(wanted)) => {
                let state = upgrade_state(NodeView(node), &wanted);
                report.decision.machines.insert(node.name_any(), state);
                report.request = Some(wanted);
            }
            Some(Err(error)) => report.problem = Some(error),
        }
        report
    }

    fn new(name: String, members: &[&Node]) -> Self {
        let version = |node: &&Node| (node.name_any(), DaemonReport::of(NodeView(node)));
        let mut versions: Vec<_> = members.iter().map(version).collect();
        versions.sort_by(|a, b| a.0.cmp(&b.0));
        Self { name, request: None, problem: None, decision: UpgradeDecision::default(), versions }
    }

    /// Whether nothing happens any more without a person.
    pub(super) fn is_over(&self) -> bool {
        self.problem.is_some() || self.request.is_none() || self.decision.is_over()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.problem.is_none() && self.decision.is_complete()
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let (mut text, name) = (String::new(), &self.name);
        match &self.request {
            Some(request) => {
                let done = self.decision.machines.values().filter(|it| **it == UpgradeState::Done);
                let (done, all) = (done.count(), self.decision.machines.len());
                let state = match (self.is_over(), self.is_complete()) {
                    (true, true) => "done",
                    (true, false) => "stopped until you act",
                    (false, _) => "upgrading",
                };
                let sha256 = short(&request.sha256);
                let _ = writeln!(
                    text,
                    "{name} → sha256 {sha256}: {done} of {all} machines run it; {state}"
                );
            }
            None => {
                let _ = writeln!(text, "{name}: no upgrade was asked for");
            }
        }
        if let Some(problem) = &self.problem {
            let _ = writeln!(text, "  ignored: {}", printable(problem));
        }
        let halted = self.decision.halted.as_ref().map(halted_reason).unwrap_or_default();
        if !halted.is_empty() {
            let _ = writeln!(text, "  {}", printable(&halted));
        }
        for (machine, report) in &self.versions {
            let runs = report.as_ref().map_or_else(
                || "unknown".to_owned(),
                |report| format!("{} (sha256 {})", report.version, short(&report.sha256)),
            );
            let state = match self.decision.machines.get(machine) {
                Some(UpgradeState::Waiting { because }) if *because == halted => {
                    ", waits".to_owned()
                }
                state => state.map(state_text).unwrap_or_default(),
            };
            let _ = writeln!(text, "  {}: {}{}", printable(machine), runs, printable(&state));
        }
        text
    }
}

fn parse(text: &str) -> Option<Result<UpgradeRequest, String>> {
    Some(UpgradeRequest::parse(text).map_err(|error| error.to_string()))
}

fn short(sha256: &str) -> &str {
    sha256.get(..SHORT_DIGEST).unwrap_or(sha256)
}

fn state_text(state: &UpgradeState) -> String {
    match state {
        UpgradeState::Done => String::new(),
        UpgradeState::Upgrading => ", is upgrading".to_owned(),
        UpgradeState::Next => ", is next".to_owned(),
        UpgradeState::Waiting { because } => format!(", waits: {because}"),
        UpgradeState::Cannot { because } => format!(", cannot upgrade itself: {because}"),
        UpgradeState::Failed { because } => format!(", failed: {because}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(name: &str, more: &Value) -> Node {
        let mut report = json!({
            "version": "0.1.0", "sha256": "a".repeat(64), "since": "2026-01-01T10:00:00Z",
            "architecture": "amd64",
        });
        for (key, value) in more.as_object().unwrap() {
            report[key] = value.clone();
        }
        let key = |key: &str| format!("machineconfiguration.openshift.io/{key}");
        let annotations = json!({
            key("currentConfig"): "x", key("desiredConfig"): "x", key("state"): "Done",
            "machinist.dev/daemon": report.to_string(),
        });
        let metadata = json!({"name": name, "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn each_machine_has_a_line_with_its_reason() {
        let request = UpgradeRequest {
            id: "1".into(),
            sha256: "b".repeat(64),
            size: 1,
            architecture: None,
            allow_downgrade: false,
        };
        let failed = json!({"failed": {"id": "1", "reason": "it crashed\u{1b}[2J"}});
        let nodes = [
            node("w2", &failed),
            node("w1", &json!({"sha256": "b".repeat(64)})),
            node("w3", &json!({})),
        ];
        let nodes: Vec<&Node> = nodes.iter().collect();
        let annotations = json!({UPGRADE: serde_json::to_string(&request).unwrap()});
        let pool = json!({"metadata": {"name": "worker", "annotations": annotations}, "spec": {}});
        let pool: MachineConfigPool = serde_json::from_value(pool).unwrap();
        let now: Time = serde_json::from_value(json!("2026-01-01T12:00:00Z")).unwrap();
        let report = UpgradeReport::of_pool(&pool, &nodes, None, &now);
        let halted = "the upgrade has stopped, because it failed on w2: `machinist upgrade` again, with a binary that works, or --cancel";
        let expected = [
            "worker → sha256 bbbbbbbbbbbb: 1 of 3 machines run it; stopped until you act"
                .to_owned(),
            format!("  {halted}"),
            "  w1: 0.1.0 (sha256 bbbbbbbbbbbb)".to_owned(),
            "  w2: 0.1.0 (sha256 aaaaaaaaaaaa), failed: it crashed\\u{1b}[2J".to_owned(),
            "  w3: 0.1.0 (sha256 aaaaaaaaaaaa), waits".to_owned(),
        ];
        assert_eq!(report.text().lines().collect::<Vec<_>>(), expected);
        assert!(report.is_over() && !report.is_complete());
        let one = UpgradeReport::of_node(nodes[2], None);
        assert_eq!(one.text(), "w3: no upgrade was asked for\n  w3: 0.1.0 (sha256 aaaaaaaaaaaa)\n");
        let asked = UpgradeReport::of_node(nodes[2], Some(request));
        assert!(asked.text().ends_with(", is next\n"), "{}", asked.text());
    }
}
