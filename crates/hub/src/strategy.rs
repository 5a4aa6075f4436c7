//! Kind-specific rules of the built-in kinds, beyond the common object rules.
//!
//! Pure; the counterpart of kube-apiserver's registry strategies. Called by the router's write
//! handlers.

mod machine_events;
mod machine_metadata;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use std::collections::BTreeSet;

use crate::auth::UserInfo;
use crate::auth::machine::{self, ROLE_LABEL_PREFIX};
use crate::definition;
use crate::field_management::to_shown_form;
use crate::kind_registry::ResourceKind;
use crate::object::set_metadata_field;
use crate::object_limits::MAX_OBJECT_BYTES;
use crate::status::ApiError;

pub(crate) use machine_events::check_machine_event;
pub(crate) use machine_metadata::{check_machine_metadata, check_protected_annotations};

/// The largest object of a kind that a user may write. What a machine or a bootstrap token may create has a limit of its
/// own, because each of them may hold many. Administrators and controllers may add to what a machine has filled: a Node
/// can be cordoned, and a request approved, whatever is in them.
pub(crate) fn max_object_bytes(kind: &ResourceKind, user: &UserInfo) -> usize {
    let limit = max_bytes_of_machines(kind);
    match user.is_privileged() {
        true if !kind.built_in => MAX_OBJECT_BYTES,
        true => MAX_OBJECT_BYTES.min(2 * limit),
        false => limit,
    }
}

fn max_bytes_of_machines(kind: &ResourceKind) -> usize {
    match kind.kind.as_str() {
        // A status with a condition for each phase of an update.
        _ if !kind.built_in => 256 << 10,
        "CertificateSigningRequest" | "Event" | "Lease" => 16 << 10,
        // Twice that for administrators, which is what etcd takes.
        "CustomResourceDefinition" => 768 << 10,
        // 256 KiB of annotations, and a status with images and conditions.
        "Node" => 1 << 20,
        // All of them are in memory once more, as rules.
        _ if kind.group == "rbac.authorization.k8s.io" => 256 << 10,
        _ => MAX_OBJECT_BYTES,
    }
}

/// Whether a PUT creates a missing object.
pub(crate) fn creates_on_update(kind: &ResourceKind) -> bool {
    kind.built_in && matches!(kind.kind.as_str(), "Lease" | "Event")
}

/// Whether a kind has a subresource of this name.
pub(crate) fn has_subresource(kind: &ResourceKind, name: &str) -> bool {
    match name {
        "status" => kind.status_subresource,
        "scale" => kind.scale.is_some(),
        "approval" => kind.built_in && kind.kind == "CertificateSigningRequest",
        "finalize" => kind.built_in && kind.kind == "Namespace",
        _ => false,
    }
}

/// Completes a decoded object of a built-in kind before anything looks at it: what Kubernetes does by conversion and
/// defaults. The writer of the object owns what this sets.
pub(crate) fn on_decode(kind: &ResourceKind, object: &mut Value) {
    if !kind.built_in {
        return;
    }
    match kind.kind.as_str() {
        "Namespace" => {
            label_namespace(object);
            default_phase(object);
        }
        "Secret" => on_write_secret(object),
        "Node" => default_allocatable(object),
        "RoleBinding" | "ClusterRoleBinding" => default_api_groups(object),
        "CustomResourceDefinition" => definition::complete::complete(object),
        _ => {}
    }
    to_shown_form(kind, object);
}

/// Bindings refer to roles, users and groups of one API group.
fn default_api_groups(binding: &mut Value) {
    let group = "rbac.authorization.k8s.io";
    let is_empty = |value: &Value| value["apiGroup"].as_str().unwrap_or_default().is_empty();
    let role = &mut binding["roleRef"];
    if matches!(role, Value::Null | Value::Object(_)) && is_empty(role) {
        role["apiGroup"] = group.into();
    }
    let subjects = binding.get_mut("subjects").and_then(Value::as_array_mut);
    for subject in subjects.into_iter().flatten() {
        let is_named = matches!(subject["kind"].as_str(), Some("User" | "Group"));
        if is_named && is_empty(subject) {
            subject["apiGroup"] = group.into();
        }
    }
}

/// A namespace that says nothing else is active.
fn default_phase(object: &mut Value) {
    if object["status"]["phase"].as_str().unwrap_or_default().is_empty()
        && matches!(object["status"], Value::Null | Value::Object(_))
    {
        object["status"]["phase"] = "Active".into();
    }
}

/// All of a Node's capacity can be allocated, unless it says otherwise.
fn default_allocatable(object: &mut Value) {
    let status = &object["status"];
    let is_set = |field: &str| status[field].as_object().is_some_and(|map| !map.is_empty());
    if is_set("capacity") && !is_set("allocatable") {
        object["status"]["allocatable"] = object["status"]["capacity"].clone();
    }
}

/// Labels a namespace with its name. One whose name is generated has none yet.
fn label_namespace(object: &mut Value) {
    let name = crate::object::metadata_str(object, "name").to_owned();
    if name.is_empty() {
        return;
    }
    let mut labels = object["metadata"]["labels"].take();
    if !labels.is_object() {
        labels = json!({});
    }
    labels["kubernetes.io/metadata.name"] = name.into();
    set_metadata_field(object, "labels", Some(labels));
}

