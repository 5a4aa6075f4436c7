//! Drops fields that the schema does not know.

use serde_json::Value;

use super::node::{AdditionalProperties, SchemaNode};
use crate::object_limits::{MAX_FINDINGS, shorten};

const TYPE_AND_METADATA: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The fields of `ObjectMeta`.
const METADATA_FIELDS: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Prunes an object. Its type and metadata stay, whatever the schema says.
pub(super) fn prune(root: &SchemaNode, object: &mut Value) -> Vec<String> {
    let mut unknown = DroppedFields::default();
    let level = PruneLevel { embedded: true };
    if root.preserve {
        prune_preserving(root, object, level, &mut unknown);
    } else {
        prune_object(root, object, level, &mut unknown);
    }
    unknown.found.sort_unstable();
    unknown.in_metadata.sort_unstable();
    unknown.found.extend(unknown.in_metadata);
    unknown.found
}

/// Prunes a part of an object.
pub(super) fn prune_part(node: &SchemaNode, value: &mut Value) -> Vec<String> {
    let mut unknown = DroppedFields::default();
    walk(Some(node), value, &mut unknown);
    unknown.found.extend(unknown.in_metadata);
    unknown.found
}

/// The dropped paths, and the current path of the walk.
#[derive(Default)]
struct DroppedFields {
    path: String,
    found: Vec<String>,
    /// Metadata paths, which kube-apiserver reports last.
    in_metadata: Vec<String>,
}

#[derive(Clone, Copy)]
struct PruneLevel {
    embedded: bool,
}

impl DroppedFields {
    fn record(&mut self, name: &str) {
        if self.found.len() < MAX_FINDINGS {
            let dot = if self.path.is_empty() { "" } else { "." };
            self.found.push(shorten(&format!("{}{dot}{name}", self.path)));
        }
    }

    /// Runs `run` with a segment appended to the path.
    fn with_segment(&mut self, step: &str, run: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if !step.starts_with('[') && length > 0 {
            self.path.push('.');
        }
        self.path.push_str(step);
        run(self);
        self.path.truncate(length);
    }
}

fn walk(node: Option<&SchemaNode>, value: &mut Value, unknown: &mut DroppedFields) {
    let Some(node) = node else { return drop_all_fields(value, unknown) };
    let level = PruneLevel { embedded: node.embedded };
    if node.preserve {
        prune_preserving(node, value, level, unknown);
    } else {
        prune_object(node, value, level, unknown);
    }
}

/// Drops every field: the schema names none.
fn drop_all_fields(value: &mut Value, unknown: &mut DroppedFields) {
    match value {
        Value::Object(fields) => {
            fields.keys().for_each(|name| unknown.record(name));
            fields.clear();
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                unknown
                    .with_segment(&format!("[{index}]"), |unknown| drop_all_fields(item, unknown));
            }
        }
        _ => {}
    }
}

/// Prunes metadata to the fields of `ObjectMeta`.
fn prune_metadata(name: &str, value: &mut Value, unknown: &mut DroppedFields) {
    if let (true, Value::Object(fields)) = (name == "metadata", value) {
        fields.retain(|field, _| {
            let known = METADATA_FIELDS.contains(&field.as_str());
            if !known && unknown.in_metadata.len() < MAX_FINDINGS {
                unknown.in_metadata.push(format!("{}.{field}", unknown.path));
            }
            known
        });
    }
}

fn prune_object(
    node: &SchemaNode,
    value: &mut Value,
    level: PruneLevel,
    unknown: &mut DroppedFields,
) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            if level.embedded && TYPE_AND_METADATA.contains(&name.as_str()) {
                unknown.with_segment(name, |unknown| prune_metadata(name, value, unknown));
                return true;
            }
            let part = match (node.properties.get(name), &node.additional) {
                (Some(part), _) => Some(part),
                (None, AdditionalProperties::Schema(part)) => Some(part.as_ref()),
                (None, AdditionalProperties::Any(_)) => None,
                (None, AdditionalProperties::Unset) => {
                    unknown.record(name);
                    return false;
                }
            };
            unknown.with_segment(name, |unknown| walk(part, value, unknown));
            true
        }),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                let part = node.items.as_deref();
                unknown.with_segment(&format!("[{index}]"), |unknown| walk(part, item, unknown));
            }
        }
        _ => {}
    }
}

/// Keeps unknown fields, but prunes inside the known ones.
fn prune_preserving(
    node: &SchemaNode,
    value: &mut Value,
    level: PruneLevel,
    unknown: &mut DroppedFields,
) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if level.embedded && TYPE_AND_METADATA.contains(&name.as_str()) {
                    unknown.with_segment(name, |unknown| prune_metadata(name, value, unknown));
                    continue;
                }
                if let Some(part) = node.field(name) {
                    unknown.with_segment(name, |unknown| walk(Some(part), value, unknown));
                }
            }
        }
        Value::Array(items) => {
            let Some(part) = node.items.as_deref() else { return };
            for (index, item) in items.iter_mut().enumerate() {
                let level = PruneLevel { embedded: part.embedded };
                unknown.with_segment(&format!("[{index}]"), |unknown| {
                    prune_preserving(part, item, level, unknown);
                });
            }
        }
        _ => {}
    }
}
