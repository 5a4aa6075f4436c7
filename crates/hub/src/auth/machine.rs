//! What the hub remembers about a machine besides its Node: which roles it was given, and which of its
//! certificates count.
//!
//! A Node is written by its own machine, so it proves neither. Pure; `crate::machines` reads and writes the
//! records, the signer and the router's write handlers change them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::certificates::CLOCK_SKEW_SECONDS;
use crate::name_validation;

/// Key prefix of machine records in the store. No kind has this group.
pub const MACHINE_KEY_PREFIX: &str = "/machinist/machines/-/";
/// Annotation of a CSR: the roles that the machine asks for, separated by commas.
pub const ROLES_ANNOTATION: &str = "machinist.dev/node-roles";
/// Annotation of a CSR that the hub does not approve by itself: why, and what an administrator can do.
pub const APPROVAL_PENDING_ANNOTATION: &str = "machinist.dev/approval-pending";
/// Labels with this prefix assign roles, and so pools.
pub const ROLE_LABEL_PREFIX: &str = "node-role.kubernetes.io/";
/// Labels with this prefix are for administrators only, as in Kubernetes.
const RESTRICTED_LABEL_PREFIX: &str = "node-restriction.kubernetes.io/";
/// The most roles that a machine may have.
pub const MAX_ROLES: usize = 16;

/// How many assignments are remembered: the current one, and those that a rollback may need.
const MAX_ASSIGNED: usize = 8;

/// What the hub remembers about a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineRecord {
    /// The roles that a token, an administrator or a controller gave it.
    #[serde(default)]
    pub roles: BTreeSet<String>,
    /// What administrators and controllers named in its Node's assignment annotations, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assigned: Vec<String>,
    /// When its newest certificate expires, in seconds since 1970; `None` if it has none that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<i64>,
    /// Certificates that became valid before this time, in seconds since 1970, do not count any more.
    ///
    /// A time rather than a list of accepted certificates: a hub that is restored from an older backup still accepts
    /// the certificates that it issued since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_before: Option<i64>,
}

/// How a machine came by a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateGrant {
    /// It renewed the one it had.
    Renewal,
    /// A bootstrap token or an administrator gave it one, with these roles. Earlier ones stop to count.
    New(BTreeSet<String>),
}

impl MachineRecord {
    /// Notes what the machine was assigned. The oldest assignments are forgotten.
    pub fn assign(&mut self, name: &str) {
        self.assigned.retain(|known| known != name);
        self.assigned.push(name.to_owned());
        let surplus = self.assigned.len().saturating_sub(MAX_ASSIGNED);
        self.assigned.drain(..surplus);
    }

    /// Whether a certificate of this name may still be in use.
    #[must_use]
    pub fn has_live_certificate(&self, now: i64) -> bool {
        self.not_after.is_some_and(|end| end > now)
    }

    /// Whether a certificate that became valid at this time was revoked.
    #[must_use]
    pub fn is_revoked(&self, not_before: i64) -> bool {
        self.revoked_before.is_some_and(|cutoff| not_before < cutoff)
    }

    /// The record after a certificate was signed.
    #[must_use]
    pub fn after_signing(self, grant: &CertificateGrant, not_before: i64, not_after: i64) -> Self {
        match grant {
            CertificateGrant::Renewal => Self { not_after: Some(not_after), ..self },
            CertificateGrant::New(roles) => Self {
                roles: roles.clone(),
                not_after: Some(not_after),
                revoked_before: Some(not_before),
                // Another machine may have had the name. What that one could read is not this one's.
                assigned: Vec::new(),
            },
        }
    }

    /// The record after all certificates that were issued until `now` were revoked.
    #[must_use]
    pub fn after_revocation(self, now: i64) -> Self {
        // Certificates are valid from a little before they are issued.
        self.without_certificates(now - CLOCK_SKEW_SECONDS + 1)
    }

    /// The record after the machine deleted its own Node: it leaves, and its name is free. A certificate that is
    /// issued in the same second is for its next owner, so it is spared.
    #[must_use]
    pub fn after_leaving(self, now: i64) -> Self {
        self.without_certificates(now - CLOCK_SKEW_SECONDS)
    }

    fn without_certificates(self, cutoff: i64) -> Self {
        let revoked_before = self.revoked_before.max(Some(cutoff));
        Self { not_after: None, revoked_before, assigned: Vec::new(), ..self }
    }

