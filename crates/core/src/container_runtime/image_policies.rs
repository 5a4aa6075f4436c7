//! Image policies by scope. Those of the cluster take precedence over those of a namespace.

use std::collections::BTreeMap;

use kube::ResourceExt as _;

use super::policy_json::ScopeRequirements;
use super::policy_requirement::PolicyRequirement;
use super::registry_lists::RegistryLists;
use super::scope::is_inside;
use super::signature_requirement::requirement;
use crate::api::config::{ClusterImagePolicy, ImagePolicy, ImageSigstoreVerificationPolicy};
use crate::generated_config::{GenerateError, SourceRef};

/// The signature requirements of the cluster and of namespaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ImagePolicies {
    /// For the whole cluster.
    pub(super) cluster: ScopeRequirements,
    /// Additional ones, by namespace.
    pub(super) namespaces: BTreeMap<String, ScopeRequirements>,
    /// Namespace scopes that a ClusterImagePolicy overrides.
    pub(super) conflicts: Vec<ScopeConflict>,
}

/// Scopes of an ImagePolicy that have no effect because a ClusterImagePolicy covers them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeConflict {
    /// The namespace of the ImagePolicy.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The scopes.
    pub scopes: Vec<String>,
}

impl ScopeConflict {
    /// MCO's reason.
    pub const REASON: &'static str = "ConflictScopes";

    /// MCO's message.
    #[must_use]
    pub fn message(&self) -> String {
        let scopes: Vec<String> = self.scopes.iter().map(|scope| format!("{scope:?}")).collect();
        format!(
            "has conflicting scope(s) [{}] that equal to or nest inside existing clusterimagepolicy, only policy from clusterimagepolicy scope(s) will be applied",
            scopes.join(" ")
        )
    }
}

/// Groups the policies by scope and checks them against the lists of the Image config.
pub(super) fn policies(
    cluster: &[&ClusterImagePolicy],
    namespaced: &[&ImagePolicy],
    lists: &RegistryLists,
) -> Result<ImagePolicies, GenerateError> {
    let mut policies = ImagePolicies::default();
    for policy in cluster {
        let object = SourceRef::of(*policy);
        let required = policy_requirement(&object, policy.spec.policy.as_ref())?;
        for (at, scope) in policy.spec.scopes.iter().flatten().enumerate() {
            check(&object, "clusterimagePolicy", at, scope, lists)?;
            policies.cluster.entry(scope.clone()).or_default().push(required.clone());
        }
    }
    for policy in namespaced {
        let namespace = policy.namespace().unwrap_or_default();
        let object = SourceRef::of(*policy);
        let required = policy_requirement(&object, policy.spec.policy.as_ref())?;
        let mut conflicting = Vec::new();
        for (at, scope) in policy.spec.scopes.iter().flatten().enumerate() {
            if policies.cluster.keys().any(|decided| is_inside(scope, decided)) {
                conflicting.push(scope.clone());
                continue;
            }
            check(&object, "imagePolicy", at, scope, lists)?;
            let scopes = policies.namespaces.entry(namespace.clone()).or_default();
            scopes.entry(scope.clone()).or_default().push(required.clone());
        }
        if !conflicting.is_empty() {
            let name = policy.name_any();
            policies.conflicts.push(ScopeConflict { namespace, name, scopes: conflicting });
        }
    }
    Ok(policies)
}

fn policy_requirement(
    object: &SourceRef,
    policy: Option<&ImageSigstoreVerificationPolicy>,
) -> Result<PolicyRequirement, GenerateError> {
    let problem = |(field, message, remedy): (String, String, &str)| GenerateError {
        object: object.clone(),
        field: format!("spec.policy{field}"),
        message,
        remedy: remedy.to_owned(),
    };
    let missing = || problem((String::new(), "it is missing".to_owned(), "say whose signature"));
    requirement(policy.ok_or_else(missing)?)
        .map_err(|(field, message, remedy)| problem((format!(".{field}"), message, remedy)))
}

/// A policy for images that are blocked or not allowed is an error.
fn check(
    object: &SourceRef,
    kind: &str,
    at: usize,
    scope: &str,
    lists: &RegistryLists,
) -> Result<(), GenerateError> {
    let is_in = |list: &[String]| list.iter().any(|outer| is_inside(scope, outer));
    let (message, remedy) = if !lists.allowed.is_empty() && !is_in(&lists.allowed) {
        let message = "is not nested inside allowedRegistries";
        (message, "add it to spec.registrySources.allowedRegistries of Image cluster")
    } else if is_in(&lists.refused) {
        let message = "is nested inside blockedRegistries";
        (message, "take it out of spec.registrySources.blockedRegistries of Image cluster")
    } else {
        return Ok(());
    };
    Err(GenerateError {
        object: object.clone(),
        field: format!("spec.scopes[{at}]"),
        message: format!("{kind} configured for the scope {scope} {message}"),
        remedy: format!("{remedy}, or remove the scope"),
    })
}
