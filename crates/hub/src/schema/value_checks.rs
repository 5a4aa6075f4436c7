//! Validates single values: strings, numbers, counts and enumerations.

use serde_json::{Number, Value};

use super::node::SchemaNode;
use super::validate::ValidationResult;
use super::{FieldError, FieldReason, display_path, go_float, quote};

fn field_or_root(path: &str) -> &str {
    display_path(path.trim_start_matches('.'))
}

/// Checks length and pattern. Only the first error is reported.
pub(super) fn check_text(node: &SchemaNode, text: &str, path: &str, out: &mut ValidationResult) {
    let limits = &node.limits;
    if limits.max_length.is_none() && limits.min_length.is_none() && node.pattern.is_none() {
        return;
    }
    let length = text.chars().count() as u64;
    let error = if let Some(max) = limits.max_length.filter(|max| length > *max) {
        FieldError::too_long(field_or_root(path), max)
    } else if let Some(min) = limits.min_length.filter(|min| length < *min) {
        let detail = format!("{path} in body should be at least {min} chars long");
        FieldError::invalid(field_or_root(path), text, detail)
    } else if node.pattern.as_ref().is_some_and(|pattern| !pattern.is_match(text)) {
        let detail = format!("{path} in body should match '{}'", node.pattern_text);
        FieldError::invalid(field_or_root(path), text, detail)
    } else {
        return;
    };
    out.errors.push(error);
}

/// Checks the format of a string.
pub(super) fn check_format(node: &SchemaNode, text: &str, path: &str, out: &mut ValidationResult) {
    if let Some(format) = node.format.as_ref().filter(|format| !format.matches(text)) {
        let detail = format!("{path} in body must be of type {}: {}", format.name(), quote(text));
        let value = Some(text.into());
        out.errors.push(FieldError::new(
            field_or_root(path),
            FieldReason::TypeInvalid,
            value,
            detail,
        ));
    }
}

/// Checks the range of a number and `multipleOf`. kube-apiserver truncates the bounds of integers.
pub(super) fn check_number(
    node: &SchemaNode,
    number: &Number,
    value: &Value,
    path: &str,
    out: &mut ValidationResult,
) {
    let Some(float) = number.as_f64() else { return };
    let cut = |bound: f64| if number.is_f64() { bound } else { bound.trunc() };
    let limits = &node.limits;
    let mut wrong = |what: String| {
        let detail = format!("{path} in body should be {what}");
        out.errors.push(FieldError::invalid(field_or_root(path), value.clone(), detail));
    };
    let show = |bound: f64| if number.is_f64() { go_float(bound) } else { format!("{bound}") };
    if let Some(minimum) = limits.minimum.map(cut) {
        if limits.exclusive_minimum && float <= minimum {
            wrong(format!("greater than {}", show(minimum)));
        } else if float < minimum {
            wrong(format!("greater than or equal to {}", show(minimum)));
        }
    }
    if let Some(maximum) = limits.maximum.map(cut) {
        if limits.exclusive_maximum && float >= maximum {
            wrong(format!("less than {}", show(maximum)));
        } else if float > maximum {
            wrong(format!("less than or equal to {}", show(maximum)));
        }
    }
    if let Some(factor) = limits.multiple_of.map(cut) {
        if factor == 0.0 {
            let what = format!("factor MultipleOf declared for {path} must be positive: 0");
            out.errors.push(FieldError::invalid(field_or_root(path), 0, what));
        } else if (float / factor).fract() != 0.0 {
            wrong(format!("a multiple of {}", show(factor)));
        }
    }
}

/// Checks the number of items.
pub(super) fn check_item_count(
    node: &SchemaNode,
    count: usize,
    path: &str,
    out: &mut ValidationResult,
) {
    let size = count as u64;
    if let Some(min) = node.limits.min_items.filter(|min| size < *min) {
        let detail = format!("{path} in body should have at least {min} items");
        out.errors.push(FieldError::invalid(field_or_root(path), size, detail));
    }
    if let Some(max) = node.limits.max_items.filter(|max| size > *max) {
        out.errors.push(FieldError::too_many(field_or_root(path), count, max));
    }
}

/// Checks the number of properties.
pub(super) fn check_field_count(
    node: &SchemaNode,
    count: usize,
    path: &str,
    out: &mut ValidationResult,
) {
    let size = count as u64;
    if let Some(min) = node.limits.min_properties.filter(|min| size < *min) {
        let detail = format!("{path} in body should have at least {min} properties");
        out.errors.push(FieldError::invalid(field_or_root(path), size, detail));
    }
    if let Some(max) = node.limits.max_properties.filter(|max| size > *max) {
        out.errors.push(FieldError::too_many(field_or_root(path), count, max));
    }
}

/// Checks that a value is in the enumeration.
pub(super) fn check_enum(node: &SchemaNode, value: &Value, path: &str, out: &mut ValidationResult) {
    if node.enumeration.is_empty()
        || node.enumeration.iter().any(|one| equals_enum_value(one, value))
    {
        return;
    }
    let texts: Vec<String> = node
        .enumeration
        .iter()
        .map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    out.errors.push(FieldError::not_supported(field_or_root(path), value.clone(), &texts));
}

/// Numbers are compared by value; null never matches.
fn equals_enum_value(one: &Value, value: &Value) -> bool {
    match (one, value) {
        (Value::Null, _) => false,
        (Value::Number(a), Value::Number(b)) if a.is_f64() => a.as_f64() == b.as_f64(),
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64().map(f64::trunc),
        _ => one == value,
    }
}
