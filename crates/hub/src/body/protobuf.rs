//! Decodes protobuf bodies of built-in kinds, which kubectl and Go clients send.
//!
//! A body is an envelope (`k8s\0`, then an `Unknown` with its type) around the message of the kind.
//! The table `protobuf.txt`, generated from Kubernetes' own definitions, describes the messages. An
//! unknown kind or field is rejected, never dropped. Responses are JSON, which all clients accept.

use std::collections::HashMap;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Every envelope starts with this.
const MAGIC: &[u8] = b"k8s\0";
/// Deeper than the messages of any kind.
const MAX_DEPTH: usize = 16;

/// Messages by name; their fields by number, with the name and type of each.
type MessageTable = HashMap<&'static str, MessageFields>;
type MessageFields = HashMap<u64, (&'static str, &'static str)>;

fn message_table() -> &'static MessageTable {
    static MESSAGES: OnceLock<MessageTable> = OnceLock::new();
    MESSAGES.get_or_init(|| {
        let lines = include_str!("protobuf.txt").lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(parse_message_line).collect()
    })
}

fn parse_message_line(line: &'static str) -> Option<(&'static str, MessageFields)> {
    let mut words = line.split_whitespace();
    let name = words.next()?;
    let fields = words.filter_map(|word| {
        let (number, rest) = word.split_once(':')?;
        let (field, kind) = rest.split_once(':')?;
        Some((number.parse().ok()?, (field, kind)))
    });
    Some((name, fields.collect()))
}

/// Decodes a body; `None` if it is malformed or of an unknown kind.
pub(super) fn decode(body: &[u8]) -> Option<Value> {
    let mut envelope = WireReader(body.strip_prefix(MAGIC)?);
    let (mut version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    while let Some((number, part)) = envelope.field()? {
        match (number, part) {
            (1, WireValue::Bytes(bytes)) => (version, kind) = envelope_type(bytes)?,
            (2, WireValue::Bytes(bytes)) => raw = bytes,
            // An encoding or another content type: no client sends these.
            (_, WireValue::Bytes([])) => {}
            _ => return None,
        }
    }
    let mut object = read_message(message_for_kind(&version, &kind)?, raw, 0)?;
    object.insert("apiVersion".to_owned(), version.into());
    object.insert("kind".to_owned(), kind.into());
    Some(Value::Object(object))
}

fn envelope_type(bytes: &[u8]) -> Option<(String, String)> {
    let (mut version, mut kind) = (String::new(), String::new());
    let mut reader = WireReader(bytes);
    while let Some((number, part)) = reader.field()? {
        match (number, part) {
            (1, WireValue::Bytes(bytes)) => version = decode_string(bytes)?,
            (2, WireValue::Bytes(bytes)) => kind = decode_string(bytes)?,
            _ => return None,
        }
    }
    Some((version, kind))
}

/// The message of a kind.
fn message_for_kind(version: &str, kind: &str) -> Option<&'static str> {
    if kind == "DeleteOptions" {
        return Some("meta.DeleteOptions");
    }
    Some(match (version, kind) {
        ("v1", "Node") => "core.Node",
        ("v1", "Namespace") => "core.Namespace",
        ("v1", "Secret") => "core.Secret",
        ("v1", "ConfigMap") => "core.ConfigMap",
        ("v1", "ServiceAccount") => "core.ServiceAccount",
        ("v1", "Event") => "core.Event",
        ("events.k8s.io/v1", "Event") => "events.Event",
        ("coordination.k8s.io/v1", "Lease") => "coordination.Lease",
        ("certificates.k8s.io/v1", "CertificateSigningRequest") => {
            "certificates.CertificateSigningRequest"
        }
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview") => {
            "authorization.SelfSubjectAccessReview"
        }
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview") => {
            "authorization.SelfSubjectRulesReview"
        }
        ("authorization.k8s.io/v1", "SubjectAccessReview") => "authorization.SubjectAccessReview",
        ("authentication.k8s.io/v1", "SelfSubjectReview") => "authentication.SelfSubjectReview",
        ("authentication.k8s.io/v1", "TokenRequest") => "authentication.TokenRequest",
        ("authentication.k8s.io/v1", "TokenReview") => "authentication.TokenReview",
        _ => return None,
    })
}

fn read_message(name: &str, bytes: &[u8], depth: usize) -> Option<Map<String, Value>> {
    if depth > MAX_DEPTH {
        return None;
    }
    let fields = message_table().get(name)?;
    let mut object = Map::new();
    let mut reader = WireReader(bytes);
    while let Some((number, part)) = reader.field()? {
        let (field, kind) = *fields.get(&number)?;
        if kind == "-" {
            continue;
        }
        if let Some(kind) = kind.strip_prefix('*') {
            let value = read_value(kind, &part, depth)?;
            let list = object.entry(field).or_insert_with(|| Value::Array(Vec::new()));
            list.as_array_mut()?.push(value);
        } else if let Some(kind) = kind.strip_prefix('%') {
            let WireValue::Bytes(bytes) = part else { return None };
            let (key, value) = read_entry(kind, bytes, depth)?;
            let map = object.entry(field).or_insert_with(|| Value::Object(Map::new()));
            map.as_object_mut()?.insert(key, value);
        } else {
            let value = read_value(kind, &part, depth)?;
            // Go sends empty values too, but omits them from JSON. One that may be unset is sent only if it is set.
            if kind == "p" || !is_empty(&value) {
                object.insert(field.to_owned(), value);
            }
        }
    }
    Some(object)
}

