//! Disruption policies: how much a change of a file or unit disrupts a machine.
//!
//! Without a policy a machine reboots for nearly every change. An administrator can define less:
//! reload a service, drain first, or do nothing.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::nullable::UnknownFields;
use crate::api::{rules, schema};

/// The actions after a change of a file, a unit or the SSH keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NodeDisruptionPolicy {
    /// The actions when a file changes; the path of a directory covers everything below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 50),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["path"])
    )]
    pub files: Option<Vec<FileDisruptionPolicy>>,
    /// The actions when a unit changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 50),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub units: Option<Vec<UnitDisruptionPolicy>>,
    /// The actions when the SSH keys of the user `core` change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sshkey: Option<SshKeyDisruptionPolicy>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The actions when a file changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["actions", "path"]))]
pub struct FileDisruptionPolicy {
    /// The path of the file or directory.
    pub path: String,
    /// The actions, in this order.
    #[schemars(
        length(max = 10),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = rules::exclusive_actions()
        )
    )]
    pub actions: Vec<DisruptionAction>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The actions when a unit changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["actions", "name"]))]
pub struct UnitDisruptionPolicy {
    /// The name of the unit.
    #[schemars(
        length(max = 255),
        extend("x-kubernetes-validations" = rules::unit_name())
    )]
    pub name: String,
    /// The actions, in this order.
    #[schemars(
        length(max = 10),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = rules::exclusive_actions()
        )
    )]
    pub actions: Vec<DisruptionAction>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The actions when the SSH keys of the user `core` change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["actions"]))]
pub struct SshKeyDisruptionPolicy {
    /// The actions, in this order.
    #[schemars(
        length(max = 10),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = rules::exclusive_actions()
        )
    )]
    pub actions: Vec<DisruptionAction>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// One action after a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend(
    "required" = ["type"],
    "x-kubernetes-validations" = rules::action_members()
))]
pub struct DisruptionAction {
    /// The type of the action.
    #[serde(rename = "type")]
    #[schemars(
        with = "String",
        extend("enum" = ["Reboot", "Drain", "Reload", "Restart", "DaemonReload", "None"])
    )]
    pub type_: DisruptionActionType,
    /// The service to reload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reload: Option<ServiceReference>,
    /// The service to restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<ServiceReference>,
    /// The command of [`DisruptionActionType::Run`]; only used internally.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub run: Vec<String>,
    /// Whether the action is skipped on a host that does not have what it acts on; only used internally.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip)]
    pub if_present: bool,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The types of actions after a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DisruptionActionType {
    /// Drain the machine and reboot it.
    #[default]
    Reboot,
    /// Drain the machine.
    Drain,
    /// Reload a service.
    Reload,
    /// Restart a service.
    Restart,
    /// Run `systemctl daemon-reload`.
    DaemonReload,
    /// Do nothing.
    None,
    /// The action that the change itself requires; only used internally.
    Special,
    /// Run a command; only used internally, for an entry of `machinist.dev/on-change`.
    Run,
    /// An action that this version does not know.
    #[serde(untagged)]
    Unknown(String),
}

/// A systemd service, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["serviceName"]))]
pub struct ServiceReference {
    /// The name of the service, with its suffix.
    #[schemars(
        length(max = 255),
        extend("x-kubernetes-validations" = rules::unit_name())
    )]
    pub service_name: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The effective policies: the defaults, overridden by those of the administrator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeDisruptionPolicyStatus {
    /// The effective policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NodeDisruptionPolicy", transform = effective_policy_schema)]
    pub cluster_policies: Option<NodeDisruptionPolicy>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The effective policies may be twice as many, and may contain `Special`.
fn effective_policy_schema(policy: &mut Schema) {
    for list in ["files", "units"] {
        schema::adjust(policy, &["properties", list], |list| {
            list.insert("maxItems".into(), json!(100));
        });
    }
    let to_actions: [&[&str]; 3] = [
        &["files", "items", "properties", "actions"],
        &["units", "items", "properties", "actions"],
        &["sshkey", "properties", "actions"],
    ];
    for to_actions in to_actions {
        let path = [&["properties"], to_actions, &["items", "properties", "type"]].concat();
        schema::adjust(policy, &path, |type_| {
            if let Some(Value::Array(values)) = type_.get_mut("enum") {
                values.push("Special".into());
            }
        });
    }
}
