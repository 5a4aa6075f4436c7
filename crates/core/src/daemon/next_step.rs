//! The next step of a daemon, from what it sees.

use k8s_openapi::api::core::v1::Node;

use super::PendingChange;
use crate::api::names::annotation::{self, machinist};
use crate::api::names::state;
use crate::node::NodeView;

/// What a daemon sees.
#[derive(Debug, Clone, Copy)]
pub struct AgentSnapshot<'a> {
    /// Its Node.
    pub node: &'a Node,
    /// The name of the config on the disk; none where the disk does not say.
    pub config_on_disk: Option<&'a str>,
    /// The image of the pool's own that the disk says the machine has; empty where it has none, none
    /// where the disk does not say.
    pub image_on_disk: Option<&'a str>,
    /// The change that is not complete yet.
    pub pending: Option<&'a PendingChange>,
    /// The present boot of the machine.
    pub boot_id: &'a str,
    /// Whether the administrator wants everything written anew.
    pub force: bool,
    /// Whether the disk has been compared with its config since the daemon started.
    pub is_disk_verified: bool,
}

/// Whom a daemon waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentWait {
    /// Somebody has to say which config the machine is to have.
    DesiredConfig,
    /// The machine is to be emptied.
    Drain {
        /// The request.
        request: String,
    },
    /// The machine is to be given work again.
    Uncordon {
        /// The request.
        request: String,
    },
    /// Somebody has to allow the restart.
    RebootApproval {
        /// The config that it is for.
        config: String,
    },
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentStep {
    /// Nothing: the machine has what it is to have.
    Idle,
    /// Nothing, until somebody else has acted.
    Wait(AgentWait),
    /// Say on the Node what the machine has.
    ReportInitialConfig,
    /// Say that the machine has restarted.
    ReportReboot,
    /// Forget about a change that did not happen.
    DropPendingChange,
    /// Change to the desired config.
    Update,
    /// Say that a restart is needed, and wait for it to be allowed.
    RequestReboot {
        /// The config that it is for.
        config: String,
    },
    /// Have the machine emptied, for the sake of what is left to be done.
    Drain {
        /// The config that it is for.
        config: String,
    },
    /// Do what is left to be done.
    RunActions,
    /// Compare the disk with its config, get work again, and say that all is done.
    Finish,
}

/// The next step.
#[must_use]
pub fn next_step(observed: &AgentSnapshot<'_>) -> AgentStep {
    let node = NodeView(observed.node);
    let text = |key: &str| node.annotation(key).unwrap_or_default();
    if node.current_config().is_empty() {
        return AgentStep::ReportInitialConfig;
    }
    let desired = node.desired_config();
    if desired.is_empty() {
        return AgentStep::Wait(AgentWait::DesiredConfig);
    }
    let disk = observed.config_on_disk.unwrap_or(node.current_config());
    if observed.pending.is_some_and(|pending| pending.config != disk) {
        return AgentStep::DropPendingChange;
    }
    let wanted_image = text(annotation::DESIRED_IMAGE);
    let image = observed.image_on_disk.unwrap_or(text(annotation::CURRENT_IMAGE));
    let is_wanted = desired != disk || wanted_image != image;
    let needs_restart = observed.pending.is_some_and(|p| p.needs_reboot(observed.boot_id));
    if text(annotation::POST_CONFIG_ACTION) == state::REBOOTING && !needs_restart {
        return AgentStep::ReportReboot;
    }
    if let Some(wait) = pending_drain_request(node) {
        return AgentStep::Wait(wait);
    }
    let left =
        observed.pending.map_or(&[][..], |pending| pending.remaining_actions(observed.boot_id));
    if !left.is_empty() {
        let goes_back = observed.pending.is_some_and(|pending| pending.is_way_back);
        let waits = needs_restart && !goes_back && !may_reboot(node, disk);
        return match (needs_restart, waits) {
            (_, true) if is_wanted => AgentStep::Update,
            (_, true) if text(machinist::REBOOT_PENDING) == disk => {
                AgentStep::Wait(AgentWait::RebootApproval { config: disk.to_owned() })
            }
            (_, true) => AgentStep::RequestReboot { config: disk.to_owned() },
            // Whoever goes back has not been given work since it was emptied.
            (true, _) if goes_back && is_drained(node) => AgentStep::RunActions,
            (true, _) if supports_drain(node) && !is_drained_for(node, disk) => {
                AgentStep::Drain { config: disk.to_owned() }
            }
            _ => AgentStep::RunActions,
        };
    }
    let is_settled = observed.is_disk_verified
        && observed.pending.is_none()
        && disk == node.current_config()
        && image == text(annotation::CURRENT_IMAGE)
        && node.is_done();
    match () {
        () if is_wanted => AgentStep::Update,
        () if is_settled => AgentStep::Idle,
        () if observed.force => AgentStep::Update,
        () => AgentStep::Finish,
    }
}

/// What was asked of the drain controller and has not been done.
fn pending_drain_request(node: NodeView<'_>) -> Option<AgentWait> {
    let request = node.annotation(annotation::DESIRED_DRAIN).unwrap_or_default();
    if request.is_empty() || Some(request) == node.annotation(annotation::LAST_APPLIED_DRAIN) {
        return None;
    }
    let request = request.to_owned();
    Some(if request.starts_with("uncordon-") {
        AgentWait::Uncordon { request }
    } else {
        AgentWait::Drain { request }
    })
}

/// Whether the machine may restart for the sake of a config.
fn may_reboot(node: NodeView<'_>, config: &str) -> bool {
    let deferred = node.annotation(machinist::REBOOT) == Some("deferred");
    !deferred || node.annotation(machinist::REBOOT_APPROVED) == Some(config)
}

/// Whether the machine has been emptied for the sake of a config.
#[must_use]
pub(super) fn is_drained_for(node: NodeView<'_>, config: &str) -> bool {
    let applied = node.annotation(annotation::LAST_APPLIED_DRAIN).unwrap_or_default();
    applied.strip_prefix("drain-") == Some(config)
}

/// Whether the machine has been emptied, and not been given work again.
fn is_drained(node: NodeView<'_>) -> bool {
    let applied = node.annotation(annotation::LAST_APPLIED_DRAIN).unwrap_or_default();
    applied.starts_with("drain-")
}

/// Whether machines of this kind are emptied at all: the only one of a cluster has nowhere to send
/// its pods to.
#[must_use]
pub(super) fn supports_drain(node: NodeView<'_>) -> bool {
    node.annotation(annotation::CONTROL_PLANE_TOPOLOGY) != Some("SingleReplica")
}

#[cfg(test)]
mod tests;
