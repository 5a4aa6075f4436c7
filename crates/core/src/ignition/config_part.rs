//! The behaviour that all parts of an Ignition config share: they are decoded from JSON as Go
//! decodes them, written without empty fields, merged by Ignition's rules, and checked for
//! duplicates. The [`shape!`] macro implements all of it for a struct.

use serde_json::Value;

use super::report::{ConfigPath, IgnitionReport};

/// The state of decoding one document.
#[derive(Debug)]
pub struct ConfigDecoder {
    /// The minor version of the document: fields of later versions are unknown to it.
    pub minor: u8,
    /// The current position.
    pub path: ConfigPath,
    /// The findings: values of a wrong type are errors, unknown fields are warnings.
    pub report: IgnitionReport,
}

impl ConfigDecoder {
    pub(crate) fn new(minor: u8) -> Self {
        Self { minor, path: ConfigPath::root(), report: IgnitionReport::default() }
    }

    fn wrong_type(&mut self, expected: &str, found: &Value) {
        let found = match found {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(number) if number.is_f64() => "a number that is no whole 64-bit number",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.report.error(&self.path, format!("expected {expected}, found {found}"));
    }

    pub(crate) fn unknown_key(&mut self, key: &str) {
        self.path.push_key(key.to_owned());
        self.report.warning(&self.path, format!("unused key {key}"));
        self.path.pop();
    }

    pub(crate) fn expected_list(&mut self, found: &Value) {
        self.wrong_type("a list", found);
    }

    pub(crate) fn expected_object(&mut self, found: &Value) {
        self.wrong_type("an object", found);
    }
}

/// A part of a config.
pub trait ConfigPart: Default + Clone + PartialEq {
    /// Decodes the part. As in Go, `null` changes nothing, unknown fields are ignored, field names
    /// are matched case-insensitively, and decoding an object twice adds to it.
    fn decode(&mut self, value: &Value, cx: &mut ConfigDecoder);

    /// Whether the part equals one that was never set.
    fn is_zero(&self) -> bool;

    /// Merges the parts of several configs; later ones win.
    fn merge_all(parts: Vec<Self>) -> Self;

    /// Reports list entries with duplicate keys.
    fn find_duplicates(&self, path: &mut ConfigPath, report: &mut IgnitionReport);
}

/// A scalar that is zero unless it is set: the last one wins.
macro_rules! plain_scalar {
    ($type:ty, $expected:literal, $value:ident => $read:expr) => {
        impl ConfigPart for $type {
            fn decode(&mut self, $value: &Value, cx: &mut ConfigDecoder) {
                if $value.is_null() {
                    return;
                }
                match $read {
                    Some(read) => *self = read,
                    None => cx.wrong_type($expected, $value),
                }
            }

            fn is_zero(&self) -> bool {
                *self == Self::default()
            }

            fn merge_all(parts: Vec<Self>) -> Self {
                parts.into_iter().next_back().unwrap_or_default()
            }

            fn find_duplicates(&self, _: &mut ConfigPath, _: &mut IgnitionReport) {}
        }
    };
}

plain_scalar!(String, "a string", value => value.as_str().map(str::to_owned));
plain_scalar!(i64, "a whole number", value => value.as_i64());
plain_scalar!(bool, "true or false", value => value.as_bool());

/// An optional value: the last one that is set wins.
impl<T: ConfigPart> ConfigPart for Option<T> {
    fn decode(&mut self, value: &Value, cx: &mut ConfigDecoder) {
        if value.is_null() {
            *self = None;
        } else {
            self.get_or_insert_default().decode(value, cx);
        }
    }

    fn is_zero(&self) -> bool {
        self.is_none()
    }

    fn merge_all(parts: Vec<Self>) -> Self {
        parts.into_iter().rev().find_map(|part| part)
    }

