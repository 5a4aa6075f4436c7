//! Prunes `metadata` to the type `ObjectMeta` and rejects wrong types. Pure.

use serde_json::{Map, Value};

use super::{decode_error, is_empty};
use crate::kind_registry::ResourceKind;
use crate::object_limits::{MAX_FINDINGS, shorten};
use crate::status::ApiError;

/// The fields of `ObjectMeta`.
const METADATA_FIELDS: &[&str] = &[
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// The fields of `OwnerReference`.
const OWNER_FIELDS: &[&str] =
    &["apiVersion", "blockOwnerDeletion", "controller", "kind", "name", "uid"];

/// Drops unknown metadata fields and checks the types of the known ones.
pub(super) fn prune(kind: &ResourceKind, object: &mut Value) -> Result<Vec<String>, ApiError> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(Vec::new()) };
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let Some(fields) = metadata.as_object_mut() else {
        return Err(decode_error(kind, &type_error(metadata, "metadata", "ObjectMeta")));
    };
    let mut unknown = Vec::new();
    if let Some(Value::Array(owners)) = fields.get_mut("ownerReferences") {
        prune_owners(owners, &mut unknown);
    }
    fields.retain(|key, value| {
        let known = METADATA_FIELDS.contains(&key.as_str());
        if !known && unknown.len() < MAX_FINDINGS {
            unknown.push(shorten(&format!("metadata.{key}")));
        }
        let droppable = match key.as_str() {
            "labels" | "annotations" | "finalizers" | "ownerReferences" => true,
            // For built-in kinds an empty list asks to forget the managers.
            "managedFields" => !kind.built_in,
            _ => false,
        };
        known && !value.is_null() && !(droppable && is_empty(value))
    });
    for (key, value) in &*fields {
        let place = format!("ObjectMeta.{key}");
        if let Some(reason) = metadata_type_error(key, value, &place) {
            return Err(decode_error(kind, &reason));
        }
    }
    Ok(unknown)
}

fn metadata_type_error(key: &str, value: &Value, place: &str) -> Option<String> {
    match key {
        "labels" | "annotations" => match value.as_object() {
            Some(map) => non_string_error(map.values(), place),
            None => Some(type_error(value, place, "map[string]string")),
        },
        "finalizers" => match value.as_array() {
            Some(list) => non_string_error(list.iter(), place),
            None => Some(type_error(value, place, "[]string")),
        },
        "ownerReferences" => match value.as_array() {
            Some(list) => list.iter().find_map(owner_type_error),
            None => Some(type_error(value, place, "[]v1.OwnerReference")),
        },
        "managedFields" => match value.as_array() {
            Some(list) => list
                .iter()
                .find(|entry| !entry.is_object())
                .map(|entry| type_error(entry, place, "v1.ManagedFieldsEntry")),
            None => Some(type_error(value, place, "[]v1.ManagedFieldsEntry")),
        },
        "generation" | "deletionGracePeriodSeconds" => {
            (!value.is_i64() && !value.is_u64()).then(|| type_error(value, place, "int64"))
        }
        _ => (!value.is_string()).then(|| type_error(value, place, "string")),
    }
}

/// Drops the unknown fields of owner references.
fn prune_owners(owners: &mut [Value], unknown: &mut Vec<String>) {
    for (index, owner) in owners.iter_mut().enumerate() {
        let Value::Object(fields) = owner else { continue };
        fields.retain(|key, value| {
            let known = OWNER_FIELDS.contains(&key.as_str());
            if !known && unknown.len() < MAX_FINDINGS {
                unknown.push(shorten(&format!("metadata.ownerReferences[{index}].{key}")));
            }
            known && !value.is_null()
        });
    }
}

fn owner_type_error(owner: &Value) -> Option<String> {
    let Some(fields) = owner.as_object() else {
        return Some(type_error(owner, "ObjectMeta.ownerReferences", "v1.OwnerReference"));
    };
    fields.iter().find_map(|(key, value)| {
        let place = format!("OwnerReference.metadata.ownerReferences.{key}");
        match key.as_str() {
            "controller" | "blockOwnerDeletion" => {
                (!value.is_boolean()).then(|| type_error(value, &place, "bool"))
            }
            _ => (!value.is_string()).then(|| type_error(value, &place, "string")),
        }
    })
}

fn non_string_error<'a>(
    mut values: impl Iterator<Item = &'a Value>,
    place: &str,
) -> Option<String> {
    values.find(|value| !value.is_string()).map(|value| type_error(value, place, "string"))
}

fn type_error(value: &Value, place: &str, wanted: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go struct field {place} of type {wanted}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node() -> ResourceKind {
        crate::built_in::kinds().into_iter().find(|kind| kind.kind == "Node").unwrap()
    }

    #[test]
    fn unknown_fields_of_owner_references_are_dropped() {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "u", "controller": true});
        let mut sent = owner.clone();
        sent["deep"] = json!([[[]]]);
        let mut object = json!({"metadata": {"ownerReferences": [owner, sent]}});
        let unknown = prune(&node(), &mut object).unwrap();
        assert_eq!(unknown, ["metadata.ownerReferences[1].deep"]);
        assert_eq!(object, json!({"metadata": {"ownerReferences": [owner, owner]}}));
    }

    #[test]
    fn wrong_types_are_rejected() {
        for metadata in [
            json!({"ownerReferences": [{"name": {"a": 1}}]}),
            json!({"ownerReferences": [{"controller": "yes"}]}),
            json!({"ownerReferences": ["a"]}),
            json!({"ownerReferences": {}, "name": 1}),
            json!({"managedFields": ["a"]}),
            json!({"managedFields": "a"}),
            json!({"finalizers": [["a"]]}),
            json!({"labels": {"a": {"b": "c"}}}),
            json!({"creationTimestamp": {"a": 1}}),
        ] {
            let error = prune(&node(), &mut json!({"metadata": metadata})).unwrap_err();
            assert_eq!(error.code, 400, "{metadata}: {error}");
        }
    }
}
