//! The `scale` subresource: the number of replicas of an object as an object of its own, whatever its kind.
//!
//! Pure. Called by the router's handlers and by the admission.

use serde_json::{Value, json};

use crate::kind_registry::{ResourceKind, ScalePaths};
use crate::schema::FieldError;

/// Returns the `Scale` of an object. Without a number of replicas it has none either.
#[must_use]
pub fn scale_of(paths: &ScalePaths, object: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    let mut spec = json!({});
    if let Some(replicas) = number(&paths.spec_replicas).filter(|replicas| *replicas != 0) {
        spec["replicas"] = replicas.into();
    }
    let mut status = json!({"replicas": number(&paths.status_replicas).unwrap_or(0)});
    let selector = paths.label_selector.as_ref().and_then(|pointer| object.pointer(pointer));
    if let Some(selector) = selector.and_then(Value::as_str).filter(|text| !text.is_empty()) {
        status["selector"] = selector.into();
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": metadata, "spec": spec, "status": status,
    })
}

/// Whether an object says how many replicas it wants.
#[must_use]
pub fn has_replicas(paths: &ScalePaths, object: &Value) -> bool {
    object.pointer(&paths.spec_replicas).is_some_and(Value::is_i64)
}

/// Returns an object with another number of replicas.
#[must_use]
pub fn with_replicas(paths: &ScalePaths, object: &Value, replicas: i64) -> Value {
    let mut new = object.clone();
    let mut place = &mut new;
    for key in paths.spec_replicas.split('/').skip(1) {
        let key = key.replace("~1", "/").replace("~0", "~");
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[key.as_str()];
    }
    *place = replicas.into();
    new
}

/// Returns what is wrong with the numbers of replicas of an object.
#[must_use]
pub fn validate(kind: &ResourceKind, object: &Value) -> Vec<FieldError> {
    let Some(paths) = &kind.scale else { return Vec::new() };
    let mut errors = Vec::new();
    for pointer in [&paths.spec_replicas, &paths.status_replicas] {
        let Some(value) = object.pointer(pointer).filter(|value| !value.is_null()) else {
            continue;
        };
        let field = pointer.replace('/', ".");
        match value.as_i64() {
            None => {
                let detail = format!("{field} accessor error: {value} is not an integer");
                errors.push(FieldError::invalid(field, 0, detail));
            }
            Some(number) if number < 0 => {
                errors.push(FieldError::invalid(field, number, "should be a non-negative integer"));
            }
            Some(number) if number > i64::from(i32::MAX) => {
                let detail = format!("should be less than or equal to {}", i32::MAX);
                errors.push(FieldError::invalid(field, number, detail));
            }
            Some(_) => {}
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> ScalePaths {
        ScalePaths {
            spec_replicas: "/spec/size".into(),
            status_replicas: "/status/size".into(),
            label_selector: Some("/status/selector".into()),
        }
    }

    #[test]
    fn an_object_has_a_scale() {
        let object = json!({
            "metadata": {"name": "a", "uid": "u", "labels": {"x": "y"}},
            "spec": {"size": 3}, "status": {"size": 2, "selector": "a=b"},
        });
        let scale = scale_of(&paths(), &object);
        assert_eq!(scale["metadata"], json!({"name": "a", "uid": "u"}));
        assert_eq!(scale["spec"], json!({"replicas": 3}));
        assert_eq!(scale["status"], json!({"replicas": 2, "selector": "a=b"}));
        assert_eq!(with_replicas(&paths(), &object, 5)["spec"], json!({"size": 5}));
        assert_eq!(with_replicas(&paths(), &json!({}), 5), json!({"spec": {"size": 5}}));
        assert!(has_replicas(&paths(), &object) && !has_replicas(&paths(), &json!({})));
    }

    #[test]
    fn numbers_of_replicas_have_bounds() {
        let kind = crate::built_in::kinds().remove(0);
        let kind = ResourceKind { scale: Some(paths()), ..kind };
        for (size, count) in
            [(json!(1), 0), (json!(-1), 1), (json!(1_u64 << 40), 1), (json!("x"), 1)]
        {
            assert_eq!(validate(&kind, &json!({"spec": {"size": size}})).len(), count, "{size}");
        }
    }
}
