//! Client-side apply: the patch that brings an object to its manifest. Compatible with `kubectl apply`.
//!
//! An annotation holds the manifest that was applied last. Fields in it that the manifest no longer has are removed, fields
//! of the manifest are set, and all other fields belong to others and stay. The result is a JSON merge patch for every kind:
//! lists are replaced as a whole. (`kubectl` merges some lists of built-in kinds by their keys.)

use serde_json::{Map, Value};

/// The annotation with the manifest that was applied last.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manifest with itself in the annotation, byte for byte as `kubectl` writes it.
#[must_use]
pub fn with_last_applied(manifest: &Value) -> Value {
    let mut object = manifest.clone();
    let Some(annotations) = annotations_mut(&mut object) else { return object };
    annotations.remove(LAST_APPLIED);
    let text = go_json(&object);
    if let Some(annotations) = self::annotations_mut(&mut object) {
        annotations.insert(LAST_APPLIED.to_owned(), text.into());
    }
    object
}

/// The annotations, created if they are missing.
fn annotations_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let metadata = object.as_object_mut()?.entry("metadata");
    let metadata = metadata.or_insert_with(|| Map::new().into()).as_object_mut()?;
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = Map::new().into();
    }
    annotations.as_object_mut()
}

/// JSON as Go's encoder writes it: one line with a newline, `<`, `>` and `&` escaped.
fn go_json(value: &Value) -> String {
    let mut text = value.to_string();
    for (plain, escaped) in [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ] {
        // In JSON these occur only in strings.
        if text.contains(plain) {
            text = text.replace(plain, escaped);
        }
    }
    text.push('\n');
    text
}

/// The manifest that was applied last to an object.
#[must_use]
pub fn last_applied(live: &Value) -> Option<Value> {
    let text = live.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()?;
    serde_json::from_str(text).ok()
}

/// The merge patch that brings the live object to the manifest; empty if there is nothing to change.
///
/// Unlike `kubectl`, a manifest that no longer has labels removes only its own labels, and not those of others.
#[must_use]
pub fn patch(last_applied: Option<&Value>, live: &Value, wanted: &Value) -> Value {
    let nothing = Value::Null;
    let mut wanted = wanted.clone();
    if let Some(metadata) = wanted.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.entry("labels").or_insert_with(|| Map::new().into());
    }
    let mut patch = merge_patch(last_applied.unwrap_or(&nothing), live, &wanted);
    // Empty labels on an object without labels are no change.
    if live.pointer("/metadata/labels").is_none()
        && let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.retain(|key, value| key != "labels" || *value != Value::Object(Map::new()));
        if metadata.is_empty()
            && let Some(patch) = patch.as_object_mut()
        {
            patch.remove("metadata");
        }
    }
    patch
}

