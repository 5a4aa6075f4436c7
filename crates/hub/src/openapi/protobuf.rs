//! Encodes an OpenAPI 2 document as protobuf, in the format of gnostic (`openapi.v2.Document`).
//!
//! kubectl up to 1.28, Argo CD and `OpenAPISchema()` of client-go read nothing else. The format has sixty message
//! types; the tables below have the fields that the hub's documents use, by the JSON name. A field that is in no table
//! is left out, so the tests compare the result with gnostic's own conversion of the same JSON. Pure; called by
//! `router::discovery_endpoints`.

use serde_json::{Map, Value};

/// Appends one field of a message.
type EncodeField = fn(&mut Vec<u8>, u32, &Value);

/// The fields of a message type: JSON name, field number and encoding.
type MessageFields = &'static [(&'static str, u32, EncodeField)];

/// A message type.
struct MessageType {
    fields: MessageFields,
    /// The field that holds `x-...`.
    extensions: u32,
}

const DOCUMENT: MessageType = MessageType {
    fields: &[
        ("swagger", 1, text),
        ("info", 2, |out, field, value| message(out, field, &INFO, value)),
        ("paths", 8, paths),
        ("definitions", 9, named_schemas),
    ],
    extensions: 16,
};

const INFO: MessageType =
    MessageType { fields: &[("title", 1, text), ("version", 2, text)], extensions: 7 };

const PATH_ITEM: MessageType = MessageType {
    fields: &[
        ("get", 2, operation),
        ("put", 3, operation),
        ("post", 4, operation),
        ("delete", 5, operation),
        ("patch", 8, operation),
        ("parameters", 9, parameters),
    ],
    extensions: 10,
};

const OPERATION: MessageType = MessageType {
    fields: &[
        ("description", 3, text),
        ("operationId", 5, text),
        ("produces", 6, texts),
        ("consumes", 7, texts),
        ("parameters", 8, parameters),
        ("responses", 9, responses),
    ],
    extensions: 13,
};

const BODY_PARAMETER: MessageType = MessageType {
    fields: &[
        ("description", 1, text),
        ("name", 2, text),
        ("in", 3, text),
        ("required", 4, flag),
        ("schema", 5, schema),
    ],
    extensions: 6,
};

/// Parameters in a query or a path.
const PLAIN_PARAMETER: MessageType = MessageType {
    fields: &[("required", 1, flag), ("in", 2, text), ("description", 3, text), ("name", 4, text)],
    extensions: 0,
};

const RESPONSE: MessageType = MessageType {
    fields: &[
        ("description", 1, text),
        // SchemaItem, whose first field is the schema.
        ("schema", 2, |out, field, value| nested(out, field, |out| schema(out, 1, value))),
    ],
    extensions: 5,
};

const SCHEMA: MessageType = MessageType {
    fields: &[
        ("$ref", 1, text),
        ("format", 2, text),
        ("title", 3, text),
        ("description", 4, text),
        ("default", 5, any),
        ("multipleOf", 6, number),
        ("maximum", 7, number),
        ("exclusiveMaximum", 8, flag),
        ("minimum", 9, number),
        ("exclusiveMinimum", 10, flag),
        ("maxLength", 11, integer),
        ("minLength", 12, integer),
        ("pattern", 13, text),
        ("maxItems", 14, integer),
        ("minItems", 15, integer),
        ("uniqueItems", 16, flag),
        ("maxProperties", 17, integer),
        ("minProperties", 18, integer),
        ("required", 19, texts),
        ("enum", 20, |out, field, value| each(value, |item| any(out, field, item))),
        ("additionalProperties", 21, additional_properties),
        // TypeItem and ItemsItem: lists in their first field.
        ("type", 22, |out, field, value| nested(out, field, |out| text(out, 1, value))),
        ("items", 23, |out, field, value| nested(out, field, |out| schema(out, 1, value))),
        ("properties", 25, named_schemas),
        ("externalDocs", 29, |out, field, value| message(out, field, &EXTERNAL_DOCS, value)),
        ("example", 30, any),
    ],
    extensions: 31,
};

const EXTERNAL_DOCS: MessageType =
    MessageType { fields: &[("description", 1, text), ("url", 2, text)], extensions: 3 };

/// Encodes a document that [`super::v2_document`] made.
#[must_use]
pub fn encode(document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    fields(&mut out, &DOCUMENT, document);
    out
}

/// Appends the fields of a message.
fn fields(out: &mut Vec<u8>, kind: &MessageType, value: &Value) {
    for (name, value) in entries(value) {
        if let Some((_, field, encode)) = kind.fields.iter().find(|(known, ..)| known == name) {
            encode(out, *field, value);
        } else if name.starts_with("x-") && kind.extensions > 0 {
            named(out, kind.extensions, name, |out| any(out, 2, value));
        }
    }
}

fn message(out: &mut Vec<u8>, field: u32, kind: &MessageType, value: &Value) {
    nested(out, field, |out| fields(out, kind, value));
}

fn schema(out: &mut Vec<u8>, field: u32, value: &Value) {
    message(out, field, &SCHEMA, value);
}

fn operation(out: &mut Vec<u8>, field: u32, value: &Value) {
    message(out, field, &OPERATION, value);
}

