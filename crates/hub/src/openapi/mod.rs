//! OpenAPI documents of what is served, good enough for `kubectl explain` and for kubectl's own checks.
//!
//! kubectl reads the documents of version 3: the index first, then one per group and version. There it finds the schemas
//! for `explain`, and in the parameters of `patch` whether the server validates fields and knows dry runs. Version 2 it
//! asks for only when version 3 is not there, and then in protobuf, which is not offered here: the answer to that is
//! `406`, and kubectl goes on without.
//!
//! The documents do not change while the registry does not; keep them, they are not small.

mod convert;
mod paths;
mod schemas;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::hex;
use crate::kind_registry::{KindRegistry, ResourceKind};

/// `/openapi/v3`: which documents there are. Their addresses change with their contents.
#[must_use]
pub fn v3_index(registry: &KindRegistry) -> Value {
    let mut paths = Map::new();
    for group_version in group_versions(registry) {
        if let Some(document) = v3_document(registry, &group_version) {
            let hash = hash(&document);
            let address = format!("/openapi/v3/{group_version}?hash={hash}");
            paths.insert(group_version, json!({"serverRelativeURL": address}));
        }
    }
    json!({"paths": paths})
}

/// `/openapi/v3/<group_version>`: one document, named as in the index (`api/v1`, `apis/group/version`).
#[must_use]
pub fn v3_document(registry: &KindRegistry, group_version: &str) -> Option<Value> {
    let kinds = kinds(registry, group_version);
    if kinds.is_empty() {
        return None;
    }
    let mut paths = Map::new();
    let mut definitions = schemas::common_schemas();
    for kind in &kinds {
        paths.extend(paths::v3(kind));
        definitions.extend(schemas::kind_schemas(kind));
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths,
        "components": {"schemas": definitions},
    }))
}

/// `/openapi/v2`: everything in one document, as JSON.
#[must_use]
pub fn v2_document(registry: &KindRegistry) -> Value {
    let mut paths = Map::new();
    let mut definitions = schemas::common_schemas();
    for kind in registry.kinds() {
        paths.extend(paths::v2(kind));
        definitions.extend(schemas::kind_schemas(kind));
    }
    let mut definitions = Value::Object(definitions);
    convert::to_v2(&mut definitions);
    json!({
        "swagger": "2.0",
        "info": info(),
        "paths": paths,
        "definitions": definitions,
    })
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "v1.34.1"})
}

/// `api/v1`, or `apis/group/version`.
fn group_version(kind: &ResourceKind) -> String {
    let root = if kind.group.is_empty() { "api" } else { "apis" };
    format!("{root}/{}", kind.api_version())
}

fn group_versions(registry: &KindRegistry) -> Vec<String> {
    let mut names: Vec<String> = registry.kinds().map(|kind| group_version(kind)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn kinds<'a>(registry: &'a KindRegistry, name: &str) -> Vec<&'a ResourceKind> {
    let all = registry.kinds().map(AsRef::as_ref);
    all.filter(|kind: &&ResourceKind| group_version(kind) == name).collect()
}

fn hash(document: &Value) -> String {
    hex::encode(&Sha256::digest(document.to_string().as_bytes())).to_uppercase()
}

/// The group, version and kind of a kind, as the extension of schemas and operations has it.
fn group_version_kind(kind: &ResourceKind, name: &str) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": name})
}
