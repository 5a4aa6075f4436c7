//! What the operator does: which objects there have to be, in which order a new release reaches them, and
//! what is said about it.
//!
//! ```text
//!  settings (ConfigMap), MachineConfiguration ─┐
//!  certificates (what to make next) ───────────┼─► parts, ControllerConfig ─► order (may it be written yet?) ─► conditions ─► news
//!  the cluster's own words (Infrastructure …) ─┘
//! ```
//!
//! All of it is pure: the shell reads, asks, writes with server-side apply, and looks again.

pub mod certificates;
pub mod component_order;
pub mod components;
pub mod conditions;
pub mod controller_config;
pub mod events;
mod pools;
pub mod repair_report;
mod server;
pub mod settings;

use serde_json::{Value, json};

use crate::api::names::{GROUP, label, object};

/// The ConfigMap with the settings that no object of the API has a place for.
pub const SETTINGS_CONFIG_MAP: &str = "machinist-settings";
/// The Secret of the server's CA, and the ConfigMap of all CAs that machines are to trust.
pub const SERVER_CA: &str = "machine-config-server-ca";
/// The Secret of the server's certificate.
pub const SERVER_TLS: &str = "machine-config-server-tls";
/// The key of the CAs in their ConfigMap.
pub const BUNDLE_KEY: &str = "ca-bundle.crt";
/// The namespace of provisioning tokens and enrolments: the only Secrets that the server may see. It comes with
/// `deploy/extras/server-access.yaml`.
pub const ACCESS_NAMESPACE: &str = "machinist-access";
/// Which release an object is of; on everything that the operator makes.
pub const RELEASE_ANNOTATION: &str = "machinist.dev/release";

/// Labels of everything that the operator makes.
#[must_use]
pub fn labels() -> Value {
    json!({"app.kubernetes.io/part-of": "machinist", "app.kubernetes.io/managed-by": object_name()})
}

fn object_name() -> &'static str {
    "machine-config-operator"
}

/// A reference to the namespace of the system. What is outside of it and has this owner goes with it: so a deinstallation
/// leaves nothing behind.
#[must_use]
pub fn owner_reference(namespace: &str, uid: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": "Namespace", "name": namespace, "uid": uid}])
}

/// The pools that are there from the start. They are made where they are missing and never changed: they are the
/// administrator's from then on.
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

/// Control plane machines are found by the label that every Kubernetes gives them: `master` is OpenShift's alone.
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

/// The operator's own object, where there is none. Only what it takes to have one.
#[must_use]
pub fn machine_configuration(owner: &Value) -> Value {
    json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "MachineConfiguration",
        "metadata": {"name": object::CLUSTER, "labels": labels(), "ownerReferences": owner},
        "spec": {"managementState": "Managed"},
    })
}

/// Whether the operator is to do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ManagementState {
    /// It does.
    #[default]
    Managed,
    /// It looks, and touches nothing.
    Unmanaged,
    /// It takes the parts away.
    Removed,
}

impl ManagementState {
    /// By the word in `spec.managementState`.
    #[must_use]
    pub fn from_spec(word: Option<&str>) -> Self {
        match word {
            Some("Unmanaged") => Self::Unmanaged,
            Some("Removed") => Self::Removed,
            _ => Self::Managed,
        }
    }
}

/// What the parts log, by the word in `spec.logLevel`.
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
    fn pools_select_by_role_and_go_with_the_namespace() {
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
    fn words_of_the_machine_configuration() {
        assert_eq!(ManagementState::from_spec(None), ManagementState::Managed);
        assert_eq!(ManagementState::from_spec(Some("Force")), ManagementState::Managed);
        assert_eq!(ManagementState::from_spec(Some("Unmanaged")), ManagementState::Unmanaged);
        assert_eq!(log_filter(Some("TraceAll")), "trace");
        assert_eq!(log_filter(Some("")), "info");
    }
}