/// `Properties` and `Definitions`: schemas by name.
fn named_schemas(out: &mut Vec<u8>, field: u32, value: &Value) {
    nested(out, field, |out| {
        for (name, value) in entries(value) {
            named(out, 1, name, |out| schema(out, 2, value));
        }
    });
}

fn paths(out: &mut Vec<u8>, field: u32, value: &Value) {
    nested(out, field, |out| {
        for (path, item) in entries(value) {
            named(out, 2, path, |out| message(out, 2, &PATH_ITEM, item));
        }
    });
}

/// `ParametersItem`, which holds a `Parameter`, which holds a `BodyParameter` or a `NonBodyParameter`.
fn parameters(out: &mut Vec<u8>, field: u32, value: &Value) {
    each(value, |parameter| {
        nested(out, field, |out| nested(out, 1, |out| one_parameter(out, parameter)));
    });
}

fn one_parameter(out: &mut Vec<u8>, parameter: &Value) {
    // The number of the message in NonBodyParameter, and of the field `type` in that message.
    let (number, type_field) = match parameter["in"].as_str() {
        Some("body") => return message(out, 1, &BODY_PARAMETER, parameter),
        Some("path") => (4, 5),
        _ => (3, 6),
    };
    nested(out, 2, |out| {
        nested(out, number, |out| {
            fields(out, &PLAIN_PARAMETER, parameter);
            text(out, type_field, &parameter["type"]);
        });
    });
}

fn responses(out: &mut Vec<u8>, field: u32, value: &Value) {
    nested(out, field, |out| {
        for (code, response) in entries(value) {
            // ResponseValue, whose first field is the response.
            named(out, 1, code, |out| nested(out, 2, |out| message(out, 1, &RESPONSE, response)));
        }
    });
}

/// A schema or a flag, of which `false` must be written too.
fn additional_properties(out: &mut Vec<u8>, field: u32, value: &Value) {
    nested(out, field, |out| match value {
        Value::Bool(allowed) => {
            key(out, 2, 0);
            varint(out, u64::from(*allowed));
        }
        _ => schema(out, 1, value),
    });
}

/// A pair of a name and a value, as maps have them.
fn named(out: &mut Vec<u8>, field: u32, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
    nested(out, field, |out| {
        bytes(out, 1, name.as_bytes());
        value(out);
    });
}

/// Any value, as YAML. JSON is YAML too.
fn any(out: &mut Vec<u8>, field: u32, value: &Value) {
    nested(out, field, |out| bytes(out, 2, format!("{value}\n").as_bytes()));
}

fn text(out: &mut Vec<u8>, field: u32, value: &Value) {
    if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
        bytes(out, field, text.as_bytes());
    }
}

fn texts(out: &mut Vec<u8>, field: u32, value: &Value) {
    each(value, |item| {
        if let Some(text) = item.as_str() {
            bytes(out, field, text.as_bytes());
        }
    });
}

fn flag(out: &mut Vec<u8>, field: u32, value: &Value) {
    if value == &Value::Bool(true) {
        key(out, field, 0);
        varint(out, 1);
    }
}

fn integer(out: &mut Vec<u8>, field: u32, value: &Value) {
    if let Some(number) = value.as_i64().filter(|number| *number != 0) {
        key(out, field, 0);
        varint(out, number.cast_unsigned());
    }
}

fn number(out: &mut Vec<u8>, field: u32, value: &Value) {
    if let Some(number) = value.as_f64().filter(|number| number.to_bits() != 0) {
        key(out, field, 1);
        out.extend(number.to_le_bytes());
    }
}

/// Appends a message with its length before it.
fn nested(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    bytes(out, field, &inner);
}

fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    key(out, field, 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn key(out: &mut Vec<u8>, field: u32, wire_type: u32) {
    varint(out, u64::from(field << 3 | wire_type));
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn each(value: &Value, write: impl FnMut(&Value)) {
    value.as_array().into_iter().flatten().for_each(write);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bytes_as_gnostic_writes_them() {
        let table: [(Value, &[u8]); 6] = [
            (json!({"swagger": "2.0"}), b"\x0a\x032.0"),
            (json!({"info": {"title": "a", "version": ""}}), b"\x12\x03\x0a\x01a"),
            (
                json!({"definitions": {"n": {"type": "s", "minLength": 300}}}),
                b"\x4a\x10\x0a\x0e\x0a\x01n\x12\x09\x60\xac\x02\xb2\x01\x03\x0a\x01s",
            ),
            (
                json!({"definitions": {"n": {"additionalProperties": false}}}),
                b"\x4a\x0c\x0a\x0a\x0a\x01n\x12\x05\xaa\x01\x02\x10\x00",
            ),
            (
                json!({"definitions": {"n": {"minimum": 1.5}}}),
                b"\x4a\x10\x0a\x0e\x0a\x01n\x12\x09\x49\x00\x00\x00\x00\x00\x00\xf8\x3f",
            ),
            (json!({"x-a": [1]}), b"\x82\x01\x0d\x0a\x03x-a\x12\x06\x12\x04[1]\n"),
        ];
        for (document, expected) in table {
            assert_eq!(encode(&document), expected, "{document}");
        }
    }
}
