//! Go's `encoding/json` over a table of types, and MCO's merge of two structs.
//!
//! Between decoding and encoding, a struct is a JSON object with exactly the fields that are not zero
//! (and pointers that are not nil); durations are nanoseconds. So a field is set if it is present.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::duration;
use super::types::{GoField, GoType, GoTypes};
use crate::api::QuantityValue;

/// Why a value does not fit its type, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    /// The field, as a path: `authentication.x509`.
    pub field: String,
    /// What is wrong.
    pub message: String,
}

/// The position of the decoder: the innermost struct and the path of fields.
struct DecodePosition<'a> {
    types: &'a GoTypes,
    holder: &'static str,
    path: Vec<&'static str>,
}

/// Decodes a struct. Unknown fields are ignored; `null` counts as unset.
pub fn decode(types: &GoTypes, root: &'static str, value: &Value) -> Result<Value, DecodeError> {
    let mut place = DecodePosition { types, holder: root, path: Vec::new() };
    Ok(place.read(&GoType::Struct(root), value)?.unwrap_or_else(|| Value::Object(Map::new())))
}

impl DecodePosition<'_> {
    /// The decoded value, or `None` if it is zero.
    fn read(&mut self, kind: &GoType, value: &Value) -> Result<Option<Value>, DecodeError> {
        if value.is_null() {
            // A duration has its own decoder, which requires a string.
            return match kind {
                GoType::Duration => Err(self.error("time: invalid duration \"\"".to_owned())),
                _ => Ok(None),
            };
        }
        let kept = |is_zero: bool| Ok((!is_zero).then(|| value.clone()));
        match (kind, value) {
            (GoType::Pointer(inner), _) => Ok(Some(match self.read(inner, value)? {
                Some(read) => read,
                None => zero(inner),
            })),
            (GoType::Any, _) => kept(false),
            (GoType::Bool, Value::Bool(is)) => kept(!is),
            (GoType::String, Value::String(text)) => kept(text.is_empty()),
            // Kubernetes falls back to YAML if JSON does not fit, and YAML strings need no quotes.
            (GoType::String, Value::Bool(_) | Value::Number(_)) => {
                Ok(Some(value.to_string().into()))
            }
            (GoType::Float, Value::Number(number)) => kept(number.as_f64() == Some(0.0)),
            (GoType::Int { name, min, max }, Value::Number(number)) => {
                let whole = number
                    .as_i64()
                    .map(i128::from)
                    .or_else(|| number.as_u64().map(i128::from))
                    .filter(|whole| (min..=max).contains(&whole));
                match whole {
                    Some(whole) => kept(whole == 0),
                    None => Err(self.mismatch(&format!("number {number}"), name)),
                }
            }
            (GoType::Bytes, Value::String(text)) => match STANDARD.decode(text) {
                Ok(bytes) => kept(bytes.is_empty()),
                Err(_) => Err(self.error("illegal base64 data".to_owned())),
            },
            (GoType::Duration | GoType::TimeOrDuration, Value::String(text)) => {
                let Some(nanoseconds) = duration::parse(text) else {
                    return Err(self.error(format!("time: invalid duration {text:?}")));
                };
                if *kind == GoType::TimeOrDuration {
                    return Ok(Some(Value::String(duration::format(nanoseconds))));
                }
                Ok((nanoseconds != 0).then(|| nanoseconds.into()))
            }
            (GoType::TimeOrDuration, Value::Number(number)) if number.is_i64() => {
                kept(number.as_i64() == Some(0))
            }
            (GoType::Quantity, Value::String(_) | Value::Number(_)) => Ok(None),
            (GoType::Amount, _) => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                match text.parse::<QuantityValue>() {
                    Ok(amount) => Ok(Some(amount.to_string().into())),
                    Err(error) => Err(self.error(format!("{text} is no quantity: {error}"))),
                }
            }
            (GoType::List(inner), Value::Array(items)) => {
                let read: Result<Vec<Value>, _> = items
                    .iter()
                    .map(|item| {
                        Ok(self.read(inner, item)?.unwrap_or_else(|| empty_item(inner, item)))
                    })
                    .collect();
                Ok(Some(Value::Array(read?)).filter(|list| list != &Value::Array(Vec::new())))
            }
            (GoType::Map(inner), Value::Object(entries)) => {
                let mut read = Map::new();
                for (key, item) in entries {
                    let item = self.read(inner, item)?.unwrap_or_else(|| empty_item(inner, item));
                    read.insert(key.clone(), item);
                }
                Ok((!read.is_empty()).then_some(Value::Object(read)))
            }
            (GoType::Struct(name), Value::Object(entries)) => self.read_struct(name, entries),
            _ => Err(self.mismatch(json_name(value), &go_name(kind))),
        }
    }

    fn read_struct(
        &mut self,
        name: &'static str,
        entries: &Map<String, Value>,
    ) -> Result<Option<Value>, DecodeError> {
        let types = self.types;
        let outer = std::mem::replace(&mut self.holder, name);
        let mut read = Map::new();
        for (key, value) in entries {
            let Some(field) = find(types.fields(name), key) else { continue };
            self.path.push(field.json);
            // An embedded field is never decoded as YAML, so it has to be a JSON string.
            let is_embedded = matches!(field.json, "apiVersion" | "kind");
            if is_embedded && !value.is_string() && !value.is_null() {
                return Err(self.mismatch(json_name(value), "string"));
            }
            // Go distinguishes an empty list or map from nil where it writes it.
            let is_kept = !field.omit_empty
                && !value.is_null()
                && matches!(field.kind, GoType::List(_) | GoType::Map(_));
            let empty = is_kept.then(|| zero(&field.kind));
            if let Some(value) = self.read(&field.kind, value)?.or(empty) {
                read.insert(field.json.to_owned(), value);
            }
            self.path.pop();
        }
        self.holder = outer;
        Ok((!read.is_empty()).then_some(Value::Object(read)))
    }

    fn mismatch(&self, found: &str, expected: &str) -> DecodeError {
        let place = if self.path.is_empty() {
            format!("Go value of type {expected}")
        } else {
            format!("Go struct field {}.{} of type {expected}", self.holder, self.path.join("."))
        };
        self.error(format!("json: cannot unmarshal {found} into {place}"))
    }

    fn error(&self, message: String) -> DecodeError {
        DecodeError { field: self.path.join("."), message }
    }
}

