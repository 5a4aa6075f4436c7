//! Checks of writes that give rights to others: roles, bindings, and approvals of certificates.
//!
//! As in Kubernetes, nobody grants what they do not have: a role needs its rules, or the right `escalate`; a binding needs
//! the rules of its role, or the right `bind`; an approval needs the right `approve` for the signer. Called by the create,
//! update and apply handlers.

use std::sync::Arc;

use serde_json::{Value, json};

use super::resource_request::ResourceRequest;
use crate::auth::authorizer::{AuthorizationDecision, RequestAttributes};
use crate::auth::{ADMIN_GROUP, BOOTSTRAP_GROUP, NODE_GROUP, NODE_USER_PREFIX};
use crate::object::{metadata_str, set_metadata_field};
use crate::object_limits::encoded_bytes;
use crate::rbac::cover::check_grant;
use crate::rbac::index::{MAX_BYTES, MAX_OBJECTS, RoleRef};
use crate::rbac::rule::RoleRule;
use crate::rbac::{self, GROUP};
use crate::status::ApiError;

/// Checks a write. `old` is the stored object.
pub(super) fn check(
    call: &ResourceRequest<'_>,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), ApiError> {
    if rbac::is_rbac(call.kind) {
        check_capacity(call, old, new)?;
    }
    if call.user.is_in_group(ADMIN_GROUP) {
        return Ok(());
    }
    if rbac::is_rbac(call.kind) {
        if old.is_some_and(|old| changes_only_owners(old, new)) {
            return Ok(());
        }
        return match call.kind.kind.as_str() {
            "Role" | "ClusterRole" => check_role(call, old, new),
            _ => check_binding(call, new),
        };
    }
    if call.kind.built_in && call.kind.kind == "CertificateSigningRequest" {
        return check_approval(call, old, new);
    }
    Ok(())
}

/// Warns of a binding to machines or bootstrap tokens, for which most rules do not count.
pub(super) fn warnings(call: &ResourceRequest<'_>, object: &Value) -> Vec<String> {
    if !rbac::is_rbac(call.kind) {
        return Vec::new();
    }
    let subjects = object["subjects"].as_array().into_iter().flatten();
    let names = subjects.filter_map(|subject| subject["name"].as_str());
    let mut found: Vec<&str> = names
        .filter_map(|name| match name {
            BOOTSTRAP_GROUP => Some("bindings do not count for bootstrap tokens"),
            _ if name == NODE_GROUP || name.starts_with(NODE_USER_PREFIX) => Some(
                "bindings do not count for machines where the hub limits them to their own objects, nor for Secrets and \
                 other credentials",
            ),
            _ => None,
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(ToOwned::to_owned).collect()
}

/// All roles and bindings are in memory once more, as rules.
fn check_capacity(
    call: &ResourceRequest<'_>,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), ApiError> {
    let objects = usize::from(old.is_none());
    if call.hub.inner.rbac.read().has_capacity(objects, encoded_bytes(new)) {
        return Ok(());
    }
    let limit = format!(
        "the hub holds at most {MAX_OBJECTS} roles and bindings, with {} MiB together: delete some first",
        MAX_BYTES >> 20
    );
    Err(ApiError::forbidden_because(call.kind, metadata_str(new, "name"), &limit))
}

/// Whether an update changes nothing but owners and finalizers, so that the garbage collector can do its work.
fn changes_only_owners(old: &Value, new: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
            set_metadata_field(&mut object, field, None);
        }
        object
    };
    without(old) == without(new)
}

fn is_allowed(call: &ResourceRequest<'_>, request: &RequestAttributes) -> bool {
    call.hub.inner.authorize(&call.user, request) == AuthorizationDecision::Allow
}

