//! Objects inside objects: the cluster facts that a ControllerConfig embeds.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::nullable::UnknownFields;

/// A whole object inside another one; every field is optional.
///
/// The metadata is kept as it is written: nobody reads it, and it must be written back unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Embedded<Spec, Status> {
    /// The API version of the embedded object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// The kind of the embedded object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The metadata of the embedded object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// The spec of the embedded object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<Spec>,
    /// The status of the embedded object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub other: UnknownFields,
}

impl<Spec, Status> Default for Embedded<Spec, Status> {
    fn default() -> Self {
        Self {
            api_version: None,
            kind: None,
            metadata: None,
            spec: None,
            status: None,
            other: UnknownFields::new(),
        }
    }
}
