//! `policy.json`: which images are accepted (containers-policy.json(5)).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::image_policies::ScopeRequirements;
use super::registry_lists::RegistryLists;

/// The default file, which accepts every image.
pub(super) const DEFAULT_POLICY_JSON: &str = r#"{
  "default": [{"type": "insecureAcceptAnything"}],
  "transports": {"docker-daemon": {"": [{"type": "insecureAcceptAnything"}]}}
}"#;

/// The transport `atomic` does not support scopes with this many slashes.
const TOO_DEEP_FOR_ATOMIC: usize = 3;

/// A `policy.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PolicyFile {
    /// The requirements of images without a more specific entry.
    default: Value,
    /// The requirements of images, by transport and scope.
    #[serde(default)]
    transports: BTreeMap<String, Map<String, Value>>,
}

impl PolicyFile {
    /// Parses a file.
    pub(super) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The text of the file.
    pub(super) fn text(&self) -> String {
        // Serializing a map with string keys cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// The policy of the cluster: the base file, the lists of the Image config, ClusterImagePolicies.
pub(super) fn cluster_policy(
    mut base: PolicyFile,
    lists: &RegistryLists,
    policies: &ScopeRequirements,
) -> PolicyFile {
    let mut scopes = Map::new();
    if !lists.allowed.is_empty() {
        base.default = reject();
        for scope in lists.allowed.iter().filter(|scope| !policies.contains_key(*scope)) {
            scopes.insert(scope.clone(), accept());
        }
    }
    if !lists.refused.is_empty() {
        base.default = accept();
        scopes.extend(lists.refused.iter().map(|scope| (scope.clone(), reject())));
    }
    add(&mut scopes, policies);
    if !scopes.is_empty() {
        base.transports.insert("atomic".to_owned(), for_atomic(&scopes));
        base.transports.insert("docker".to_owned(), scopes);
    }
    base
}

/// The policy of a namespace: the cluster's, plus its own.
pub(super) fn namespace_policy(cluster: &PolicyFile, policies: &ScopeRequirements) -> PolicyFile {
    let mut policy = cluster.clone();
    let shallow = policies.iter().filter(|(scope, _)| !is_too_deep(scope));
    let shallow = shallow.map(|(scope, required)| (scope.clone(), required.clone())).collect();
    for (transport, policies) in [("docker", policies), ("atomic", &shallow)] {
        add(policy.transports.entry(transport.to_owned()).or_default(), policies);
    }
    policy
}

fn add(scopes: &mut Map<String, Value>, policies: &ScopeRequirements) {
    for (scope, required) in policies {
        let entry = scopes.entry(scope.clone()).or_insert_with(|| json!([]));
        if let Value::Array(all) = entry {
            all.extend(required.iter().cloned());
        }
    }
}

fn for_atomic(scopes: &Map<String, Value>) -> Map<String, Value> {
    let shallow = scopes.iter().filter(|(scope, _)| !is_too_deep(scope));
    shallow.map(|(scope, required)| (scope.clone(), required.clone())).collect()
}

fn is_too_deep(scope: &str) -> bool {
    scope.matches('/').count() >= TOO_DEEP_FOR_ATOMIC
}

fn accept() -> Value {
    json!([{"type": "insecureAcceptAnything"}])
}

fn reject() -> Value {
    json!([{"type": "reject"}])
}