/// The field of this name. As in Go, an exact match wins over one that differs in case.
fn find<'a>(fields: &'a [GoField], key: &str) -> Option<&'a GoField> {
    fields
        .iter()
        .find(|field| field.json == key)
        .or_else(|| fields.iter().find(|field| field.json.eq_ignore_ascii_case(key)))
}

fn json_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn go_name(kind: &GoType) -> String {
    match kind {
        GoType::Bool => "bool".to_owned(),
        GoType::Int { name, .. } => (*name).to_owned(),
        GoType::Float => "float64".to_owned(),
        GoType::String
        | GoType::Duration
        | GoType::TimeOrDuration
        | GoType::Quantity
        | GoType::Amount => "string".to_owned(),
        GoType::Bytes => "[]uint8".to_owned(),
        GoType::Any => "interface {}".to_owned(),
        GoType::List(inner) => format!("[]{}", go_name(inner)),
        GoType::Map(inner) => format!("map[string]{}", go_name(inner)),
        GoType::Pointer(inner) => go_name(inner),
        GoType::Struct(name) => format!("v1beta1.{name}"),
    }
}

/// The value of a zero item. For lists and maps, nil differs from empty.
fn empty_item(kind: &GoType, item: &Value) -> Value {
    match kind {
        GoType::List(_) | GoType::Map(_) if item.is_null() => Value::Null,
        _ => zero(kind),
    }
}

