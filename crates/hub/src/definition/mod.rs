//! CustomResourceDefinitions that clients create: their form, their validation and their status.
//!
//! Pure. [`complete`] fills in what a client left out, [`validate`] checks what it sent, [`lifecycle`] writes the status
//! of a new, changed or deleted definition, and [`names`] accepts names. The rules and the texts are those of Kubernetes;
//! what the hub does not do (webhooks) is refused. Called by the admission of definitions and by
//! [`crate::definition_loop`], which serves the kinds.

pub mod complete;
pub mod lifecycle;
pub mod names;
pub mod validate;

use serde_json::Value;

use crate::kind_registry::ResourceKind;

/// The API group of definitions.
pub const GROUP: &str = "apiextensions.k8s.io";
/// The prefix of the keys of definitions.
pub const KEY_PREFIX: &str = "/apiextensions.k8s.io/customresourcedefinitions/-/";
/// The most definitions that clients may create.
pub const MAX_DEFINITIONS: usize = 500;
/// The most bytes that these may have together. Compiled, a definition takes several times its size.
pub const MAX_DEFINITION_BYTES: usize = 64 << 20;
/// Why a definition with a conversion webhook and an aggregated API are refused.
pub const NEEDS_KUBERNETES: &str = "webhooks and aggregated APIs need Kubernetes";

/// Whether a kind is that of definitions.
#[must_use]
pub fn is_definition(kind: &ResourceKind) -> bool {
    kind.built_in && kind.group == GROUP
}

/// The versions of a definition.
fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition["spec"]["versions"].as_array().into_iter().flatten()
}

/// The version in which objects are stored.
#[must_use]
pub fn storage_version(definition: &Value) -> Option<&str> {
    versions(definition).find(|version| version["storage"] == true)?["name"].as_str()
}
