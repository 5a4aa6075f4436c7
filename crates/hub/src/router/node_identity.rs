//! Keeps the records of machines in step with their Nodes: who gives a machine its roles, and when its name is free.
//!
//! [`crate::auth::machine`] decides; called by the write handlers, whose transactions include the records.

use serde_json::Value;

use super::resource_request::ResourceRequest;
use crate::auth::machine;
use crate::machines::{NODE_KEY_PREFIX, StoredMachine};
use crate::object::metadata_str;
use crate::status::ApiError;
use crate::store::StoreOp;
use crate::strategy;

/// The longest name that an object can have.
const MAX_ASSIGNED_NAME_BYTES: usize = 253;

/// Gives the Node that a machine registers the machine's roles. Returns a warning if the request asked for others.
pub(super) fn assign_roles(call: &ResourceRequest<'_>, node: &mut Value) -> Option<String> {
    let name = call.user.node_name().filter(|_| strategy::is_node(call.kind))?;
    let stored = StoredMachine::read(&call.hub.inner.store, name);
    let removed = machine::set_granted_roles(node, &stored.record.roles);
    (!removed.is_empty()).then(|| {
        format!(
            "a machine does not choose its own pool: {} ignored; an administrator can add it with \
             machinist label node {name}",
            removed.join(", ")
        )
    })
}

/// Checks that a machine does not change its own roles.
pub(super) fn check_roles(
    call: &ResourceRequest<'_>,
    old: &Value,
    new: &Value,
) -> Result<(), ApiError> {
    if !strategy::is_node(call.kind) {
        return Ok(());
    }
    check_status_write(call, old, new)?;
    let stored = call.user.node_name().map(|name| StoredMachine::read(&call.hub.inner.store, name));
    let granted = stored.as_ref().filter(|it| it.exists()).map(|it| &it.record.roles);
    strategy::check_node_role_labels(call.kind, &call.user, old, new, granted)
}

/// Rejects a write of a Node's status that says what the machine may read: the right to write a status is given to what
/// observes machines, and is not enough for that.
fn check_status_write(
    call: &ResourceRequest<'_>,
    old: &Value,
    new: &Value,
) -> Result<(), ApiError> {
    let is_own = call.user.node_name().is_some();
    if call.path.subresource.is_none() || call.user.is_privileged() || is_own {
        return Ok(());
    }
    let mut assignments = call.hub.inner.authorizer.assignment_annotations();
    let changed = assignments.find(|key| annotation_value(old, key) != annotation_value(new, key));
    let what = match changed {
        Some(annotation) => format!("the annotation {annotation}"),
        None if machine::roles_of(old) != machine::roles_of(new) => "role labels".to_owned(),
        None => return Ok(()),
    };
    let reason = format!(
        "user \"{}\" may not change {what} through the status: write the Node itself",
        call.user.user
    );
    Err(ApiError::forbidden_because(call.kind, metadata_str(new, "name"), &reason))
}

/// The write that goes with a Node that someone other than its machine writes: these roles are granted from now on.
pub(super) fn on_write(call: &ResourceRequest<'_>, node: &Value) -> Option<StoreOp> {
    if !strategy::is_node(call.kind) || call.user.node_name().is_some() {
        return None;
    }
    let name = metadata_str(node, "name");
    let stored = StoredMachine::read(&call.hub.inner.store, name);
    let mut record = stored.record.clone();
    record.roles = machine::roles_of(node);
    for annotation in call.hub.inner.authorizer.assignment_annotations() {
        // Only what this write changes: the rest of the Node may be the machine's own.
        let old = old_annotation(call, name, annotation);
        let new = annotation_value(node, annotation);
        if let Some(new) = new.filter(|new| old.as_deref() != Some(*new)) {
            record.assign(new);
        }
    }
    stored.replace_with(name, &record)
}

fn annotation_value<'a>(node: &'a Value, annotation: &str) -> Option<&'a str> {
    let value = node["metadata"]["annotations"][annotation].as_str();
    value.filter(|value| !value.is_empty() && value.len() <= MAX_ASSIGNED_NAME_BYTES)
}

/// The UID of the Node of the machine that makes a request.
pub(super) fn own_node_uid(call: &ResourceRequest<'_>) -> Option<String> {
    let entry =
        call.hub.inner.store.get(&format!("{NODE_KEY_PREFIX}{}", call.user.node_name()?))?;
    let node: Value = serde_json::from_slice(&entry.value).ok()?;
    Some(metadata_str(&node, "uid").to_owned()).filter(|uid| !uid.is_empty())
}

/// The annotation of the stored Node. The write fails if that is not the one it was computed from.
fn old_annotation(call: &ResourceRequest<'_>, name: &str, annotation: &str) -> Option<String> {
    let entry = call.hub.inner.store.get(&format!("{NODE_KEY_PREFIX}{name}"))?;
    let node: Value = serde_json::from_slice(&entry.value).ok()?;
    annotation_value(&node, annotation).map(ToOwned::to_owned)
}

/// The write that goes with the removal of a Node, or with its mark for deletion. A machine that deletes its own Node
/// leaves: its certificates do not count any more, and its name is free.
pub(super) fn on_delete(call: &ResourceRequest<'_>, node: &Value) -> Option<StoreOp> {
    if !strategy::is_node(call.kind) {
        return None;
    }
    let name = metadata_str(node, "name");
    let stored = StoredMachine::read(&call.hub.inner.store, name);
    let mut record = stored.record.clone();
    if !stored.exists() {
        record.roles = machine::roles_of(node); // a Node of an earlier version
    }
    if call.user.node_name() == Some(name) {
        record = record.after_leaving(jiff::Timestamp::now().as_second());
    }
    stored.replace_with(name, &record)
}