    fn find_duplicates(&self, path: &mut ConfigPath, report: &mut IgnitionReport) {
        if let Some(part) = self {
            part.find_duplicates(path, report);
        }
    }
}

/// Declares a struct that is a [`ConfigPart`]: its fields in the order in which they are written,
/// the JSON name of each, the minor version that introduced it (`since`), whether it is written
/// even if it is empty (`always`), and whether it is merged field by field or by a handwritten
/// function.
macro_rules! shape {
    (
        $(#[$meta:meta])*
        $name:ident, merge $merge:ident {
            $( $(#[$doc:meta])* $field:ident : $type:ty = $json:literal $(since $since:literal)? $(, $always:ident)? ; )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Default, PartialEq)]
        pub struct $name { $( $(#[$doc])* pub $field: $type, )* }

        impl $name {
            /// The fields as (JSON name, the minor version that introduced them).
            const FIELDS: &'static [(&'static str, u8)] =
                &[ $( ($json, $crate::ignition::config_part::shape!(@since $($since)?)) ),* ];

            fn decode_field(&mut self, name: &str, value: &serde_json::Value, cx: &mut ConfigDecoder) {
                match name {
                    $( $json => {
                        cx.path.push_key($json);
                        ConfigPart::decode(&mut self.$field, value, cx);
                        cx.path.pop();
                    } )*
                    _ => {}
                }
            }
        }

        /// Shows only the type: configs hold keys and password hashes, which must not reach a log.
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!("<", stringify!($name), ">"))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(None)?;
                $(
                    if $crate::ignition::config_part::shape!(@always $($always)?) || !ConfigPart::is_zero(&self.$field) {
                        map.serialize_entry($json, &self.$field)?;
                    }
                )*
                map.end()
            }
        }

        impl ConfigPart for $name {
            fn decode(&mut self, value: &serde_json::Value, cx: &mut ConfigDecoder) {
                let map = match value {
                    serde_json::Value::Null => return,
                    serde_json::Value::Object(map) => map,
                    other => return cx.expected_object(other),
                };
                for (key, value) in map {
                    match $crate::ignition::config_part::field_named(Self::FIELDS, key, cx.minor) {
                        Some(name) => self.decode_field(name, value, cx),
                        None => cx.unknown_key(key),
                    }
                }
            }

            fn is_zero(&self) -> bool {
                true $( && ConfigPart::is_zero(&self.$field) )*
            }

            fn merge_all(mut parts: Vec<Self>) -> Self {
                parts.retain(|part| !part.is_zero());
                if parts.len() < 2 {
                    return parts.pop().unwrap_or_default();
                }
                $crate::ignition::config_part::shape!(@merge $merge, parts, $($field)*)
            }

            fn find_duplicates(&self, path: &mut ConfigPath, report: &mut IgnitionReport) {
                $crate::ignition::config_part::shape!(@own_duplicates $merge, self, path, report);
                $(
                    path.push_key($json);
                    ConfigPart::find_duplicates(&self.$field, path, report);
                    path.pop();
                )*
            }
        }
    };
    (@since) => { 0 };
    (@since $since:literal) => { $since };
    (@always) => { false };
    (@always always) => { true };
    (@own_duplicates by_field, $self:ident, $path:ident, $report:ident) => {};
    (@own_duplicates by_hand, $self:ident, $path:ident, $report:ident) => {
        $self.find_shared_duplicates($path, $report);
    };
    (@merge by_hand, $parts:ident, $($field:ident)*) => { Self::merge_by_hand($parts) };
    (@merge by_field, $parts:ident, $($field:ident)*) => {{
        let count = $parts.len();
        $( let mut $field = Vec::with_capacity(count); )*
        for part in $parts {
            $( $field.push(part.$field); )*
        }
        Self { $( $field: ConfigPart::merge_all($field), )* }
    }};
}
pub(crate) use shape;

/// The field that Go's JSON decoder would fill from `key`: the one with exactly that name, or else
/// one that differs only in case.
pub(crate) fn field_named(
    fields: &'static [(&'static str, u8)],
    key: &str,
    minor: u8,
) -> Option<&'static str> {
    let known = || fields.iter().filter(|(_, since)| *since <= minor).map(|(name, _)| *name);
    known().find(|name| *name == key).or_else(|| known().find(|name| equal_fold(name, key)))
}

/// Go folds ASCII case, and the two letters outside ASCII that fold into it.
fn equal_fold(name: &str, key: &str) -> bool {
    let folded = key.chars().map(|c| match c {
        '\u{212A}' => 'k',
        '\u{17F}' => 's',
        c => c.to_ascii_lowercase(),
    });
    name.chars().map(|c| c.to_ascii_lowercase()).eq(folded)
}
