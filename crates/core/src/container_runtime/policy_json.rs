//! `policy.json`: which images are accepted (containers-policy.json(5)).
//!
//! The names of rendered configs depend on the bytes, so the file is written as Go writes the types
//! of `containers/image` (see [`policy_requirement`](super::policy_requirement)).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::policy_requirement::PolicyRequirement;
use super::registry_lists::RegistryLists;
use crate::go::escape::escape_html;

/// The default file, which accepts every image.
pub(super) const DEFAULT_POLICY_JSON: &str = r#"{
  "default": [{"type": "insecureAcceptAnything"}],
  "transports": {"docker-daemon": {"": [{"type": "insecureAcceptAnything"}]}}
}"#;

/// Requirements by scope. Go sorts the keys of a map by their bytes, as a `BTreeMap` does.
pub(super) type ScopeRequirements = BTreeMap<String, Vec<PolicyRequirement>>;

/// The transport `atomic` does not support scopes with this many slashes.
const TOO_DEEP_FOR_ATOMIC: usize = 3;

/// A `policy.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyFile {
    /// The requirements of images without a more specific entry.
    default: Vec<PolicyRequirement>,
    /// The requirements of images, by transport and scope.
    #[serde(default)]
    transports: BTreeMap<String, ScopeRequirements>,
}

impl PolicyFile {
    /// Parses a file.
    pub(super) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The text of the file.
    pub(super) fn text(&self) -> String {
        // Serializing maps with string keys cannot fail, and JSON is UTF-8.
        let json = serde_json::to_vec_pretty(self).unwrap_or_default();
        String::from_utf8(escape_html(json)).unwrap_or_default()
    }
}

/// The policy of the cluster: the base file, the lists of the Image config, ClusterImagePolicies.
/// `None` if none of them changes the base file: MCO then keeps its text.
pub(super) fn cluster_policy(
    base: &PolicyFile,
    lists: &RegistryLists,
    policies: &ScopeRequirements,
) -> Option<PolicyFile> {
    if lists.allowed.is_empty() && lists.refused.is_empty() && policies.is_empty() {
        return None;
    }
    let mut policy = base.clone();
    let mut scopes = ScopeRequirements::new();
    if !lists.allowed.is_empty() {
        policy.default = vec![PolicyRequirement::Reject {}];
        for scope in lists.allowed.iter().filter(|scope| !policies.contains_key(*scope)) {
            scopes.insert(scope.clone(), vec![PolicyRequirement::InsecureAcceptAnything {}]);
        }
    }
    if !lists.refused.is_empty() {
        policy.default = vec![PolicyRequirement::InsecureAcceptAnything {}];
        let refused = lists.refused.iter();
        scopes.extend(refused.map(|scope| (scope.clone(), vec![PolicyRequirement::Reject {}])));
    }
    add(&mut scopes, policies);
    if !scopes.is_empty() {
        policy.transports.insert("atomic".to_owned(), for_atomic(&scopes));
        policy.transports.insert("docker".to_owned(), scopes);
    }
    Some(policy)
}

/// The policy of a namespace: the cluster's, plus its own.
pub(super) fn namespace_policy(cluster: &PolicyFile, policies: &ScopeRequirements) -> PolicyFile {
    let mut policy = cluster.clone();
    for (transport, policies) in [("docker", policies), ("atomic", &for_atomic(policies))] {
        add(policy.transports.entry(transport.to_owned()).or_default(), policies);
    }
    policy
}

fn add(scopes: &mut ScopeRequirements, policies: &ScopeRequirements) {
    for (scope, required) in policies {
        scopes.entry(scope.clone()).or_default().extend(required.iter().cloned());
    }
}

fn for_atomic(scopes: &ScopeRequirements) -> ScopeRequirements {
    let is_too_deep = |scope: &str| scope.matches('/').count() >= TOO_DEEP_FOR_ATOMIC;
    let shallow = scopes.iter().filter(|(scope, _)| !is_too_deep(scope));
    shallow.map(|(scope, required)| (scope.clone(), required.clone())).collect()
}
