//! One step of a field path: a field, an item of a list by its keys, a value of a set, or an index.
//!
//! Its text form is that of `metadata.managedFields` (`f:spec`, `k:{"type":"Ready"}`, `v:"a"`, `i:0`); its `Display` is
//! what conflicts show (`.spec`, `[type="Ready"]`). Pure; called by [`super::field_set`] and the walks over objects.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Value};

use super::value_order;
use crate::schema::{go_float, quote};

/// One step of a field path.
#[derive(Debug, Clone)]
pub(super) enum PathElement {
    /// A field of an object.
    Field(Box<str>),
    /// An item of a map list: its key fields, sorted by name.
    Key(Box<[(Box<str>, Value)]>),
    /// A value of a set.
    Value(Value),
    /// An item of a list by its index. Written by no current API server, but valid.
    Index(i64),
}

/// Why a text is not a path element.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathElementError {
    /// Of a kind that only later versions know: it is ignored.
    #[error("unknown path element type")]
    UnknownType,
    /// Malformed.
    #[error("malformed path element {0:?}")]
    Malformed(String),
}

impl PathElement {
    /// A field of an object.
    pub(super) fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// Parses the text form.
    ///
    /// # Errors
    /// See [`PathElementError`].
    pub(super) fn parse(text: &str) -> Result<Self, PathElementError> {
        let malformed = || PathElementError::Malformed(text.chars().take(100).collect());
        let bytes = text.as_bytes();
        if bytes.len() < 2 || bytes[1] != b':' {
            return Err(malformed());
        }
        let rest = text.get(2..).ok_or_else(malformed)?;
        match bytes[0] {
            b'f' => Ok(Self::field(rest)),
            b'v' => Ok(Self::Value(serde_json::from_str(rest).map_err(|_| malformed())?)),
            b'k' => {
                let fields: Map<String, Value> =
                    serde_json::from_str(rest).map_err(|_| malformed())?;
                let fields = fields.into_iter().map(|(name, value)| (name.into(), value));
                Ok(Self::Key(fields.collect()))
            }
            b'i' => Ok(Self::Index(rest.parse().map_err(|_| malformed())?)),
            _ => Err(PathElementError::UnknownType),
        }
    }

    /// The text form.
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let fields = fields.iter().map(|(name, value)| {
                    format!("{}:{}", Value::from(&**name), escaped_json(value))
                });
                format!("k:{{{}}}", fields.collect::<Vec<_>>().join(","))
            }
            Self::Value(value) => format!("v:{}", escaped_json(value)),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Fields are before keys, keys before values, values before indices.
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

/// JSON with `<`, `>`, `&` and the two line separators escaped, as Go's encoder writes values.
pub(super) fn escaped_json(value: &Value) -> String {
    let text = match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() < 1e15 {
                format!("{float:.0}")
            } else {
                value.to_string()
            }
        }
        _ => value.to_string(),
    };
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(left), Self::Field(right)) => left.cmp(right),
            (Self::Key(left), Self::Key(right)) => compare_keys(left, right),
            (Self::Value(left), Self::Value(right)) => value_order::compare(left, right),
            (Self::Index(left), Self::Index(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

fn compare_keys(left: &[(Box<str>, Value)], right: &[(Box<str>, Value)]) -> Ordering {
    let mut orders = left.iter().zip(right).map(|((left_name, left), (right_name, right))| {
        left_name.cmp(right_name).then_with(|| value_order::compare(left, right))
    });
    orders.find(|order| order.is_ne()).unwrap_or_else(|| left.len().cmp(&right.len()))
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields = fields.iter().map(|(name, value)| format!("{name}={}", shown(value)));
                write!(f, "[{}]", fields.collect::<Vec<_>>().join(","))
            }
            Self::Value(value) => write!(f, "[={}]", shown(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A value in a path that people read.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => go_float(number.as_f64().unwrap_or_default()),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(","))
        }
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_round_trip_and_are_shown() {
        for (text, display) in [
            ("f:spec", ".spec"),
            ("f:a.b/c", ".a.b/c"),
            (r#"k:{"type":"Ready"}"#, r#"[type="Ready"]"#),
            (r#"k:{"port":80,"protocol":"TCP"}"#, r#"[port=80,protocol="TCP"]"#),
            (r#"v:"a\"b""#, r#"[="a\"b"]"#),
            ("v:1.5", "[=1.5]"),
            ("v:true", "[=true]"),
            ("i:3", "[3]"),
            (r#"v:"a\u003cb\u0026c""#, r#"[="a<b&c"]"#),
        ] {
            let element = PathElement::parse(text).unwrap();
            assert_eq!(element.to_text(), text);
            assert_eq!(element.to_string(), display);
        }
    }

    #[test]
    fn malformed_elements_are_errors() {
        for text in ["", "f", "fspec", "k:[]", "k:{", "v:", "v:a", "i:x", "é:"] {
            let error = PathElement::parse(text).unwrap_err();
            assert!(matches!(error, PathElementError::Malformed(_)), "{text}: {error}");
        }
        assert_eq!(PathElement::parse("z:1"), Err(PathElementError::UnknownType));
    }

    #[test]
    fn elements_are_ordered() {
        let sorted = [
            "f:a",
            "f:b",
            r#"k:{"a":1}"#,
            r#"k:{"a":1,"b":1}"#,
            r#"k:{"a":2}"#,
            "v:1",
            r#"v:"a""#,
            "i:0",
            "i:2",
        ];
        let elements: Vec<PathElement> =
            sorted.iter().map(|text| PathElement::parse(text).unwrap()).collect();
        assert!(elements.is_sorted());
    }
}
