//! The data of a template: the ControllerConfig as Go's struct, and a few more fields.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gotmpl::Value;
use serde_json::Value as Json;

use crate::api::names::path;
use crate::go::types::{CONTROLLER_CONFIG, GoType, GoTypes};
use crate::tls_profile::TlsParameters;

/// The fields that are maps in Go. A template may read missing keys of them.
pub(super) const MAPS: [&str; 2] = ["Images", "Constants"];

/// The data for templates.
pub(super) fn data(spec: &Json, pull_secret: &str, tls: &TlsParameters) -> Value {
    let Value::Map(fields) =
        typed(&CONTROLLER_CONFIG, &GoType::Struct("ControllerConfigSpec"), spec)
    else {
        return Value::Nil;
    };
    let mut fields = BTreeMap::clone(&fields);
    let mut set = |name: &str, value: Value| fields.insert(name.into(), value);
    set("PullSecret", pull_secret.into());
    set("TLSMinVersion", tls.min_version.as_str().into());
    set("TLSCipherSuites", list(tls.cipher_suites.iter().map(|suite| suite.as_str().into())));
    set("Constants", map([("APIServerURLFile".to_owned(), path::API_SERVER_URL.into())]));
    fields.into()
}

/// Converts a JSON value to what Go's type holds. Unset fields are zero.
///
/// A nil pointer is an empty map: it is false, and reading a field of it is an error, as in Go.
fn typed(types: &GoTypes, kind: &GoType, json: &Json) -> Value {
    match kind {
        GoType::Bool => Value::Bool(json.as_bool().unwrap_or_default()),
        GoType::Int { .. } => Value::Int(json.as_i64().unwrap_or_default()),
        GoType::Float => Value::Float(json.as_f64().unwrap_or_default()),
        GoType::String
        | GoType::Quantity
        | GoType::Amount
        | GoType::Duration
        | GoType::TimeOrDuration => json.as_str().unwrap_or_default().into(),
        GoType::Bytes => {
            let bytes = json.as_str().and_then(|text| STANDARD.decode(text).ok());
            list(bytes.unwrap_or_default().into_iter().map(|byte| Value::Uint(byte.into())))
        }
        GoType::Any => untyped(json),
        GoType::List(inner) => {
            list(json.as_array().into_iter().flatten().map(|item| typed(types, inner, item)))
        }
        GoType::Map(inner) => map(json
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, item)| (key.clone(), typed(types, inner, item)))),
        GoType::Pointer(_) if json.is_null() => map([]),
        GoType::Pointer(inner) => typed(types, inner, json),
        GoType::Struct(name) => map(types.fields(name).iter().map(|field| {
            let value = json.get(field.json).unwrap_or(&Json::Null);
            (field.name.to_owned(), typed(types, &field.kind, value))
        })),
    }
}

/// Converts a JSON value to what Go's `interface {}` holds.
pub(super) fn untyped(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(is) => Value::Bool(*is),
        Json::Number(number) => number
            .as_i64()
            .map_or_else(|| Value::Float(number.as_f64().unwrap_or_default()), Value::Int),
        Json::String(text) => text.as_str().into(),
        Json::Array(items) => list(items.iter().map(untyped)),
        Json::Object(entries) => {
            map(entries.iter().map(|(key, item)| (key.clone(), untyped(item))))
        }
    }
}

pub(super) fn list(items: impl IntoIterator<Item = Value>) -> Value {
    items.into_iter().collect::<Vec<_>>().into()
}

fn map(entries: impl IntoIterator<Item = (String, Value)>) -> Value {
    entries.into_iter().collect::<BTreeMap<String, Value>>().into()
}
