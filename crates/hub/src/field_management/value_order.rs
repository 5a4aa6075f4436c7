//! Equality and order of JSON values as field management defines them: whole numbers and floats compare by value, and
//! the types are ordered number, string, boolean, list, object, null.
//!
//! Pure. Called by [`super::path_element`] and the walks over objects.

use std::cmp::Ordering;

use serde_json::{Map, Number, Value};

/// Whether two values are the same, numbers by value.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right).is_eq(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| equal(l, r))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, l)| right.get(key).is_some_and(|r| equal(l, r)))
        }
        _ => left == right,
    }
}

/// Orders two values.
pub(super) fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => compare_lists(left, right),
        (Value::Object(left), Value::Object(right)) => compare_objects(left, right),
        _ => rank(left).cmp(&rank(right)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn compare_numbers(left: &Number, right: &Number) -> Ordering {
    match (left.as_i64(), right.as_i64()) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => {
            let float = |number: &Number| number.as_f64().unwrap_or_default();
            float(left).total_cmp(&float(right))
        }
    }
}

fn compare_lists(left: &[Value], right: &[Value]) -> Ordering {
    let different = left.iter().zip(right).map(|(l, r)| compare(l, r)).find(|order| order.is_ne());
    different.unwrap_or_else(|| left.len().cmp(&right.len()))
}

/// Objects are ordered by their sorted fields, names before values.
fn compare_objects(left: &Map<String, Value>, right: &Map<String, Value>) -> Ordering {
    let pairs = left.iter().zip(right);
    let mut orders = pairs.map(|((left_key, left), (right_key, right))| {
        left_key.cmp(right_key).then_with(|| compare(left, right))
    });
    orders.find(|order| order.is_ne()).unwrap_or_else(|| left.len().cmp(&right.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_ordered_by_type_then_value() {
        let sorted = [
            json!(-1),
            json!(0.5),
            json!(1),
            json!(2.0),
            json!(""),
            json!("a"),
            json!(false),
            json!(true),
            json!([]),
            json!([1]),
            json!([1, 0]),
            json!({}),
            json!({"a": 1}),
            json!({"a": 1, "b": 0}),
            json!({"b": 0}),
            Value::Null,
        ];
        for (i, left) in sorted.iter().enumerate() {
            for (j, right) in sorted.iter().enumerate() {
                assert_eq!(compare(left, right), i.cmp(&j), "{left} and {right}");
                assert_eq!(equal(left, right), i == j, "{left} and {right}");
            }
        }
        assert!(equal(&json!({"a": [1.0]}), &json!({"a": [1]})));
    }
}