/// Decodes a map entry: a message with a key and a value.
fn read_entry(kind: &str, bytes: &[u8], depth: usize) -> Option<(String, Value)> {
    let mut reader = WireReader(bytes);
    let (mut key, mut value) = (String::new(), Value::String(String::new()));
    while let Some((number, part)) = reader.field()? {
        match (number, part) {
            (1, WireValue::Bytes(bytes)) => key = decode_string(bytes)?,
            (2, part) => value = read_value(kind, &part, depth)?,
            _ => return None,
        }
    }
    Some((key, value))
}

fn read_value(kind: &str, part: &WireValue<'_>, depth: usize) -> Option<Value> {
    Some(match (kind, part) {
        ("s", WireValue::Bytes(bytes)) => decode_string(bytes)?.into(),
        ("b", WireValue::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        ("o" | "p", WireValue::Varint(number)) => (*number != 0).into(),
        ("i", WireValue::Varint(number)) => number.cast_signed().into(),
        ("t", WireValue::Bytes(bytes)) => decode_time(bytes, "%Y-%m-%dT%H:%M:%SZ")?,
        ("u", WireValue::Bytes(bytes)) => decode_time(bytes, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
        ("q", WireValue::Bytes(bytes)) => decode_quantity(bytes)?,
        (_, WireValue::Bytes(bytes)) => Value::Object(read_message(kind, bytes, depth + 1)?),
        _ => return None,
    })
}

/// Decodes seconds and nanoseconds. An empty message is no time.
fn decode_time(bytes: &[u8], format: &str) -> Option<Value> {
    let (mut seconds, mut nanos) = (None, 0);
    let mut reader = WireReader(bytes);
    while let Some((number, part)) = reader.field()? {
        match (number, part) {
            (1, WireValue::Varint(number)) => seconds = Some(number.cast_signed()),
            (2, WireValue::Varint(number)) => nanos = i32::try_from(number).ok()?,
            _ => return None,
        }
    }
    let Some(seconds) = seconds else { return Some(Value::Null) };
    let time = jiff::Timestamp::new(seconds, nanos).ok()?;
    Some(time.strftime(format).to_string().into())
}

fn decode_quantity(bytes: &[u8]) -> Option<Value> {
    match WireReader(bytes).field()? {
        Some((1, WireValue::Bytes(bytes))) => Some(decode_string(bytes)?.into()),
        _ => None,
    }
}

fn decode_string(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// The raw value of a field.
enum WireValue<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

/// Reads the fields of a message in order.
struct WireReader<'a>(&'a [u8]);

impl<'a> WireReader<'a> {
    /// The next field. The outer `None` means malformed, the inner one the end of the message.
    #[expect(clippy::option_option, reason = "malformed, ended, or a field")]
    fn field(&mut self) -> Option<Option<(u64, WireValue<'a>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let tag = self.varint()?;
        let part = match tag & 7 {
            0 => WireValue::Varint(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                WireValue::Bytes(bytes)
            }
            // No kind here has fixed-width numbers.
            _ => return None,
        };
        Some(Some((tag >> 3, part)))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend(bytes);
        out
    }

    fn envelope(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let kind = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &kind), field(2, raw), field(3, b"")].concat()
    }

    #[test]
    fn a_config_map() {
        let entry = [field(1, b"k"), field(2, b"v")].concat();
        let metadata = [field(1, b"a"), field(2, b""), vec![7 << 3, 0], field(8, b"")].concat();
        let raw = [field(1, &metadata), field(2, &entry)].concat();
        assert_eq!(
            decode(&envelope("v1", "ConfigMap", &raw)),
            Some(json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a"}, "data": {"k": "v"}
            }))
        );
    }

    #[test]
    fn a_service_account_that_switches_something_off() {
        let secret = field(3, b"s");
        let raw = [field(2, &secret), vec![4 << 3, 0]].concat();
        let expected = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "secrets": [{"name": "s"}],
            "automountServiceAccountToken": false,
        });
        assert_eq!(decode(&envelope("v1", "ServiceAccount", &raw)), Some(expected));
        let raw = field(2, &[4 << 3, 10]);
        let request = decode(&envelope("authentication.k8s.io/v1", "TokenRequest", &raw)).unwrap();
        assert_eq!(request["spec"], json!({"expirationSeconds": 10}));
    }

    #[test]
    fn unknown_messages_are_rejected() {
        let good = envelope("v1", "ConfigMap", &field(1, b""));
        assert!(decode(&good).is_some());
        assert_eq!(decode(&envelope("g.io/v1", "Thing", b"")), None);
        assert_eq!(decode(&envelope("v1", "ConfigMap", &field(15, b"x"))), None);
        for end in 0..good.len() {
            let _ = decode(&good[..end]);
        }
        assert_eq!(decode(b"k8s"), None);
        assert_eq!(decode(b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), None);
    }

    #[test]
    fn the_table_is_complete() {
        let plain = ["s", "b", "o", "p", "i", "t", "u", "q", "-"];
        for (name, fields) in message_table() {
            for (field, kind) in fields.values() {
                let kind = kind.trim_start_matches(['*', '%']);
                assert!(
                    plain.contains(&kind) || message_table().contains_key(kind),
                    "{name}.{field}"
                );
            }
        }
    }
}
