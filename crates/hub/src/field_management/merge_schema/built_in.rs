//! The types of the built-in kinds, from the table `built_in_types.txt`: their [`MergeSchema`], and the form in which an API
//! server shows their objects.
//!
//! A type of the table is a line `Name: field type, field type …`; `Name atomic:` is owned as a whole. A field with `!` is
//! always shown, with its zero value if need be; one with `?` is shown if it is set, even to a zero value; every other is
//! shown if it has no zero value. These are the rules of Go's `omitempty` for the types of Kubernetes 1.34.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::{
    FieldType, ListOwnership, MapType, MergeSchema, MergeType, ScalarType, TypeId, UNTYPED,
};
use crate::kind_registry::ResourceKind;

static TABLE: LazyLock<BTreeMap<&'static str, TableType>> = LazyLock::new(|| {
    include_str!("built_in_types.txt").lines().filter_map(TableType::parse).collect()
});

#[derive(Debug)]
struct TableType {
    atomic: bool,
    fields: Vec<TableField>,
}

#[derive(Debug)]
struct TableField {
    name: &'static str,
    type_: TypeName,
    shown: Shown,
}

/// When a field is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Always,
    IfSet,
    IfNotZero,
}

#[derive(Debug)]
enum TypeName {
    Scalar(ScalarType),
    Untyped,
    Named(&'static str),
    List(ListOwnership, Box<TypeName>),
    Dict(Box<TypeName>),
}

impl TableType {
    fn parse(line: &'static str) -> Option<(&'static str, Self)> {
        let (head, fields) = line.split_once(": ")?;
        let (name, atomic) = match head.strip_suffix(" atomic") {
            Some(name) => (name, true),
            None => (head, false),
        };
        let fields = fields.split(", ").filter_map(|field| {
            let (name, type_) = field.split_once(' ')?;
            let (type_, shown) = match (type_.strip_suffix('!'), type_.strip_suffix('?')) {
                (Some(type_), _) => (type_, Shown::Always),
                (None, Some(type_)) => (type_, Shown::IfSet),
                (None, None) => (type_, Shown::IfNotZero),
            };
            Some(TableField { name, type_: TypeName::parse(type_), shown })
        });
        Some((name, Self { atomic, fields: fields.collect() }))
    }
}

impl TypeName {
    fn parse(text: &'static str) -> Self {
        let inside =
            |prefix: &str| text.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(')'));
        match text {
            "str" => return Self::Scalar(ScalarType::Text),
            "num" => return Self::Scalar(ScalarType::Number),
            "bool" => return Self::Scalar(ScalarType::Flag),
            "any" => return Self::Scalar(ScalarType::Any),
            "untyped" => return Self::Untyped,
            _ => {}
        }
        if let Some(items) = inside("list(") {
            return Self::List(ListOwnership::Atomic, Box::new(Self::parse(items)));
        }
        if let Some(items) = inside("set(") {
            return Self::List(ListOwnership::Set, Box::new(Self::parse(items)));
        }
        if let Some((key, items)) = inside("map(").and_then(|inside| inside.split_once(';')) {
            let ownership = ListOwnership::Map(vec![key.to_owned()]);
            return Self::List(ownership, Box::new(Self::parse(items)));
        }
        match inside("dict(") {
            Some(items) => Self::Dict(Box::new(Self::parse(items))),
            None => Self::Named(text),
        }
    }
}

/// The name of a kind's type in the table.
fn table_name(kind: &ResourceKind) -> &str {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("events.k8s.io", "Event") => "events.Event",
        (_, name) => name,
    }
}

/// The merge schema of a built-in kind; `None` if the table does not have it.
pub(super) fn merge_schema(kind: &ResourceKind) -> Option<MergeSchema> {
    let mut schema = MergeSchema::new();
    let root = add_named(&mut schema, table_name(kind))?;
    Some(MergeSchema { root, ..schema })
}

/// Adds the type of `metadata`.
pub(super) fn object_meta(schema: &mut MergeSchema) -> TypeId {
    add_named(schema, "ObjectMeta").unwrap_or(UNTYPED)
}

fn add_named(schema: &mut MergeSchema, name: &str) -> Option<TypeId> {
    let type_ = TABLE.get(name)?;
    let mut map = MapType { atomic: type_.atomic, ..MapType::default() };
    for field in &type_.fields {
        let default = match (&field.type_, field.shown) {
            (TypeName::Scalar(ScalarType::Text), Shown::Always) => Some(json!("")),
            (TypeName::Scalar(ScalarType::Number), Shown::Always) => Some(json!(0)),
            _ => None,
        };
        let type_ = add(schema, &field.type_);
        map.fields.insert(field.name.to_owned(), FieldType { type_, default });
    }
    Some(schema.add(MergeType::map(map)))
}