    /// Whether a request that was made with a certificate of the machine at this time counts: a certificate that is
    /// issued for it would outlive a later revocation.
    #[must_use]
    pub fn accepts_renewal_requested_at(&self, time: i64) -> bool {
        // The cutoff is in the time of `not_before`, which is a little before the issue.
        self.revoked_before.is_none_or(|cutoff| time - CLOCK_SKEW_SECONDS >= cutoff)
    }
}

/// Whether only administrators and controllers may set a label of a Node.
fn is_protected_label(key: &str) -> bool {
    key.starts_with(ROLE_LABEL_PREFIX) || key.starts_with(RESTRICTED_LABEL_PREFIX)
}

/// The protected labels of a Node, with their values.
fn protected_labels(node: &Value) -> Vec<(&str, &Value)> {
    let labels = node["metadata"]["labels"].as_object();
    labels
        .into_iter()
        .flatten()
        .filter(|(key, _)| is_protected_label(key))
        .map(|(key, value)| (key.as_str(), value))
        .collect()
}

/// The roles of a Node.
#[must_use]
pub fn roles_of(node: &Value) -> BTreeSet<String> {
    let labels = protected_labels(node).into_iter();
    labels.filter_map(|(key, _)| key.strip_prefix(ROLE_LABEL_PREFIX)).map(str::to_owned).collect()
}

/// Gives a Node that its machine registers the roles in the machine's record, whatever the request says. Returns the
/// labels that were removed.
pub fn set_granted_roles(node: &mut Value, granted: &BTreeSet<String>) -> Vec<String> {
    let metadata = node.get_mut("metadata").and_then(Value::as_object_mut);
    let Some(metadata) = metadata else { return Vec::new() };
    if granted.is_empty() && !metadata.contains_key("labels") {
        return Vec::new();
    }
    let labels = metadata.entry("labels").or_insert_with(|| Value::Object(serde_json::Map::new()));
    let Some(labels) = labels.as_object_mut() else { return Vec::new() };
    let is_granted =
        |key: &str| key.strip_prefix(ROLE_LABEL_PREFIX).is_some_and(|role| granted.contains(role));
    let removed: Vec<String> =
        labels.keys().filter(|key| is_protected_label(key) && !is_granted(key)).cloned().collect();
    for key in &removed {
        labels.remove(key);
    }
    for role in granted {
        labels.insert(format!("{ROLE_LABEL_PREFIX}{role}"), "".into());
    }
    removed
}

/// Whether a machine may change its Node like this: its protected labels stay, or become the granted roles.
#[must_use]
pub fn may_relabel(old: &Value, new: &Value, granted: Option<&BTreeSet<String>>) -> bool {
    let after = protected_labels(new);
    let is_plain_role =
        |(key, value): &(&str, &Value)| key.starts_with(ROLE_LABEL_PREFIX) && **value == "";
    after == protected_labels(old)
        || granted
            .is_some_and(|granted| after.iter().all(is_plain_role) && roles_of(new) == *granted)
}

/// Parses a comma-separated list of roles.
///
/// # Errors
/// A role is not valid in a label, or there are too many. The text names it.
pub fn parse_roles(text: &str) -> Result<BTreeSet<String>, String> {
    let roles: BTreeSet<String> =
        text.split(',').map(str::trim).filter(|role| !role.is_empty()).map(str::to_owned).collect();
    if roles.len() > MAX_ROLES {
        return Err(format!("{} pools: at most {MAX_ROLES} are allowed", roles.len()));
    }
    for role in &roles {
        let key = format!("{ROLE_LABEL_PREFIX}{role}");
        if let Some(wrong) = name_validation::validate_qualified_name(&key).first() {
            return Err(format!("pool {role:?}: {wrong}"));
        }
    }
    Ok(roles)
}

