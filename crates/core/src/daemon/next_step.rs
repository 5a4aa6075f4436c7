//! The next step of the daemon, from what it observes and what it remembers.

use k8s_openapi::api::core::v1::Node;

use super::{PendingChange, Session, actions};
use crate::api::names::annotation::{self, machinist};
use crate::api::names::{DRAIN_PREFIX, UNCORDON_PREFIX, state};
use crate::node::{MachineMode, NodeView};

/// What the daemon observes of its Node and its disk.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// Its Node.
    pub node: &'a Node,
    /// The name of the config on disk; `None` if the disk does not say.
    pub config_on_disk: Option<&'a str>,
    /// The layered image on disk, empty if there is none; `None` if the disk does not say.
    pub image_on_disk: Option<&'a str>,
    /// The change that is not complete yet.
    pub pending: Option<&'a PendingChange>,
    /// The current boot of the machine.
    pub boot_id: &'a str,
    /// Whether the force file asks to rewrite everything.
    pub force: bool,
    /// Whether the machine is changed if its Node does not say.
    pub mode: MachineMode,
}

/// Whom the daemon waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentWait {
    /// The controller has to assign a config.
    DesiredConfig,
    /// An administrator holds the machine, and has to release it.
    Held,
    /// The controller has to drain the machine.
    Drain {
        /// The request.
        request: String,
    },
    /// The controller has to uncordon the machine.
    Uncordon {
        /// The request.
        request: String,
    },
    /// A person has to approve the reboot.
    RebootApproval {
        /// The config that needs it.
        config: String,
    },
}

/// What the daemon does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentStep {
    /// Nothing: the machine has its desired config.
    Idle,
    /// Nothing: the machine is about to reboot.
    AwaitReboot,
    /// Nothing, until someone else has acted.
    Wait(AgentWait),
    /// Report what the config would change, and change nothing.
    Observe,
    /// Write the current config of a new machine to its Node.
    ReportInitialConfig,
    /// Correct the Node, which claims another current config than the one on disk.
    CorrectCurrentConfig {
        /// The config on disk.
        on_disk: String,
    },
    /// Report that the machine has rebooted.
    ReportReboot,
    /// Drop the record of a change that did not happen.
    DropPendingChange,
    /// Update to the desired config.
    Update,
    /// Record the reboot that an administrator has asked for.
    PrepareReboot {
        /// The request.
        request: String,
    },
    /// Report that a reboot is needed and ask for approval.
    RequestReboot {
        /// The config that needs it.
        config: String,
    },
    /// Request a drain before the remaining actions.
    Drain {
        /// The config that needs it.
        config: String,
    },
    /// Run the remaining actions.
    RunActions,
    /// Verify the disk and the health of the machine, request an uncordon, and report `Done`.
    Finish,
}