fn check_role(
    call: &ResourceRequest<'_>,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), ApiError> {
    let escalate = RequestAttributes {
        verb: "escalate".to_owned(),
        group: GROUP.to_owned(),
        resource: call.kind.plural.clone(),
        namespace: call.namespace().map(ToOwned::to_owned),
        name: call.path.name.clone(),
        ..RequestAttributes::default()
    };
    if is_allowed(call, &escalate) {
        return Ok(());
    }
    // Whoever sets an aggregation rule gathers rules of all roles, also of later ones.
    let gathers = |role: &Value| role["aggregationRule"].is_object();
    if gathers(new) || old.is_some_and(gathers) {
        let everything = [RoleRule::resources("*", "*", "*"), RoleRule::paths("*", "*")];
        let text = "must have cluster-admin privileges to use the aggregationRule";
        check_rules(call, new, &everything)
            .map_err(|_| ApiError::forbidden_because(call.kind, metadata_str(new, "name"), text))?;
    }
    check_rules(call, new, &RoleRule::rules_of(new))
}

fn check_binding(call: &ResourceRequest<'_>, new: &Value) -> Result<(), ApiError> {
    let name = new["roleRef"]["name"].as_str().unwrap_or_default();
    let resource = match new["roleRef"]["kind"].as_str() {
        Some("Role") => "roles",
        Some("ClusterRole") => "clusterroles",
        _ => return Ok(()), // refused later
    };
    let bind = RequestAttributes {
        verb: "bind".to_owned(),
        group: GROUP.to_owned(),
        resource: resource.to_owned(),
        namespace: call.namespace().map(ToOwned::to_owned),
        name: Some(name.to_owned()),
        ..RequestAttributes::default()
    };
    if is_allowed(call, &bind) {
        return Ok(());
    }
    let role = RoleRef::of_binding(new, call.namespace());
    let role = role.ok_or_else(|| ApiError::bad_request("Namespace parameter required."))?;
    let rules = call.hub.inner.rbac.read().rules_of_role(&role).map(Arc::clone);
    // As kube-apiserver: the binding's kind with the role's name.
    let rules = rules.ok_or_else(|| ApiError::not_found(call.kind, name))?;
    let rules: Vec<RoleRule> = rules.iter().map(|rule| RoleRule::clone(rule)).collect();
    check_rules(call, new, &rules)
}

fn check_rules(
    call: &ResourceRequest<'_>,
    new: &Value,
    granted: &[RoleRule],
) -> Result<(), ApiError> {
    let held = call.hub.inner.grantable_rules(&call.user, call.namespace());
    let held: Vec<&RoleRule> = held.iter().map(AsRef::as_ref).collect();
    check_grant(&call.user, &held, granted).map_err(|error| {
        ApiError::forbidden_because(call.kind, metadata_str(new, "name"), &error.to_string())
    })
}

/// Whoever approves a request makes a user. So the right to write approvals is not enough.
fn check_approval(
    call: &ResourceRequest<'_>,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), ApiError> {
    let verb = match call.path.subresource.as_deref() {
        Some("approval") => "approve",
        Some(_) => "sign",
        None => return Ok(()),
    };
    let name = metadata_str(new, "name");
    let signer = new["spec"]["signerName"].as_str().unwrap_or_default();
    let domain = signer.split('/').next().unwrap_or_default();
    let is_for = |signer: &str| {
        is_allowed(
            call,
            &RequestAttributes {
                verb: verb.to_owned(),
                group: call.kind.group.clone(),
                resource: "signers".to_owned(),
                name: Some(signer.to_owned()),
                ..RequestAttributes::default()
            },
        )
    };
    if !is_for(signer) && !is_for(&format!("{domain}/*")) {
        let text = format!("user not permitted to {verb} requests with signerName \"{signer}\"");
        return Err(ApiError::forbidden_because(call.kind, name, &text));
    }
    let decided = |csr: &Value| -> Vec<Value> {
        let conditions = csr["status"]["conditions"].as_array().into_iter().flatten();
        let types = [json!("Approved"), json!("Denied")];
        conditions.filter(|it| types.contains(&it["type"])).cloned().collect()
    };
    if verb == "sign" && old.is_some_and(|old| decided(old) != decided(new)) {
        let text =
            "the conditions Approved and Denied are written through the subresource approval";
        return Err(ApiError::forbidden_because(call.kind, name, text));
    }
    Ok(())
}
