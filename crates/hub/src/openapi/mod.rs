//! OpenAPI documents for `kubectl explain` and kubectl's client-side checks.
//!
//! kubectl reads OpenAPI 3: the index, then one document per group and version. It takes the
//! schemas for `explain` from there, and from the parameters of `patch` whether the server supports
//! field validation and dry runs. Older versions of kubectl, Argo CD and client-go's `OpenAPISchema()`
//! read OpenAPI 2, as [`protobuf`].
//!
//! Pure. The documents are large and change only with the registry, so `hub::OpenApiCache` keeps
//! them.

mod convert;
mod paths;
pub mod protobuf;
mod schemas;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::hex;
use crate::kind_registry::{KindRegistry, ResourceKind};

/// `/openapi/v3`: the index. The URL of a document changes with its contents.
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

/// `/openapi/v3/<group_version>`: one document, named as in the index (`api/v1`,
/// `apis/group/version`).
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

/// `/openapi/v2`: one document for everything.
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

/// The `x-kubernetes-group-version-kind` value of a kind.
fn group_version_kind(kind: &ResourceKind, name: &str) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": name})
}
