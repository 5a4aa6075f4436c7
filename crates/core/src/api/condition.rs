//! Conditions: the statements that make up a status.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::nullable::{Nullable, UnknownFields};

/// One statement about an object: what is true, since when, and why.
///
/// The kinds differ in what they require of a condition (the older ones require little), so the
/// schema belongs to the field that holds the list. The one of `k8s_openapi` requires fields that these kinds may omit,
/// and drops fields that this version does not know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// The type of the condition, for example `Updated`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    pub last_transition_time: Nullable<Time>,
    /// A one-word reason for the status, for machines to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence that explains the status to people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The generation of the object that the condition describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub other: UnknownFields,
}

impl Condition {
    /// Whether the status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// The condition of the given type, if the list has one.
pub fn find_condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// The longest message of a condition, as in Kubernetes' own. Messages repeat what machines report; a status that is too
/// large for the API server would be written never again.
const MAX_MESSAGE_BYTES: usize = 32 << 10;
/// Ends a message that was cut.
const CUT: &str = "...";

fn shortened(message: &str) -> Cow<'_, str> {
    if message.len() <= MAX_MESSAGE_BYTES {
        return Cow::Borrowed(message);
    }
    let last = MAX_MESSAGE_BYTES - CUT.len();
    let end = (0..=last).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    Cow::Owned(format!("{}{CUT}", &message[..end]))
}

/// Sets a condition the way MCO does for pools. Nothing changes if status, reason and message are
/// equal. Otherwise the condition moves to the end of the list; its transition time changes only if
/// its status does.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: bool,
    reason: &str,
    message: &str,
    now: &Time,
) {
    let status = if status { "True" } else { "False" };
    let message = &*shortened(message);
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

/// Conditions of the older kinds: five fields, a nullable time, and a list that is replaced as a
/// whole.
pub(crate) fn legacy_conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": legacy_condition_item(),
        "x-kubernetes-list-type": "atomic",
    })
}

/// Conditions of the older kinds, in a list with one entry per type.
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
            "type": {"type": "string", "description": "The type of the condition."},
            "status": {"type": "string", "description": "True, False or Unknown."},
            "lastTransitionTime": {
                "type": "string",
                "format": "date-time",
                "nullable": true,
                "description": "When the status last changed.",
            },
            "reason": {"type": "string", "description": "A one-word reason for the status, for machines to read."},
            "message": {"type": "string", "description": "A sentence that explains the status to people."},
        },
    })
}

/// Conditions as Kubernetes defines them, one entry per type.
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
                    "description": "The type of the condition.",
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
                    "description": "A one-word reason for the status, for machines to read.",
                },
                "message": {
                    "type": "string",
                    "maxLength": 32768,
                    "description": "A sentence that explains the status to people.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The generation of the object that the condition describes.",
                },
            },
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_once() {
        let now = Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
        let mut conditions = Vec::new();
        let long = "é".repeat(1_000_000);
        for message in [long.as_str(), &format!("{long} and more")] {
            set_condition(&mut conditions, "Degraded", true, "", message, &now);
            let found = conditions[0].message.as_deref().unwrap();
            assert!(found.len() <= MAX_MESSAGE_BYTES && found.ends_with("é..."), "{}", found.len());
        }
        set_condition(&mut conditions, "Degraded", true, "", "short", &now);
        assert_eq!(conditions[0].message.as_deref(), Some("short"));
    }
}
