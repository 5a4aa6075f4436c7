//! The upgrade of the daemons of a pool: writes the pool's request to the machines whose turn it is. `core::rollout` decides.
//! Called by the rollout loop after its own writes.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use machinist_core::api::names::annotation::machinist::UPGRADE;
use machinist_core::node::UpgradeRequest;
use machinist_core::rollout::{
    RolloutPolicy, UpgradeDecision, UpgradeHalted, decide_upgrade, halted_reason, max_unavailable,
};
use serde_json::json;

use super::rollout::PoolReconcile;

/// What a pass found.
#[derive(Debug, Default)]
pub(super) struct UpgradePass {
    pub(super) decision: UpgradeDecision,
    /// What is wrong with the request, or why it has stopped.
    pub(super) problem: Option<String>,
    /// How many machines could not be asked.
    pub(super) failed_writes: usize,
}

impl PoolReconcile<'_> {
    /// Asks the next machines; nothing without a request.
    pub(super) async fn upgrade_daemons(&self) -> UpgradePass {
        let Some(text) = self.pool.annotations().get(UPGRADE) else {
            return UpgradePass::default();
        };
        let request = match UpgradeRequest::parse(text) {
            Ok(request) => request,
            Err(error) => {
                return UpgradePass { problem: Some(error.to_string()), ..UpgradePass::default() };
            }
        };
        // What is wrong with these is reported with the rollout.
        let (Ok(policy), Ok(max)) = (
            RolloutPolicy::from_annotations(self.pool),
            max_unavailable(self.pool, self.members.len()),
        ) else {
            return UpgradePass::default();
        };
        let decision = decide_upgrade(self.pool, self.members, &request, &policy, max, self.now());
        let mut failed_writes = 0;
        for name in &decision.next {
            let is_named = |node: &&&Node| node.name_any() == *name;
            let Some(node) = self.members.iter().find(is_named) else { continue };
            let patch = json!({"metadata": {"annotations": {UPGRADE: text}}});
            match self.patch_node(node, patch).await {
                Ok(name) => {
                    let sha256 = &request.sha256;
                    let message = format!("Asked {name} to upgrade its daemon to sha256 {sha256}");
                    self.report_event("DaemonUpgradeRequested", &message);
                }
                // The cache was stale, or the API server is away: another pass follows.
                Err(error) => {
                    let error = format_args!("{error}");
                    tracing::debug!(%error, name, "cannot ask a machine to upgrade its daemon");
                    failed_writes += 1;
                }
            }
        }
        let problem = match &decision.halted {
            Some(halted @ UpgradeHalted::Failed { .. }) => Some(halted_reason(halted)),
            _ => None,
        };
        UpgradePass { decision, problem, failed_writes }
    }
}