/// The merge patch of one nested object.
fn merge_patch(last: &Value, live: &Value, wanted: &Value) -> Value {
    let none = Map::new();
    let fields = |value: &Value| value.as_object().cloned();
    let (live, wanted) = (live.as_object().unwrap_or(&none), wanted.as_object().unwrap_or(&none));
    let mut patch = Map::new();
    for (key, wanted) in wanted.iter().filter(|(_, wanted)| !wanted.is_null()) {
        match (live.get(key), wanted) {
            (Some(live), wanted) if live == wanted => {}
            (Some(live @ Value::Object(_)), Value::Object(_)) => {
                let last = last.get(key).unwrap_or(&Value::Null);
                let inner = merge_patch(last, live, wanted);
                if fields(&inner).is_some_and(|inner| !inner.is_empty()) {
                    patch.insert(key.clone(), inner);
                }
            }
            _ => {
                patch.insert(key.clone(), without_nulls(wanted));
            }
        }
    }
    let is_gone = |key: &String| wanted.get(key).is_none_or(Value::is_null);
    // An applied null has set nothing.
    let mine = last.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    for (key, _) in mine {
        if is_gone(key) && live.contains_key(key) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    Value::Object(patch)
}

/// A value to set: a null in a merge patch would remove the field.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.clone(), without_nulls(value)))
            .collect::<Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// Applies a merge patch as a server does (RFC 7396).
    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(fields) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        for (key, value) in fields {
            let map = target.as_object_mut().unwrap();
            if value.is_null() {
                map.remove(key);
            } else {
                merge(map.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }

    #[test]
    fn patches() {
        for (why, last, live, wanted, expected) in [
            ("nothing to do", json!({"a": 1}), json!({"a": 1}), json!({"a": 1}), json!({})),
            ("set", json!({}), json!({"a": 1}), json!({"a": 2, "b": 3}), json!({"a": 2, "b": 3})),
            ("removed", json!({"a": 1}), json!({"a": 1, "x": 1}), json!({}), json!({"a": null})),
            ("gone already", json!({"a": 1}), json!({}), json!({}), json!({})),
            (
                "others stay",
                json!({}),
                json!({"x": {"y": 1}}),
                json!({"x": {"z": 2}}),
                json!({"x": {"z": 2}}),
            ),
            (
                "null removes",
                json!({"a": 1}),
                json!({"a": 1}),
                json!({"a": null}),
                json!({"a": null}),
            ),
            ("null of others", json!({}), json!({"a": 1}), json!({"a": null}), json!({})),
            (
                "lists are replaced",
                json!({"l": [1]}),
                json!({"l": [1, 2]}),
                json!({"l": [3]}),
                json!({"l": [3]}),
            ),
            (
                "another type",
                json!({"a": {"b": 1}}),
                json!({"a": {"b": 1}}),
                json!({"a": 1}),
                json!({"a": 1}),
            ),
            (
                "deep",
                json!({"s": {"a": 1, "b": 2}}),
                json!({"s": {"a": 1, "b": 2, "o": 3}}),
                json!({"s": {"a": 9}}),
                json!({"s": {"a": 9, "b": null}}),
            ),
            (
                "labels of others",
                json!({"metadata": {"labels": {"mine": "1"}}}),
                json!({"metadata": {"labels": {"mine": "1", "yours": "2"}}}),
                json!({"metadata": {}}),
                json!({"metadata": {"labels": {"mine": null}}}),
            ),
            ("no labels", json!(null), json!({"metadata": {}}), json!({"metadata": {}}), json!({})),
        ] {
            assert_eq!(patch(Some(&last), &live, &wanted), expected, "{why}");
        }
        assert_eq!(patch(None, &json!({"a": 1}), &json!({"a": 1})), json!({}));
    }

    #[test]
    fn the_annotation_is_the_one_of_kubectl() {
        let manifest = json!({"kind": "K", "apiVersion": "v1", "metadata": {"name": "a<b"}});
        let text = "{\"apiVersion\":\"v1\",\"kind\":\"K\",\"metadata\":{\"annotations\":{},\"name\":\"a\\u003cb\"}}\n";
        let object = with_last_applied(&manifest);
        assert_eq!(object["metadata"]["annotations"][LAST_APPLIED], text);
        assert_eq!(with_last_applied(&object), object, "the record is not in the record");
        let mut expected = manifest;
        expected["metadata"]["annotations"] = json!({});
        assert_eq!(last_applied(&object), Some(expected));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3i64).prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn object() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[a-d]", value(), 0..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn applying_twice_changes_nothing(last in object(), live in object(), wanted in object()) {
            let mut live = without_nulls(&live);
            let first = patch(Some(&last), &live, &wanted);
            merge(&mut live, &first);
            prop_assert_eq!(patch(Some(&wanted), &live, &wanted), json!({}));
        }

        #[test]
        fn applied_fields_are_set_and_dropped_fields_are_removed(
            last in object(), live in object(), wanted in object()
        ) {
            let before = without_nulls(&live);
            let mut live = before.clone();
            merge(&mut live, &patch(Some(&last), &before, &wanted));
            for (key, value) in wanted.as_object().unwrap() {
                match value {
                    Value::Null => {}
                    Value::Object(_) => prop_assert!(live[key].is_object()),
                    other => prop_assert_eq!(&live[key], other),
                }
            }
            for (key, value) in last.as_object().unwrap() {
                if !value.is_null() && wanted.get(key).is_none_or(Value::is_null) {
                    prop_assert!(live.get(key).is_none(), "{} is still there", key);
                }
            }
            for (key, value) in before.as_object().unwrap() {
                if last.get(key).is_none_or(Value::is_null) && wanted.get(key).is_none() {
                    prop_assert_eq!(live.get(key), Some(value), "a field of others");
                }
            }
        }
    }
}