/// The decoded form of an unset value.
fn zero(kind: &GoType) -> Value {
    match kind {
        GoType::Bool => Value::Bool(false),
        GoType::Int { .. } | GoType::Float | GoType::Duration | GoType::TimeOrDuration => 0.into(),
        GoType::String | GoType::Bytes => Value::String(String::new()),
        GoType::Quantity | GoType::Amount => Value::String("0".to_owned()),
        GoType::Any | GoType::Pointer(_) => Value::Null,
        GoType::List(_) => Value::Array(Vec::new()),
        GoType::Map(_) | GoType::Struct(_) => Value::Object(Map::new()),
    }
}

/// Merges `over` into `under` by the rules of MCO's library: non-zero values win, maps are merged by
/// key, lists are replaced. A pointer to a zero value replaces a nil pointer but no other one.
pub fn merge(types: &GoTypes, root: &'static str, under: &mut Value, over: &Value) {
    merge_kind(types, &GoType::Struct(root), under, over);
}

fn merge_kind(types: &GoTypes, kind: &GoType, under: &mut Value, over: &Value) {
    match (kind, over) {
        (GoType::Struct(name), Value::Object(over)) => {
            let Value::Object(under) = under else { return };
            for field in types.fields(name) {
                let Some(over) = over.get(field.json) else { continue };
                match under.get_mut(field.json) {
                    Some(under) => merge_kind(types, &field.kind, under, over),
                    None => {
                        under.insert(field.json.to_owned(), over.clone());
                    }
                }
            }
        }
        (GoType::Map(_), Value::Object(over)) => {
            let Value::Object(under) = under else { return };
            under.extend(over.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        (GoType::Pointer(inner), over) if **inner == GoType::Any || !is_struct(inner) => {
            if *over != zero(inner) {
                *under = over.clone();
            }
        }
        (GoType::Pointer(inner), over) => merge_kind(types, inner, under, over),
        _ => *under = over.clone(),
    }
}

fn is_struct(kind: &GoType) -> bool {
    matches!(kind, GoType::Struct(_) | GoType::Map(_))
}

/// Encodes a struct like Go: fields in the order of the table, empty ones omitted if the type has
/// `omitempty`.
#[must_use]
pub fn encode(types: &GoTypes, root: &'static str, kept: &Value) -> Value {
    encode_kind(types, &GoType::Struct(root), Some(kept))
}

/// Whether the type is a struct in Go: a struct is never empty.
fn is_never_empty(kind: &GoType) -> bool {
    matches!(kind, GoType::Struct(_) | GoType::Quantity | GoType::Duration | GoType::TimeOrDuration)
}

fn encode_kind(types: &GoTypes, kind: &GoType, kept: Option<&Value>) -> Value {
    match (kind, kept) {
        (GoType::Struct(name), kept) => {
            let mut written = Map::new();
            for field in types.fields(name) {
                let value = kept.and_then(|kept| kept.get(field.json));
                if value.is_none() && field.omit_empty && !is_never_empty(&field.kind) {
                    continue;
                }
                written.insert(field.json.to_owned(), encode_kind(types, &field.kind, value));
            }
            Value::Object(written)
        }
        (GoType::Duration, kept) => {
            duration::format(kept.and_then(Value::as_i64).unwrap_or_default()).into()
        }
        (GoType::Pointer(inner), Some(_)) => encode_kind(types, inner, kept),
        (GoType::List(inner), Some(Value::Array(items))) => {
            items.iter().map(|item| encode_kind(types, inner, Some(item))).collect()
        }
        (GoType::Map(inner), Some(Value::Object(items))) => Value::Object(
            items
                .iter()
                .map(|(key, item)| (key.clone(), encode_kind(types, inner, Some(item))))
                .collect(),
        ),
        (GoType::List(_) | GoType::Map(_) | GoType::Pointer(_), None) => Value::Null,
        (kind, None) => zero(kind),
        (_, Some(kept)) => kept.clone(),
    }
}