/// Completes a new object of a built-in kind.
pub(crate) fn on_create(kind: &ResourceKind, object: &mut Value, user: &UserInfo) {
    if !kind.built_in {
        return;
    }
    match kind.kind.as_str() {
        "Namespace" => {
            label_namespace(object);
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
        }
        "Secret" => on_write_secret(object),
        "CustomResourceDefinition" => definition::lifecycle::on_create(object),
        "CertificateSigningRequest" => {
            object["spec"]["username"] = user.user.clone().into();
            object["spec"]["groups"] = json!(user.groups);
            if let Some(spec) = object["spec"].as_object_mut() {
                spec.remove("uid");
                spec.remove("extra");
            }
        }
        _ => {}
    }
}

/// Moves `stringData` into `data`. A secret without a type is opaque.
fn on_write_secret(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    if let Some(Value::Object(texts)) = fields.remove("stringData") {
        let data = fields.entry("data").or_insert_with(|| json!({}));
        for (key, value) in texts {
            data[key] = STANDARD.encode(value.as_str().unwrap_or_default()).into();
        }
    }
    fields.entry("type").or_insert_with(|| "Opaque".into());
}

/// Completes an updated object of a built-in kind. `subresource` is what the request wrote.
pub(crate) fn on_update(
    kind: &ResourceKind,
    old: &Value,
    new: &mut Value,
    subresource: Option<&str>,
) {
    if !kind.built_in {
        return;
    }
    match kind.kind.as_str() {
        "Secret" => on_write_secret(new),
        "CustomResourceDefinition" if subresource.is_none() => {
            definition::lifecycle::on_update(old, new);
        }
        // Only the `finalize` subresource changes spec.finalizers.
        "Namespace" if subresource != Some("finalize") => new["spec"] = old["spec"].clone(),
        "CertificateSigningRequest" => {
            new["spec"] = old["spec"].clone();
            if subresource == Some("approval") {
                let conditions = new["status"]["conditions"].clone();
                new["status"] = old.get("status").cloned().unwrap_or_else(|| json!({}));
                new["status"]["conditions"] = conditions;
            }
        }
        _ => {}
    }
}

/// Rejects a machine's change of its own role labels, unless it takes the roles that it was granted.
pub(crate) fn check_node_role_labels(
    kind: &ResourceKind,
    user: &UserInfo,
    old: &Value,
    new: &Value,
    granted: Option<&BTreeSet<String>>,
) -> Result<(), ApiError> {
    let Some(name) = user.node_name() else { return Ok(()) };
    if !is_node(kind) || machine::may_relabel(old, new, granted) {
        return Ok(());
    }
    let reason = format!(
        "node \"{name}\" is not allowed to modify its labels {ROLE_LABEL_PREFIX}*: an administrator can, \
         with machinist label node {name}"
    );
    Err(ApiError::forbidden_because(kind, name, &reason))
}

/// Whether a kind is that of Nodes.
pub(crate) fn is_node(kind: &ResourceKind) -> bool {
    kind.built_in && kind.kind == "Node"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> ResourceKind {
        crate::built_in::kinds().into_iter().find(|kind| kind.kind == name).unwrap()
    }

    #[test]
    fn csr_user_cannot_be_forged() {
        let mut object =
            json!({"spec": {"username": "root", "groups": ["system:masters"], "uid": "x"}});
        on_create(&kind("CertificateSigningRequest"), &mut object, &UserInfo::node("a"));
        assert_eq!(
            object["spec"],
            json!({"username": "system:node:a", "groups": ["system:nodes", "system:authenticated"]})
        );
    }

    #[test]
    fn string_data_becomes_data() {
        let mut object = json!({"data": {"a": "YQ=="}, "stringData": {"b": "b"}});
        on_create(&kind("Secret"), &mut object, &UserInfo::admin());
        assert_eq!(object, json!({"data": {"a": "YQ==", "b": "Yg=="}, "type": "Opaque"}));
    }

    #[test]
    fn a_machine_cannot_change_its_role_labels() {
        let node = kind("Node");
        let old = json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": "", "a": "1"}}});
        let moved =
            json!({"metadata": {"labels": {"node-role.kubernetes.io/master": "", "a": "1"}}});
        let other =
            json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": "", "a": "2"}}});
        let machine = UserInfo::node("a");
        let check = |user: &UserInfo, new: &Value, granted: Option<&BTreeSet<String>>| {
            check_node_role_labels(&node, user, &old, new, granted)
        };
        assert_eq!(check(&machine, &moved, None).unwrap_err().code, 403);
        assert!(check(&machine, &other, None).is_ok());
        assert!(check(&machine, &moved, Some(&["master".to_owned()].into())).is_ok());
        assert!(check(&UserInfo::admin(), &moved, None).is_ok());
    }

    #[test]
    fn approval_changes_conditions_only() {
        let csr = kind("CertificateSigningRequest");
        let old = json!({"spec": {"a": 1}, "status": {"certificate": "x"}});
        let mut new = json!({"spec": {"a": 2}, "status": {"certificate": "y", "conditions": [1]}});
        on_update(&csr, &old, &mut new, Some("approval"));
        assert_eq!(
            new,
            json!({"spec": {"a": 1}, "status": {"certificate": "x", "conditions": [1]}})
        );
    }
}