/// Returns why a machine cannot have a name.
#[must_use]
pub fn name_fault(name: &str, reserved: &BTreeSet<String>) -> Option<String> {
    if let Some(wrong) = name_validation::validate_subdomain(name).into_iter().next() {
        return Some(format!("the machine name {name:?} is invalid: {wrong}"));
    }
    reserved.contains(name).then(|| {
        format!(
            "the machine name {name:?} belongs to a component of the system: choose another, with join --node-name"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn roles(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn node(labels: &[&str]) -> Value {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|label| ((*label).to_owned(), "".into())).collect();
        json!({"metadata": {"name": "a", "labels": labels}})
    }

    #[test]
    fn a_new_node_has_exactly_the_granted_roles() {
        let mut new = node(&[
            "node-role.kubernetes.io/master",
            "node-restriction.kubernetes.io/zone",
            "zone",
        ]);
        let removed = set_granted_roles(&mut new, &roles(&["worker"]));
        assert_eq!(new, node(&["node-role.kubernetes.io/worker", "zone"]));
        assert_eq!(removed.len(), 2, "{removed:?}");
        let mut bare = json!({"metadata": {"name": "a"}});
        set_granted_roles(&mut bare, &roles(&["infra"]));
        assert_eq!(roles_of(&bare), roles(&["infra"]));
    }

    #[test]
    fn a_machine_changes_its_roles_only_to_those_it_was_given() {
        let (worker, master) = ("node-role.kubernetes.io/worker", "node-role.kubernetes.io/master");
        let table = [
            (node(&[worker]), node(&[worker, "a"]), None, true),
            (node(&[worker]), node(&[master]), None, false),
            (node(&[worker]), node(&[]), None, false),
            (node(&[]), node(&[worker]), Some(roles(&["worker"])), true),
            (node(&[]), node(&[worker, master]), Some(roles(&["worker"])), false),
            (node(&[master]), node(&[worker]), Some(roles(&["worker"])), true),
            (node(&[]), node(&["node-restriction.kubernetes.io/a"]), Some(roles(&[])), false),
        ];
        for (old, new, granted, expected) in table {
            assert_eq!(may_relabel(&old, &new, granted.as_ref()), expected, "{old} {new}");
        }
    }

    #[test]
    fn a_new_owner_of_a_name_inherits_nothing() {
        let mut record = MachineRecord::default();
        record.assign("rendered-master-1");
        let new = CertificateGrant::New(roles(&["worker"]));
        assert!(record.clone().after_signing(&new, 1, 2).assigned.is_empty());
        assert!(record.clone().after_leaving(1000).assigned.is_empty());
        assert!(record.clone().after_revocation(1000).assigned.is_empty());
        assert_eq!(
            record.after_signing(&CertificateGrant::Renewal, 1, 2).assigned,
            ["rendered-master-1"]
        );
    }

    #[test]
    fn a_renewal_counts_only_if_it_was_requested_after_the_last_revocation() {
        let revoked = MachineRecord::default().after_revocation(1000);
        for (time, expected) in [(0, false), (999, false), (1000, false), (1001, true)] {
            assert_eq!(revoked.accepts_renewal_requested_at(time), expected, "{time}");
        }
        assert!(MachineRecord::default().accepts_renewal_requested_at(0));
        // The first certificate of a machine, issued at 1000, lets it renew from then on.
        let new = CertificateGrant::New(roles(&["worker"]));
        let joined = MachineRecord::default().after_signing(&new, 1000 - CLOCK_SKEW_SECONDS, 9000);
        assert!(joined.accepts_renewal_requested_at(1000));
    }

    #[test]
    fn names_of_the_system_are_refused() {
        let reserved = roles(&["machine-config-controller"]);
        for (name, is_good) in [
            ("w1", true),
            ("w1.example.com", true),
            ("machine-config-controller", false),
            ("", false),
            ("W1", false),
            ("a/b", false),
            ("a:b", false),
            ("-a", false),
            ("a..b", false),
        ] {
            assert_eq!(name_fault(name, &reserved).is_none(), is_good, "{name}");
        }
        assert!(name_fault(&"a".repeat(254), &reserved).is_some());
    }

    #[test]
    fn a_new_certificate_revokes_the_earlier_ones_and_a_renewal_does_not() {
        let first = MachineRecord::default().after_signing(
            &CertificateGrant::New(roles(&["worker"])),
            1000,
            5000,
        );
        assert!(!first.is_revoked(1000) && first.has_live_certificate(4999));
        let renewed = first.clone().after_signing(&CertificateGrant::Renewal, 2000, 6000);
        assert!(!renewed.is_revoked(1000) && renewed.has_live_certificate(5999));
        assert_eq!(renewed.roles, roles(&["worker"]));
        let replaced = renewed.after_signing(&CertificateGrant::New(roles(&["infra"])), 3000, 7000);
        assert!(
            replaced.is_revoked(1000) && replaced.is_revoked(2000) && !replaced.is_revoked(3000)
        );
        let now = 3000 + CLOCK_SKEW_SECONDS;
        let left = replaced.clone().after_leaving(now);
        assert!(!left.has_live_certificate(now) && left.is_revoked(2999) && !left.is_revoked(3000));
        assert!(replaced.after_revocation(now).is_revoked(3000));
    }
}
