//! The conditions of a MachineConfigNode during a change, in MCO's order and words.

use crate::api::names::condition::node::{
    APPLIED_FILES_AND_OS, DRAINED, NODE_DEGRADED, REBOOTED_NODE, RESUMED, UPDATE_EXECUTED,
    UPDATE_POST_ACTION_COMPLETE, UPDATE_PREPARED, UPDATED,
};
use crate::diff::ChangeFlags;
use crate::node::machine_config_node::{ConditionReport, ConditionStatus, NodeReport};

fn single(type_: &str, status: ConditionStatus, reason: &str, message: &str) -> NodeReport {
    NodeReport { parent: ConditionReport::new(type_, status, reason, message), child: None }
}

/// A phase and a part of it: the reason of the phase is the part, that of the part is both.
fn phase_with_child(
    truth: ConditionStatus,
    child: &str,
    child_truth: ConditionStatus,
    parent: &str,
    message: &str,
) -> NodeReport {
    let reason = format!("{UPDATE_EXECUTED}{child}");
    NodeReport {
        parent: ConditionReport::new(UPDATE_EXECUTED, truth, child, parent),
        child: Some(ConditionReport::new(child, child_truth, &reason, message)),
    }
}

/// The machine should have another config.
#[must_use]
pub fn needs_update(node: &str) -> NodeReport {
    single(UPDATED, ConditionStatus::False, UPDATED, &format!("Node {node} needs an update"))
}

/// The machine has its desired config.
#[must_use]
pub fn updated(node: &str) -> NodeReport {
    single(UPDATED, ConditionStatus::True, UPDATED, &format!("Node {node} Updated"))
}

/// The machine cannot take the change in place.
#[must_use]
pub fn refused(old: &str, new: &str, reason: &str) -> NodeReport {
    let message = format!(
        "Update Failed compatibility validation. MachineConfigs {old} and {new} are not compatible. Err: {reason}"
    );
    single(UPDATE_PREPARED, ConditionStatus::Unknown, UPDATE_PREPARED, &message)
}

/// The machine can take the change.
#[must_use]
pub fn prepared(actions: &str, drain: bool) -> NodeReport {
    let message =
        format!("Update Compatible. Post Cfg Actions: [{actions}] Drain Required: {drain}");
    single(UPDATE_PREPARED, ConditionStatus::True, UPDATE_PREPARED, &message)
}

/// The change needs no drain.
#[must_use]
pub fn drain_not_required() -> NodeReport {
    let message = "Node Drain Not required for this update.";
    phase_with_child(ConditionStatus::Unknown, DRAINED, ConditionStatus::False, message, message)
}

fn changed_parts(flags: ChangeFlags) -> (&'static str, &'static str) {
    let os = flags.os_update || flags.kargs || flags.kernel_type || flags.extensions;
    let word = |is: bool| if is { "" } else { "not" };
    (word(os), word(flags.passwd || flags.files))
}

/// The disk is being changed.
#[must_use]
pub fn applying(flags: ChangeFlags) -> NodeReport {
    let (os, keys) = changed_parts(flags);
    let message = format!(
        "Applying files and new OS config to node. OS will {os} need an update. SSH Keys will {keys} need an update"
    );
    let parent = "Updating the Files and OS on disk as a part of the in progress phase";
    phase_with_child(
        ConditionStatus::Unknown,
        APPLIED_FILES_AND_OS,
        ConditionStatus::Unknown,
        parent,
        &message,
    )
}

/// The disk could not be changed.
#[must_use]
pub fn apply_failed(error: &str) -> NodeReport {
    let parent = "Error updating the Files and OS on disk as a part of the in progress phase";
    let message = format!("Update failed applying files to node: {error}");
    phase_with_child(
        ConditionStatus::Unknown,
        APPLIED_FILES_AND_OS,
        ConditionStatus::Unknown,
        parent,
        &message,
    )
}

/// The disk was changed.
#[must_use]
pub fn applied(flags: ChangeFlags) -> NodeReport {
    let (os, keys) = changed_parts(flags);
    let message = format!(
        "Applied files and new OS config to node. OS did {os} need an update. SSH Keys did {keys} need an update"
    );
    let parent = "Updated the Files and OS on disk as a part of the in progress phase";
    phase_with_child(
        ConditionStatus::True,
        APPLIED_FILES_AND_OS,
        ConditionStatus::True,
        parent,
        &message,
    )
}

/// The change needs no actions.
#[must_use]
pub fn no_post_actions() -> NodeReport {
    let message = "Changes do not require a reboot";
    single(UPDATE_POST_ACTION_COMPLETE, ConditionStatus::True, "None", message)
}

/// A service was reloaded.
#[must_use]
pub fn reloaded(service: &str) -> NodeReport {
    let message = format!("Node has reloaded service {service}");
    single(
        UPDATE_POST_ACTION_COMPLETE,
        ConditionStatus::True,
        UPDATE_POST_ACTION_COMPLETE,
        &message,
    )
}

/// The machine is about to reboot.
#[must_use]
pub fn rebooting() -> NodeReport {
    single(REBOOTED_NODE, ConditionStatus::Unknown, REBOOTED_NODE, "Upgrade requires a reboot.")
}

/// The machine has rebooted.
#[must_use]
pub fn rebooted() -> NodeReport {
    single(REBOOTED_NODE, ConditionStatus::True, REBOOTED_NODE, "Node has rebooted")
}

/// The machine is back in service.
#[must_use]
pub fn resumed(config: &str) -> NodeReport {
    let message = format!(
        "In desired config {config}. Resumed normal operations. Applying proper annotations."
    );
    single(RESUMED, ConditionStatus::True, RESUMED, &message)
}

/// The change failed.
#[must_use]
pub fn degraded(node: &str, error: &str) -> NodeReport {
    let message = format!("Node {node} upgrade failure. {error}");
    single(NODE_DEGRADED, ConditionStatus::True, NODE_DEGRADED, &message)
}

/// The change succeeded.
#[must_use]
pub fn succeeded(node: &str) -> NodeReport {
    let message = format!("Node {node} upgrade succeeded");
    single(NODE_DEGRADED, ConditionStatus::False, NODE_DEGRADED, &message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_names_its_phase() {
        let report = applied(ChangeFlags { files: true, ..ChangeFlags::default() });
        let child = report.child.unwrap();
        assert_eq!(report.parent.reason, "AppliedFilesAndOS");
        assert_eq!(child.reason, "UpdateExecutedAppliedFilesAndOS");
        assert_eq!(
            child.message,
            "Applied files and new OS config to node. OS did not need an update. SSH Keys did  need an update"
        );
        assert_eq!(degraded("n", "why").parent.message, "Node n upgrade failure. why");
    }
}
