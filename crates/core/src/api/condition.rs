//! Conditions: the statements that a status consists of.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::nullable::{Nullable, UnknownFields};

/// One statement about an object: what holds, since when, and why.
///
/// The kinds differ in what they demand of a condition (the older ones demand little), so the
/// schema belongs to the field that holds the list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What the statement is about, for example `Updated`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    pub last_transition_time: Nullable<Time>,
    /// One word for programs that says why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence for people that says why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The generation of the object that the statement was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub other: UnknownFields,
}

impl Condition {
    /// Whether the statement is known to hold.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// The condition of the given type, if the list has one.
pub fn find_condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Sets a condition by the rule of all pools: nothing happens where status, reason and message are
/// the same; otherwise the condition moves to the end of the list, and its time moves only if its
/// status does.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: bool,
    reason: &str,
    message: &str,
    now: &Time,
) {
    let status = if status { "True" } else { "False" };
    let mut transition = Some(now.clone());
    if let Some(at) = conditions.iter().position(|condition| condition.type_ == type_) {
        let old = &conditions[at];
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        if old.status == status && text(&old.reason) == reason && text(&old.message) == message {
            return;
        }
        if old.status == status {
            transition = old.last_transition_time.clone().into_option();
        }
        conditions.remove(at);
    }
    conditions.push(Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: transition.map_or(Nullable::Absent, Nullable::Set),
        ..Condition::default()
    });
}

/// Conditions of the older kinds: five fields, the time may be null, the list is one value.
pub(crate) fn legacy_conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": legacy_condition_item(),
        "x-kubernetes-list-type": "atomic",
    })
}

/// Conditions of the older kinds in a list that has one entry per type.
pub(crate) fn legacy_conditions_by_type(_: &mut SchemaGenerator) -> Schema {
    let mut item = legacy_condition_item();
    if let Value::Object(item) = &mut item {
        item.insert("required".into(), json!(["lastTransitionTime", "status", "type"]));
    }
    json_schema!({
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

fn legacy_condition_item() -> Value {
    json!({
        "type": "object",
        "properties": {
            "type": {"type": "string", "description": "What the statement is about."},
            "status": {"type": "string", "description": "True, False or Unknown."},
            "lastTransitionTime": {
                "type": "string",
                "format": "date-time",
                "nullable": true,
                "description": "When the status last changed.",
            },
            "reason": {"type": "string", "description": "One word for programs that says why."},
            "message": {"type": "string", "description": "A sentence for people that says why."},
        },
    })
}

/// Conditions as Kubernetes itself defines them, one entry per type.
pub(crate) fn standard_conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                    "description": "What the statement is about.",
                },
                "status": {
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                    "description": "True, False or Unknown.",
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the status last changed.",
                },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "One word for programs that says why.",
                },
                "message": {
                    "type": "string",
                    "maxLength": 32768,
                    "description": "A sentence for people that says why.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The generation of the object that the statement was made for.",
                },
            },
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}