fn add(schema: &mut MergeSchema, type_: &TypeName) -> TypeId {
    match type_ {
        TypeName::Scalar(scalar) => schema.add(MergeType::scalar(*scalar)),
        TypeName::Untyped => UNTYPED,
        TypeName::Named(name) => add_named(schema, name).unwrap_or(UNTYPED),
        TypeName::List(ownership, items) => {
            let items = add(schema, items);
            schema.add(MergeType::list(items, ownership.clone()))
        }
        TypeName::Dict(values) => {
            let rest = Some(add(schema, values));
            schema.add(MergeType::map(MapType { rest, ..MapType::default() }))
        }
    }
}

/// Gives an object of a built-in kind the form in which an API server shows it: without empty fields that it omits, with
/// those that it always shows.
pub(crate) fn to_shown_form(kind: &ResourceKind, object: &mut Value) {
    if kind.built_in && TABLE.contains_key(table_name(kind)) {
        show_named(table_name(kind), object);
    }
}

fn show_named(name: &str, value: &mut Value) {
    let (Some(type_), Value::Object(fields)) = (TABLE.get(name), value) else { return };
    for field in &type_.fields {
        // An empty list of managers is a request to forget them, which differs from no list.
        if field.name == "managedFields" {
            continue;
        }
        if let Some(value) = fields.get_mut(field.name) {
            show(&field.type_, value);
        }
        let keep = match (field.shown, fields.get(field.name)) {
            (Shown::Always, Some(value)) => !value.is_null() || is_shown_as_null(&field.type_),
            (Shown::Always, None) => false,
            (Shown::IfSet, value) => value.is_some_and(|value| !value.is_null()),
            (Shown::IfNotZero, value) => value.is_some_and(|value| !is_zero(value)),
        };
        match (keep, field.shown) {
            (true, _) => {}
            (false, Shown::Always) => {
                fields.insert(field.name.to_owned(), zero(&field.type_));
            }
            (false, Shown::IfSet | Shown::IfNotZero) => {
                fields.remove(field.name);
            }
        }
    }
}

fn show(type_: &TypeName, value: &mut Value) {
    match (type_, value) {
        (TypeName::Named(name), value) => show_named(name, value),
        (TypeName::List(_, items), Value::Array(list)) => {
            list.iter_mut().for_each(|item| show(items, item));
        }
        (TypeName::Dict(values), Value::Object(dict)) => {
            dict.values_mut().for_each(|value| show(values, value));
        }
        _ => {}
    }
}

fn is_shown_as_null(type_: &TypeName) -> bool {
    matches!(type_, TypeName::Scalar(ScalarType::Any) | TypeName::List(..) | TypeName::Untyped)
}

/// What is shown for a field that was not set.
fn zero(type_: &TypeName) -> Value {
    match type_ {
        TypeName::Scalar(ScalarType::Text) => json!(""),
        TypeName::Scalar(ScalarType::Number) => json!(0),
        TypeName::Scalar(ScalarType::Flag) => json!(false),
        TypeName::Scalar(ScalarType::Any)
        | TypeName::Untyped
        | TypeName::List(..)
        | TypeName::Dict(_) => Value::Null,
        TypeName::Named(name) => {
            let mut value = Value::Object(Map::new());
            show_named(name, &mut value);
            value
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> ResourceKind {
        crate::built_in::kinds().into_iter().find(|kind| kind.kind == name).unwrap()
    }

    #[test]
    fn every_type_of_the_table_is_known() {
        fn check(type_: &TypeName) {
            match type_ {
                TypeName::Named(name) => assert!(TABLE.contains_key(name), "{name}"),
                TypeName::List(_, inner) | TypeName::Dict(inner) => check(inner),
                TypeName::Scalar(_) | TypeName::Untyped => {}
            }
        }
        TABLE.values().flat_map(|type_| &type_.fields).for_each(|field| check(&field.type_));
        let is_written = |kind: &&ResourceKind| !kind.is_always_empty();
        for kind in crate::built_in::kinds().iter().filter(is_written) {
            assert!(merge_schema(kind).is_some(), "{}", kind.kind);
        }
    }

    #[test]
    fn objects_are_shown_as_kubernetes_shows_them() {
        let mut node = json!({"metadata": {"name": "a", "labels": {}}, "spec": {"taints": [], "unschedulable": false}});
        to_shown_form(&kind("Node"), &mut node);
        assert_eq!(node["metadata"], json!({"name": "a"}));
        assert_eq!(node["spec"], json!({}));
        assert_eq!(node["status"]["daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 0}}));
        assert_eq!(node["status"]["nodeInfo"]["machineID"], "");
        let mut map = json!({"metadata": {"name": "a"}, "data": {"a": ""}, "immutable": false});
        let before = map.clone();
        to_shown_form(&kind("ConfigMap"), &mut map);
        assert_eq!(map, before);
        let mut lease = json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": ""}});
        to_shown_form(&kind("Lease"), &mut lease);
        assert_eq!(lease["spec"], json!({"holderIdentity": ""}));
    }
}
