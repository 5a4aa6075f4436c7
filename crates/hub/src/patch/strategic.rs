//! Strategic merge patch: a merge patch that knows which lists are sets and maps.
//!
//! Supported directives: `$patch: replace`, `$patch: delete`, `$retainKeys`,
//! `$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>`.

use serde_json::{Map, Value};

use super::merge_rules::{ListMerge, StrategicRules};
use super::strategic_list::{self, merge_list};
use super::{PatchError, json_type};
use crate::object_limits::shorten_value;

pub(super) const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

pub(super) fn apply(
    target: &Value,
    patch: &Value,
    rules: &StrategicRules,
) -> Result<Value, PatchError> {
    let fields = match patch {
        Value::Object(fields) => fields.clone(),
        Value::Null => return Ok(target.clone()),
        other => {
            return Err(PatchError::Malformed(format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                json_type(other)
            )));
        }
    };
    let original = target.as_object().cloned().unwrap_or_default();
    merge_map(original, fields, rules).map(Value::Object)
}

/// Merges a patch into an object.
pub(super) fn merge_map(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    rules: &StrategicRules,
) -> Result<Map<String, Value>, PatchError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                return Ok(patch);
            }
            Some("delete") => return Ok(Map::new()),
            _ => return Err(unknown_directive(directive, &patch)),
        }
    }
    retain_keys(&mut original, &mut patch)?;
    set_element_order(&mut original, &mut patch, rules)?;
    for (key, value) in patch {
        if key.starts_with(DELETE_FROM) {
            let name = directive_field(&key, DELETE_FROM)?;
            delete_from_list(&mut original, &name, value)?;
        } else {
            merge_field(&mut original, key, value, rules)?;
        }
    }
    Ok(original)
}

fn merge_field(
    original: &mut Map<String, Value>,
    key: String,
    value: Value,
    rules: &StrategicRules,
) -> Result<(), PatchError> {
    if value.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let merged = match (original.remove(&key), value) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            Some(Value::Object(merge_map(old, new, rules.object(&key))?))
        }
        (Some(Value::Array(old)), Value::Array(new)) => match rules.list(&key) {
            ListMerge::Replace => Some(Value::Array(new)),
            how => Some(Value::Array(merge_list(old, new, how)?)),
        },
        (_, new) => without_directives(without_nulls(new)),
    };
    if let Some(merged) = merged {
        original.insert(key, merged);
    }
    Ok(())
}

/// `$deleteFromPrimitiveList/x: [...]` removes values from `x`.
fn delete_from_list(
    original: &mut Map<String, Value>,
    name: &str,
    value: Value,
) -> Result<(), PatchError> {
    match (original.get_mut(name), value) {
        (Some(Value::Array(old)), Value::Array(gone)) if !(old.is_empty() && gone.is_empty()) => {
            strategic_list::element_type(&[old, &gone])?;
            let gone = strategic_list::key_positions(&gone, ListMerge::Values);
            old.retain(|item| !gone.contains_key(&item.to_string()));
        }
        (_, Value::Null) => {
            original.remove(name);
        }
        _ => {}
    }
    Ok(())
}

/// `$retainKeys: [...]` drops all other fields. The patch itself may only have these.
fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), PatchError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let wrong = || PatchError::Malformed("invalid patch format of retainKeys".into());
    let keys: Vec<String> = match keys {
        Value::Array(keys) => keys.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => return Err(wrong()),
    };
    let keys: std::collections::HashSet<&str> = keys.iter().map(String::as_str).collect();
    let foreign = patch.iter().any(|(key, value)| {
        let exempt = value.is_null() || key.starts_with(DELETE_FROM) || key.starts_with(SET_ORDER);
        !exempt && !keys.contains(key.as_str())
    });
    if foreign {
        return Err(wrong());
    }
    original.retain(|key, _| keys.contains(key.as_str()));
    Ok(())
}

/// `$setElementOrder/x: [...]` merges `x` and sorts it in that order.
fn set_element_order(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    rules: &StrategicRules,
) -> Result<(), PatchError> {
    let orders: Vec<String> =
        patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for key in orders {
        let Some(order) = patch.remove(&key) else { continue };
        let order = list(order)?;
        let name = directive_field(&key, SET_ORDER)?;
        let old = original.get(&name).cloned().map(list).transpose()?;
        let new = patch.get(&name).cloned().map(list).transpose()?;
        let how = rules.list(&name);
        strategic_list::check_order(new.as_deref().unwrap_or_default(), &order, how)?;
        let merged = match (&old, new.clone()) {
            (Some(old), None) => old.clone(),
            (None, Some(new)) => {
                let kept = without_directives(Value::Array(new));
                list(kept.unwrap_or(Value::Array(Vec::new())))?
            }
            (Some(_), Some(new)) if how == ListMerge::Replace => new,
            (Some(old), Some(new)) => merge_list(old.clone(), new, how)?,
            (None, None) => continue,
        };
        let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
        strategic_list::element_type(&[&old, &new])?;
        let known = strategic_list::server_order(&old, &new, how);
        let ordered = strategic_list::reorder(merged, &order, &known, how)?;
        original.insert(name.clone(), ordered.into());
        patch.remove(&name);
    }
    Ok(())
}

fn list(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(PatchError::Failed(format!(
            "expected a []interface {{}}, but received a {}",
            go_type(&other)
        ))),
    }
}

/// Returns `x` of `$directive/x`.
fn directive_field(key: &str, directive: &str) -> Result<String, PatchError> {
    match key.split_once('/') {
        Some((before, field)) if before == directive => Ok(field.to_owned()),
        _ if directive == DELETE_FROM => {
            Err(PatchError::Malformed("invalid patch format of primitive list".into()))
        }
        _ => Err(PatchError::Malformed("invalid patch format of setElementOrder list".into())),
    }
}

/// Drops objects that contain a directive; `None` if the value is one.
pub(super) fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = fields.into_iter().filter_map(|(k, v)| Some((k, without_directives(v)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => {
            Some(Value::Array(items.into_iter().filter_map(without_directives).collect()))
        }
        other => Some(other),
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

pub(super) fn unknown_directive(directive: &Value, map: &Map<String, Value>) -> PatchError {
    let text = shorten_value(&go_print(directive));
    let map = shorten_value(&go_print(&Value::Object(map.clone())));
    PatchError::Failed(format!("unknown patch type: {text} in map: {map}"))
}

/// The type name that Go decodes a value into.
pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Formats a value like Go's `%v`: `map[a:1 b:[x y]]`.
#[must_use]
pub(super) fn go_print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => crate::schema::format_value(value),
        Value::Array(items) => {
            let texts: Vec<String> = items.iter().map(go_print).collect();
            format!("[{}]", texts.join(" "))
        }
        Value::Object(fields) => {
            let mut texts: Vec<String> =
                fields.iter().map(|(key, value)| format!("{key}:{}", go_print(value))).collect();
            texts.sort_unstable();
            format!("map[{}]", texts.join(" "))
        }
    }
}
