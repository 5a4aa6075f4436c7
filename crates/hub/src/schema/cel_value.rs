//! Converts JSON to CEL values. The schema says which strings are times, durations or bytes.

use std::collections::HashMap;
use std::sync::Arc;

use cel::Value as Cel;
use cel::objects::{Key, Map as CelMap};
use serde_json::{Map, Value};

use super::cel_env;
use super::format::{self, FormatKind};
use super::node::{AdditionalProperties, ListKind, SchemaNode};

/// Converts a part of an object.
pub(super) fn convert(node: &SchemaNode, value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => {
            let float = node.type_name == "number" || number.as_i64().is_none();
            match (float, number.as_i64()) {
                (false, Some(int)) => Cel::Int(int),
                _ => integral(node, number.as_f64().unwrap_or_default()),
            }
        }
        Value::String(text) => string(node, text),
        Value::Array(items) => list(node, items),
        Value::Object(fields) => object(node, fields),
    }
}

/// Converts the object itself. Rules see only the name in its metadata.
pub(super) fn convert_root(node: &SchemaNode, value: &Value) -> Cel {
    let Value::Object(fields) = value else { return convert(node, value) };
    let mut fields = fields.clone();
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
        metadata.retain(|key, _| key == "name" || key == "generateName");
    }
    object(node, &fields)
}

/// A float such as `1.0` in an integer field is an integer.
#[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
fn integral(node: &SchemaNode, float: f64) -> Cel {
    if node.type_name == "integer" && float.fract() == 0.0 && float.abs() < 9.0e18 {
        return Cel::Int(float as i64);
    }
    Cel::Float(float)
}

fn string(node: &SchemaNode, text: &str) -> Cel {
    let plain = || Cel::String(Arc::new(text.to_owned()));
    match node.format.as_ref().map(format::StringFormat::kind) {
        Some(FormatKind::Bytes) => {
            format::decode_base64(text).map_or_else(plain, |bytes| Cel::Bytes(Arc::new(bytes)))
        }
        Some(FormatKind::DateTime | FormatKind::Date) => {
            cel_env::call("timestamp", text).unwrap_or_else(plain)
        }
        Some(FormatKind::Duration) => cel_env::call("duration", text).unwrap_or_else(plain),
        _ => plain(),
    }
}

/// Sorts sets and maps, so that their order does not affect equality.
fn list(node: &SchemaNode, items: &[Value]) -> Cel {
    let untyped = SchemaNode::default();
    let part = node.items.as_deref().unwrap_or(&untyped);
    let mut items: Vec<&Value> = items.iter().collect();
    match node.list {
        ListKind::Atomic => {}
        ListKind::Set => items.sort_by_cached_key(ToString::to_string),
        ListKind::Map(_) => items.sort_by_cached_key(|item| node.item_key(item)),
    }
    Cel::List(Arc::new(items.into_iter().map(|item| convert(part, item)).collect()))
}

fn object(node: &SchemaNode, fields: &Map<String, Value>) -> Cel {
    let untyped = SchemaNode::default();
    let map_like = matches!(node.additional, AdditionalProperties::Schema(_));
    let entries: HashMap<Key, Cel> = fields
        .iter()
        .map(|(name, value)| {
            let part = node.field(name).unwrap_or(&untyped);
            let key = if map_like { name.clone() } else { escape(name) };
            (Key::String(Arc::new(key)), convert(part, value))
        })
        .collect();
    Cel::Map(CelMap { map: Arc::new(entries) })
}

/// Escapes a field name as a CEL identifier.
pub(crate) fn escape(name: &str) -> String {
    const RESERVED: [&str; 21] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains(['.', '-', '/', '$']) && !name.contains("__") {
        return name.to_owned();
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}