/// Decides what the daemon does next.
#[must_use]
pub fn next_step(observed: &Observed<'_>, session: &Session) -> AgentStep {
    if session.is_reboot_ordered {
        return AgentStep::AwaitReboot;
    }
    let node = NodeView(observed.node);
    let text = |key: &str| node.annotation(key).unwrap_or_default();
    if node.current_config().is_empty() {
        return AgentStep::ReportInitialConfig;
    }
    // A change that has begun is completed: a machine between two configs helps nobody.
    let is_observed = MachineMode::for_daemon(node, observed.mode) == MachineMode::Observe;
    if is_observed && observed.pending.is_none() {
        return AgentStep::Observe;
    }
    let desired = node.desired_config();
    if desired.is_empty() {
        return AgentStep::Wait(AgentWait::DesiredConfig);
    }
    let disk = observed.config_on_disk.unwrap_or(node.current_config());
    let image = observed.image_on_disk.unwrap_or(text(annotation::CURRENT_IMAGE));
    let is_complete = observed.pending.is_none()
        && disk == node.current_config()
        && image == text(annotation::CURRENT_IMAGE)
        && node.is_done();
    let is_settled = is_complete && session.is_disk_verified;
    let remaining = observed
        .pending
        .map_or(&[][..], |pending| session.remaining_actions(pending, observed.boot_id));
    let needs_reboot = actions::needs_reboot(remaining);
    let has_rebooted = text(annotation::POST_CONFIG_ACTION) == state::REBOOTING && !needs_reboot;
    if node.held().is_some() {
        return match () {
            () if is_complete => AgentStep::Idle,
            // This changes only what the Node says.
            () if has_rebooted => AgentStep::ReportReboot,
            () => AgentStep::Wait(AgentWait::Held),
        };
    }
    if observed.pending.is_some_and(|pending| pending.config != disk) {
        return AgentStep::DropPendingChange;
    }
    let is_claim_wrong = disk != node.current_config() && disk != desired;
    if is_claim_wrong && observed.pending.is_none() {
        // Without a pending change, only someone else can have written the claim: a hub that was restored.
        return AgentStep::CorrectCurrentConfig { on_disk: disk.to_owned() };
    }
    let desired_image = text(annotation::DESIRED_IMAGE);
    let needs_update = desired != disk || desired_image != image;
    if has_rebooted {
        return AgentStep::ReportReboot;
    }
    if let Some(wait) = pending_drain_request(node) {
        return AgentStep::Wait(wait);
    }
    if !remaining.is_empty() {
        let is_rollback = observed.pending.is_some_and(|pending| pending.is_rollback);
        let is_requested = observed.pending.is_some_and(|it| it.requested_reboot.is_some());
        let may_reboot = is_approved(node, disk) || !is_requested && !defers_reboot(node);
        let needs_approval = needs_reboot && !is_rollback && !may_reboot;
        return match (needs_reboot, needs_approval) {
            (_, true) if needs_update => AgentStep::Update,
            (_, true) if text(machinist::REBOOT_PENDING) == disk => {
                AgentStep::Wait(AgentWait::RebootApproval { config: disk.to_owned() })
            }
            (_, true) => AgentStep::RequestReboot { config: disk.to_owned() },
            // A machine that rolls back was not uncordoned since its drain for the failed config.
            (true, _) if is_rollback && is_drained(node) => AgentStep::RunActions,
            (true, _) if supports_drain(node) && !is_drained_for(node, disk) => {
                AgentStep::Drain { config: disk.to_owned() }
            }
            _ => AgentStep::RunActions,
        };
    }
    let request = text(machinist::REBOOT_REQUESTED);
    match () {
        () if needs_update => AgentStep::Update,
        () if is_settled && !request.is_empty() => {
            AgentStep::PrepareReboot { request: request.to_owned() }
        }
        () if is_settled => AgentStep::Idle,
        () if observed.force => AgentStep::Update,
        () => AgentStep::Finish,
    }
}

/// The request to the drain controller that it has not fulfilled yet.
fn pending_drain_request(node: NodeView<'_>) -> Option<AgentWait> {
    let request = node.annotation(annotation::DESIRED_DRAIN).unwrap_or_default();
    if request.is_empty() || Some(request) == node.annotation(annotation::LAST_APPLIED_DRAIN) {
        return None;
    }
    let request = request.to_owned();
    Some(if request.starts_with(UNCORDON_PREFIX) {
        AgentWait::Uncordon { request }
    } else {
        AgentWait::Drain { request }
    })
}

/// Whether the machine has permission to reboot into a config.
fn is_approved(node: NodeView<'_>, config: &str) -> bool {
    node.annotation(machinist::REBOOT_APPROVED) == Some(config)
}

/// Whether every reboot of the machine needs a permission.
fn defers_reboot(node: NodeView<'_>) -> bool {
    node.annotation(machinist::REBOOT) == Some("deferred")
}

/// Whether the machine was drained for a config.
#[must_use]
pub(super) fn is_drained_for(node: NodeView<'_>, config: &str) -> bool {
    let applied = node.annotation(annotation::LAST_APPLIED_DRAIN).unwrap_or_default();
    applied.strip_prefix(DRAIN_PREFIX) == Some(config)
}

/// Whether the machine was drained and not uncordoned since.
fn is_drained(node: NodeView<'_>) -> bool {
    let applied = node.annotation(annotation::LAST_APPLIED_DRAIN).unwrap_or_default();
    applied.starts_with(DRAIN_PREFIX)
}

/// Whether machines of this kind are drained at all. The pods of a single-node cluster have nowhere
/// to go.
#[must_use]
pub(super) fn supports_drain(node: NodeView<'_>) -> bool {
    node.annotation(annotation::CONTROL_PLANE_TOPOLOGY) != Some("SingleReplica")
}

#[cfg(test)]
mod tests;
