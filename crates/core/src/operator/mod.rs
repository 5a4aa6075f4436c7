//! The operator's decisions: which objects must exist, in which order a new release reaches them,
//! and what is reported.
//!
//! ```text
//!  settings (ConfigMap), MachineConfiguration ─┐
//!  certificates, bootstrap token (next step) ──┼─► components, ControllerConfig ─► component_order (may it be written yet?) ─► conditions ─► events
//!  the cluster's objects (Infrastructure …) ───┘
//! ```
//!
//! All of it is pure: the `operator` command reads the objects, calls these functions, and writes
//! with server-side apply.

pub mod bootstrap_token;
pub mod certificates;
pub mod component_order;
pub mod components;
pub mod conditions;
pub mod controller_config;
pub mod events;
mod pools;
mod removal;
pub mod repair_report;
mod server;
pub mod settings;

pub use removal::machines_in_drain;
use serde_json::{Value, json};

use crate::api::names::{GROUP, label, object};

/// The ConfigMap with the settings that no API object has a field for.
pub const SETTINGS_CONFIG_MAP: &str = "machinist-settings";
/// The Secret of the server's CA, and the ConfigMap of all CAs that machines should trust.
pub const SERVER_CA: &str = "machine-config-server-ca";
/// The Secret of the server's certificate.
pub const SERVER_TLS: &str = "machine-config-server-tls";
/// The key of the CA certificates in their ConfigMap.
pub const BUNDLE_KEY: &str = "ca-bundle.crt";
/// The namespace of provisioning tokens and enrolments: the only Secrets that the server may read.
/// Created by `deploy/extras/server-access.yaml`.
pub const ACCESS_NAMESPACE: &str = "machinist-access";
/// The release of an object; set on everything that the operator creates.
pub const RELEASE_ANNOTATION: &str = "machinist.dev/release";

/// The labels of everything that the operator creates.
#[must_use]
pub fn labels() -> Value {
    json!({"app.kubernetes.io/part-of": "machinist", "app.kubernetes.io/managed-by": object_name()})
}

fn object_name() -> &'static str {
    "machine-config-operator"
}

/// A reference to Machinist's namespace. Objects outside of it that have this owner are deleted
/// with it, so that an uninstallation leaves nothing behind.
#[must_use]
pub fn owner_reference(namespace: &str, uid: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": "Namespace", "name": namespace, "uid": uid}])
}

/// The default pools. The operator creates them if they are missing and never changes them: they
/// belong to the administrator from then on.
#[must_use]
pub fn pools(owner: &Value) -> Vec<Value> {
    [
        (object::POOL_MASTER, label::NODE_ROLE_CONTROL_PLANE),
        (object::POOL_WORKER, label::NODE_ROLE_WORKER),
    ]
    .into_iter()
    .map(|(name, role)| pool(name, role, owner))
    .collect()
}

/// Selects control plane machines by the label that every Kubernetes cluster sets: `master` is
/// specific to OpenShift.
fn pool(name: &str, role: &str, owner: &Value) -> Value {
    let mut labels = labels();
    labels[label::MCO_BUILT_IN] = "".into();
    labels[format!("{}{name}", label::POOL_PREFIX)] = "".into();
    if name == object::POOL_MASTER {
        labels[label::REQUIRED_FOR_UPGRADE] = "".into();
    }
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "MachineConfigPool",
        "metadata": {"name": name, "labels": labels, "ownerReferences": owner},
        "spec": {
            "machineConfigSelector": {"matchLabels": {label::ROLE: name}},
            "nodeSelector": {"matchLabels": {role: ""}},
        },
    })
}

/// The operator's own object, if it is missing. Contains only the required fields.
#[must_use]
pub fn machine_configuration(owner: &Value) -> Value {
    json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "MachineConfiguration",
        "metadata": {"name": object::CLUSTER, "labels": labels(), "ownerReferences": owner},
        "spec": {"managementState": "Managed"},
    })
}

/// Whether the operator is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ManagementState {
    /// The operator manages the components.
    #[default]
    Managed,
    /// The operator observes and changes nothing.
    Unmanaged,
    /// The operator removes the components.
    Removed,
}

impl ManagementState {
    /// Parses `spec.managementState`.
    #[must_use]
    pub fn from_spec(word: Option<&str>) -> Self {
        match word {
            Some("Unmanaged") => Self::Unmanaged,
            Some("Removed") => Self::Removed,
            _ => Self::Managed,
        }
    }
}

/// The log filter of the components, for the level in `spec.logLevel`.
#[must_use]
pub fn log_filter(level: Option<&str>) -> &'static str {
    match level {
        Some("Debug") => "debug",
        Some("Trace" | "TraceAll") => "trace",
        _ => "info",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_select_by_role_and_are_owned_by_the_namespace() {
        let owner = owner_reference("ns", "u");
        let pools = pools(&owner);
        assert_eq!(
            pools[0]["spec"]["nodeSelector"]["matchLabels"],
            json!({"node-role.kubernetes.io/control-plane": ""})
        );
        assert_eq!(pools[1]["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(pools[1]["spec"]["machineConfigSelector"]["matchLabels"][label::ROLE], "worker");
    }

    #[test]
    fn management_state_and_log_level_are_parsed() {
        assert_eq!(ManagementState::from_spec(None), ManagementState::Managed);
        assert_eq!(ManagementState::from_spec(Some("Force")), ManagementState::Managed);
        assert_eq!(ManagementState::from_spec(Some("Unmanaged")), ManagementState::Unmanaged);
        assert_eq!(log_filter(Some("TraceAll")), "trace");
        assert_eq!(log_filter(Some("")), "info");
    }
}
