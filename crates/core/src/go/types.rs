//! Tables of Go's struct types: their fields, with names in Go and JSON, and their types.
//!
//! A table is text. A line without indentation names a type; each indented line is a field: its name
//! in Go, its name in JSON, its type, and `omitempty` if Go omits an empty value.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoType {
    /// `true` or `false`.
    Bool,
    /// A whole number of this many bits, by Go's name (`int32`).
    Int {
        /// Go's name of the type.
        name: &'static str,
        /// The smallest value.
        min: i128,
        /// The largest value.
        max: i128,
    },
    /// A floating-point number.
    Float,
    /// A string.
    String,
    /// Bytes, in JSON as base64.
    Bytes,
    /// A duration, in JSON as a string such as `5m0s`.
    Duration,
    /// A duration, in JSON as a string or a number of nanoseconds.
    TimeOrDuration,
    /// A quantity that is not interpreted; never merged, `0` when unset.
    Quantity,
    /// A quantity such as `1Gi`.
    Amount,
    /// Any JSON value.
    Any,
    /// A list.
    List(Box<GoType>),
    /// A map with string keys.
    Map(Box<GoType>),
    /// A pointer, which may be nil.
    Pointer(Box<GoType>),
    /// A struct, by its name in the table.
    Struct(&'static str),
}

/// A field of a struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoField {
    /// Its name in Go.
    pub name: &'static str,
    /// Its name in JSON.
    pub json: &'static str,
    /// Its type.
    pub kind: GoType,
    /// Whether Go omits it from JSON when it is empty.
    pub omit_empty: bool,
}

/// The types of one table.
#[derive(Debug)]
pub struct GoTypes {
    structs: BTreeMap<&'static str, Vec<GoField>>,
}

impl GoTypes {
    /// Parses a table. Malformed lines are ignored.
    #[must_use]
    pub fn parse(table: &'static str) -> Self {
        let mut structs: BTreeMap<&'static str, Vec<GoField>> = BTreeMap::new();
        let mut current = "";
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            match line.strip_prefix("  ") {
                None => {
                    current = line.trim();
                    structs.entry(current).or_default();
                }
                Some(field) => {
                    structs.entry(current).or_default().extend(parse_field(field));
                }
            }
        }
        Self { structs }
    }

    /// The fields of a struct; empty if it is not in the table.
    #[must_use]
    pub fn fields(&self, name: &str) -> &[GoField] {
        self.structs.get(name).map_or(&[], Vec::as_slice)
    }
}

fn parse_field(line: &'static str) -> Option<GoField> {
    let mut words = line.split_whitespace();
    let (name, json, kind) = (words.next()?, words.next()?, words.next()?);
    Some(GoField {
        name,
        json,
        kind: parse_kind(kind),
        omit_empty: words.any(|w| w == "omitempty"),
    })
}

fn parse_kind(text: &'static str) -> GoType {
    let int = |name, min: i128, max: i128| GoType::Int { name, min, max };
    if let Some(inner) = text.strip_prefix('*') {
        return GoType::Pointer(Box::new(parse_kind(inner)));
    }
    if let Some(inner) = text.strip_prefix("[]") {
        return GoType::List(Box::new(parse_kind(inner)));
    }
    if let Some(inner) = text.strip_prefix("map:") {
        return GoType::Map(Box::new(parse_kind(inner)));
    }
    match text {
        "bool" => GoType::Bool,
        "int" => int("int", i64::MIN.into(), i64::MAX.into()),
        "int32" => int("int32", i32::MIN.into(), i32::MAX.into()),
        "int64" => int("int64", i64::MIN.into(), i64::MAX.into()),
        "uint8" => int("uint8", 0, u8::MAX.into()),
        "uint32" => int("uint32", 0, u32::MAX.into()),
        "uint64" => int("uint64", 0, u64::MAX.into()),
        "float64" => GoType::Float,
        "string" => GoType::String,
        "bytes" => GoType::Bytes,
        "duration" => GoType::Duration,
        "time-or-duration" => GoType::TimeOrDuration,
        "quantity" => GoType::Quantity,
        "amount" => GoType::Amount,
        "any" => GoType::Any,
        name => GoType::Struct(name),
    }
}

/// `ControllerConfigSpec` and all it holds, of `github.com/openshift/api`.
pub static CONTROLLER_CONFIG: LazyLock<GoTypes> =
    LazyLock::new(|| GoTypes::parse(include_str!("controller_config.txt")));

/// `KubeletConfiguration` and all it holds, of `k8s.io/kubelet/config/v1beta1`.
pub static KUBELET: LazyLock<GoTypes> =
    LazyLock::new(|| GoTypes::parse(include_str!("kubelet.txt")));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_struct_is_in_the_table() {
        fn named(kind: &GoType) -> Option<&'static str> {
            match kind {
                GoType::Struct(name) => Some(name),
                GoType::List(inner) | GoType::Map(inner) | GoType::Pointer(inner) => named(inner),
                _ => None,
            }
        }
        for (types, root) in
            [(&*CONTROLLER_CONFIG, "ControllerConfigSpec"), (&*KUBELET, "KubeletConfiguration")]
        {
            assert!(types.fields(root).len() > 20, "{root}");
            for field in types.structs.values().flatten() {
                if let Some(name) = named(&field.kind) {
                    assert!(types.structs.contains_key(name), "{name}");
                }
            }
        }
    }
}
