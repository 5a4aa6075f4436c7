//! Objects that `kubectl apply` managed on the client's side: the annotation with what it applied last.
//!
//! Server-side apply by kubectl takes over what that annotation says it applied, and keeps the annotation up to date, so
//! that both kinds of apply can be mixed. Pure; called by [`super::FieldManagement::apply`].

use serde_json::Value;

use super::compare::compare;
use super::field_set::FieldSet;
use super::merge_schema::MergeSchema;
use super::owned_fields::field_set;
use super::typed::validate;

/// The manager name of `kubectl apply --server-side`.
pub(super) const KUBECTL: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Annotations may have this size together.
const MAX_ANNOTATION_BYTES: usize = 256 << 10;

fn annotation(object: &Value) -> Option<&str> {
    let text = object["metadata"]["annotations"][ANNOTATION].as_str()?;
    (!text.is_empty()).then_some(text)
}

/// The fields that were last applied and have not changed since; `None` if the object was not applied like that.
pub(super) fn unchanged_fields(
    schema: &MergeSchema,
    api_version: &str,
    live: &Value,
) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    let fits = |object| validate(schema, schema.root(), object, false).is_empty();
    if last["apiVersion"] != api_version || !fits(&last) || !fits(live) {
        return None;
    }
    let compared = compare(schema, &last, live).ok()?;
    let changed = compared.modified.union(&compared.added).union(&compared.removed);
    Some(field_set(schema, schema.root(), &last).difference(&changed))
}

/// Writes what was applied into the annotation, if the object has it. Too large an object removes it.
pub(super) fn refresh(object: &mut Value, applied: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut applied = applied.clone();
    let others = applied["metadata"].get_mut("annotations").and_then(Value::as_object_mut);
    others.map(|others| others.remove(ANNOTATION));
    let text = format!("{}\n", super::path_element::escaped_json(&applied));
    let Some(annotations) = object["metadata"]["annotations"].as_object_mut() else { return };
    annotations.insert(ANNOTATION.to_owned(), text.into());
    let sizes =
        annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
    if sizes.sum::<usize>() > MAX_ANNOTATION_BYTES {
        annotations.remove(ANNOTATION);
    }
}
