//! The JSON form of a field set, `fieldsV1` in `metadata.managedFields`.
//!
//! `{"f:spec": {"f:replicas": {}}}` is the path `.spec.replicas`; `".": {}` says that the path to its object is in the set
//! too. Pure; called by [`super::managed_fields`].

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::path_element::{PathElement, PathElementError};

/// Decodes a set. What is no object counts as one without fields.
///
/// # Errors
/// A key is malformed.
pub(super) fn decode(fields: &Value) -> Result<FieldSet, PathElementError> {
    Ok(decode_level(fields)?.0)
}

/// The set of a level, and whether the path to it is a member.
fn decode_level(fields: &Value) -> Result<(FieldSet, bool), PathElementError> {
    let mut set = FieldSet::default();
    let mut member = false;
    for (key, value) in fields.as_object().into_iter().flatten() {
        if key == "." {
            member = true;
            continue;
        }
        match PathElement::parse(key) {
            Ok(element) => {
                let (children, child_member) = decode_level(value)?;
                set.attach(element, child_member, children);
            }
            // Later versions may write other kinds of elements.
            Err(PathElementError::UnknownType) => {}
            Err(error) => return Err(error),
        }
    }
    member |= set.is_empty();
    Ok((set, member))
}

/// Encodes a set.
#[must_use]
pub(super) fn encode(set: &FieldSet) -> Value {
    let nodes = set.nodes().iter().map(|node| {
        let mut below = encode(&node.children);
        if let (true, false, Some(fields)) =
            (node.member, node.children.is_empty(), below.as_object_mut())
        {
            fields.insert(".".to_owned(), Value::Object(Map::new()));
        }
        (node.element.to_text(), below)
    });
    Value::Object(nodes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sets_round_trip() {
        for fields in [
            json!({}),
            json!({"f:spec": {}}),
            json!({"f:spec": {".": {}, "f:a": {}}}),
            json!({"f:list": {"k:{\"type\":\"A\"}": {".": {}, "f:type": {}}, "v:\"x\"": {}}}),
        ] {
            assert_eq!(encode(&decode(&fields).unwrap()), fields);
        }
    }

    #[test]
    fn unknown_elements_are_dropped_and_malformed_ones_are_errors() {
        assert_eq!(encode(&decode(&json!({"z:1": {}, "f:a": 7})).unwrap()), json!({"f:a": {}}));
        assert!(decode(&json!({"f:a": {"k:1": {}}})).is_err());
        assert!(decode(&json!([1])).unwrap().is_empty());
    }
}
