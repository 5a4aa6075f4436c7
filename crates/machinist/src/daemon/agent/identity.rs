//! Claims the Node for this machine, so that two machines with one identity (a clone and its original) do not both act.
//! Called by `reconcile` first of all. `core::daemon::identity_claim` decides.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::names::annotation::machinist::IDENTITY_CLAIM;
use machinist_core::api::names::state;
use machinist_core::daemon::identity_claim::{
    CLAIM_GRACE, ClaimState, ClaimStep, IdentityClaim, REFUSED_RETRY_INTERVAL, claim_step,
    refused_reason,
};
use machinist_core::daemon::{SessionEvent, annotations};
use machinist_core::node::NodeView;

use super::{Agent, NextReconcile};

/// After this long without its Node, a machine without a kubelet registers it again.
const MISSING_NODE_GRACE: Duration = Duration::from_secs(10);

impl Agent {
    /// Claims the Node. Returns when to go on if this machine must not act now.
    pub(super) async fn claim_identity(
        &mut self,
        node: &Arc<Node>,
    ) -> Result<Option<NextReconcile>> {
        let on_node = NodeView(node).annotation(IDENTITY_CLAIM);
        let on_node = on_node.and_then(|claim| claim.parse::<IdentityClaim>().ok());
        match claim_step(self.new_claim(), &self.session.claim, on_node, self.now()) {
            ClaimStep::Keep { claim, pause } => {
                self.hold(claim, pause);
                Ok((!pause.is_zero()).then_some(NextReconcile::Wait(Some(pause))))
            }
            ClaimStep::Write { claim, replaces } => {
                self.own_node.annotate(annotations::identity_claim(&claim)).await?;
                self.hold(claim, if replaces { CLAIM_GRACE } else { Duration::ZERO });
                Ok(Some(NextReconcile::Immediately))
            }
            ClaimStep::Object { claim, refused } => {
                let other = refused.describe();
                tracing::error!(other, "another machine has the identity of this one; refusing it");
                let message = format!(
                    "another machine ({other}) works under the identity of this one ({}), and was refused: run machinist leave there, and join it with a name of its own",
                    claim.describe()
                );
                self.reporter.warn(node, "IdentityConflict", message);
                self.own_node.annotate(annotations::identity_claim(&claim)).await?;
                if let Some(heartbeat) = self.heartbeat.clone() {
                    // The other one may have described itself in the status.
                    tokio::spawn(async move { heartbeat.register().await });
                }
                Ok(Some(NextReconcile::Immediately))
            }
            ClaimStep::Challenge { claim } => {
                tracing::warn!(
                    "the Node has an earlier claim, as after a restore: claiming it again"
                );
                self.own_node.annotate(annotations::identity_claim(&claim)).await?;
                self.hold(claim, CLAIM_GRACE);
                if let ClaimState::Holding { challenged_at, .. } = &mut self.session.claim {
                    *challenged_at = Some(self.started.elapsed());
                }
                Ok(Some(NextReconcile::Immediately))
            }
            ClaimStep::Yield(by) => {
                let reason = refused_reason(&self.own_node.name, &by);
                tracing::error!(reason, "refused");
                self.reporter.warn(node, "IdentityRefused", reason.as_str());
                self.metrics.set_state(state::DEGRADED, &reason);
                self.stop_watching(node);
                let retry_at = self.now() + REFUSED_RETRY_INTERVAL;
                self.session.claim = ClaimState::Refused { by, retry_at };
                self.set_acting(false);
                Ok(Some(NextReconcile::Wait(Some(REFUSED_RETRY_INTERVAL))))
            }
            ClaimStep::StayRefused { pause, .. } => Ok(Some(NextReconcile::Wait(Some(pause)))),
        }
    }

    /// Registers the Node again after a while without it. Someone deleted it, or the API server was restored from a backup
    /// that is older than the machine.
    pub(super) async fn register_again(&mut self) -> NextReconcile {
        let Some(heartbeat) = self.heartbeat.clone().filter(|_| self.own_node.is_listed()) else {
            return NextReconcile::Wait(None);
        };
        let now = self.now();
        let since = *self.session.node_missing_since.get_or_insert(now);
        let left = MISSING_NODE_GRACE.saturating_sub(now.saturating_sub(since));
        if !left.is_zero() {
            return NextReconcile::Wait(Some(left));
        }
        self.session.node_missing_since = None;
        tracing::warn!(node = self.own_node.name, "the Node is gone; registering it again");
        // A failure is reported, and this is tried again.
        let _ = heartbeat.register_once().await;
        NextReconcile::Wait(Some(MISSING_NODE_GRACE))
    }

    fn new_claim(&self) -> IdentityClaim {
        let machine = fs::read_to_string(self.disk.path().join("etc/machine-id"));
        let machine = machine.unwrap_or_default().trim().to_owned();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let machine = if machine.is_empty() { "unknown".to_owned() } else { machine };
        IdentityClaim { boot: self.boot_id.clone(), machine, since }
    }

    /// Acts under the claim, after a pause.
    fn hold(&mut self, claim: IdentityClaim, pause: Duration) {
        if matches!(self.session.claim, ClaimState::Refused { .. }) {
            tracing::warn!("the other machine does not object any more: working again");
            self.session.after(SessionEvent::DiskSuspected);
        }
        let (acts_at, challenged_at) = (self.now() + pause, self.session.claim.challenged_at());
        self.session.claim = ClaimState::Holding { claim, acts_at, challenged_at };
        self.set_acting(true);
    }

    fn set_acting(&self, is_acting: bool) {
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.set_acting(is_acting);
        }
    }

    /// Why this machine does not act, if another one has its identity.
    pub(super) fn refusal(&self) -> Option<String> {
        match &self.session.claim {
            ClaimState::Refused { by, .. } => Some(refused_reason(&self.own_node.name, by)),
            _ => None,
        }
    }
}
