//! What the MachineConfigNode of a machine says about a change, in the order and in the words of the
//! real daemon.

use crate::api::names::condition::node::{
    APPLIED_FILES_AND_OS, DRAINED, NODE_DEGRADED, REBOOTED_NODE, RESUMED, UPDATE_EXECUTED,
    UPDATE_POST_ACTION_COMPLETE, UPDATE_PREPARED, UPDATED,
};
use crate::diff::Flags;
use crate::update::machine_config_node::{Report, Statement, Truth};

fn alone(type_: &str, status: Truth, reason: &str, message: &str) -> Report {
    Report { parent: Statement::new(type_, status, reason, message), child: None }
}

/// A phase and a part of it: the reason of the phase is the part, that of the part is both.
fn executed(truth: Truth, child: &str, child_truth: Truth, parent: &str, message: &str) -> Report {
    let reason = format!("{UPDATE_EXECUTED}{child}");
    Report {
        parent: Statement::new(UPDATE_EXECUTED, truth, child, parent),
        child: Some(Statement::new(child, child_truth, &reason, message)),
    }
}

/// The machine is to have another config.
#[must_use]
pub fn needs_update(node: &str) -> Report {
    alone(UPDATED, Truth::False, UPDATED, &format!("Node {node} needs an update"))
}

/// The machine has its config.
#[must_use]
pub fn updated(node: &str) -> Report {
    alone(UPDATED, Truth::True, UPDATED, &format!("Node {node} Updated"))
}

/// The change cannot be made in place.
#[must_use]
pub fn refused(old: &str, new: &str, reason: &str) -> Report {
    let message = format!(
        "Update Failed compatibility validation. MachineConfigs {old} and {new} are not compatible. Err: {reason}"
    );
    alone(UPDATE_PREPARED, Truth::Unknown, UPDATE_PREPARED, &message)
}

/// The change can be made.
#[must_use]
pub fn prepared(actions: &str, drain: bool) -> Report {
    let message =
        format!("Update Compatible. Post Cfg Actions: [{actions}] Drain Required: {drain}");
    alone(UPDATE_PREPARED, Truth::True, UPDATE_PREPARED, &message)
}

/// The machine need not be emptied.
#[must_use]
pub fn drain_not_required() -> Report {
    let message = "Node Drain Not required for this update.";
    executed(Truth::Unknown, DRAINED, Truth::False, message, message)
}

fn parts(flags: Flags) -> (&'static str, &'static str) {
    let os = flags.os_update || flags.kargs || flags.kernel_type || flags.extensions;
    let word = |is: bool| if is { "" } else { "not" };
    (word(os), word(flags.passwd || flags.files))
}

/// The disk is being changed.
#[must_use]
pub fn applying(flags: Flags) -> Report {
    let (os, keys) = parts(flags);
    let message = format!(
        "Applying files and new OS config to node. OS will {os} need an update. SSH Keys will {keys} need an update"
    );
    let parent = "Updating the Files and OS on disk as a part of the in progress phase";
    executed(Truth::Unknown, APPLIED_FILES_AND_OS, Truth::Unknown, parent, &message)
}

/// The disk could not be changed.
#[must_use]
pub fn not_applied(error: &str) -> Report {
    let parent = "Error updating the Files and OS on disk as a part of the in progress phase";
    let message = format!("Update failed applying files to node: {error}");
    executed(Truth::Unknown, APPLIED_FILES_AND_OS, Truth::Unknown, parent, &message)
}

/// The disk was changed.
#[must_use]
pub fn applied(flags: Flags) -> Report {
    let (os, keys) = parts(flags);
    let message = format!(
        "Applied files and new OS config to node. OS did {os} need an update. SSH Keys did {keys} need an update"
    );
    let parent = "Updated the Files and OS on disk as a part of the in progress phase";
    executed(Truth::True, APPLIED_FILES_AND_OS, Truth::True, parent, &message)
}

/// Nothing has to be done after the change.
#[must_use]
pub fn nothing_after() -> Report {
    let message = "Changes do not require a reboot";
    alone(UPDATE_POST_ACTION_COMPLETE, Truth::True, "None", message)
}

/// A service has been reloaded.
#[must_use]
pub fn reloaded(service: &str) -> Report {
    let message = format!("Node has reloaded service {service}");
    alone(UPDATE_POST_ACTION_COMPLETE, Truth::True, UPDATE_POST_ACTION_COMPLETE, &message)
}

/// The machine is about to restart.
#[must_use]
pub fn reboots() -> Report {
    alone(REBOOTED_NODE, Truth::Unknown, REBOOTED_NODE, "Upgrade requires a reboot.")
}

/// The machine has restarted.
#[must_use]
pub fn rebooted() -> Report {
    alone(REBOOTED_NODE, Truth::True, REBOOTED_NODE, "Node has rebooted")
}

/// The machine is back at its work.
#[must_use]
pub fn resumed(config: &str) -> Report {
    let message = format!(
        "In desired config {config}. Resumed normal operations. Applying proper annotations."
    );
    alone(RESUMED, Truth::True, RESUMED, &message)
}

/// The change failed.
#[must_use]
pub fn degraded(node: &str, error: &str) -> Report {
    let message = format!("Node {node} upgrade failure. {error}");
    alone(NODE_DEGRADED, Truth::True, NODE_DEGRADED, &message)
}

/// The change succeeded.
#[must_use]
pub fn succeeded(node: &str) -> Report {
    let message = format!("Node {node} upgrade succeeded");
    alone(NODE_DEGRADED, Truth::False, NODE_DEGRADED, &message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_names_its_phase() {
        let report = applied(Flags { files: true, ..Flags::default() });
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
