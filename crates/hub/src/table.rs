//! Server-side tables: what `kubectl get` prints.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::json_path::JsonPath;
use crate::registry::{Column, Kind};
use crate::schema::show;

mod built_in;
mod duration;

pub use duration::human_duration;

/// What a row carries of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncludeObject {
    /// Only the metadata, as a `PartialObjectMetadata`.
    Metadata,
    /// All of it.
    Object,
    /// Nothing.
    None,
}

impl IncludeObject {
    /// From the query parameter `includeObject`; nothing means the metadata. None for an unknown word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "Object" => Some(Self::Object),
            "None" => Some(Self::None),
            _ => None,
        }
    }
}

/// A `Table` of objects of one kind.
#[must_use]
pub fn table(
    kind: &Kind,
    objects: &[Value],
    list_metadata: Value,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let printer = Printer::new(kind);
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells = printer.cells(object, now);
            json!({"cells": cells, "object": included(object, include)})
        })
        .collect();
    let mut table = json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": null,
        "columnDefinitions": definitions(kind),
        "rows": rows,
    });
    table["metadata"] = list_metadata;
    table
}

fn included(object: &Value, include: IncludeObject) -> Value {
    match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Object => object.clone(),
        IncludeObject::Metadata => json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
        }),
    }
}

/// The headings: the name and the kind's own columns. Events bring their own name column.
fn definitions(kind: &Kind) -> Vec<Value> {
    let name = json!({
        "name": "Name",
        "type": "string",
        "format": "name",
        "description": "The name of the object, unique within its namespace.",
        "priority": 0,
    });
    let own = kind.columns.iter().map(definition);
    if built_in::names_itself(kind) {
        return own.collect();
    }
    std::iter::once(name).chain(own).collect()
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.type_,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    })
}

/// How the cells of a kind are made: by code for the built-in kinds, by paths for others.
enum Printer<'a> {
    BuiltIn(built_in::Cells),
    Paths(Vec<(&'a Column, Option<JsonPath>)>),
}

impl<'a> Printer<'a> {
    fn new(kind: &'a Kind) -> Self {
        if let Some(cells) = built_in::cells(kind) {
            return Self::BuiltIn(cells);
        }
        let path = |column: &'a Column| (column, JsonPath::parse(&column.json_path));
        Self::Paths(kind.columns.iter().map(path).collect())
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match self {
            Self::BuiltIn(cells) => cells(object, now),
            Self::Paths(columns) => {
                let name = object.pointer("/metadata/name").cloned().unwrap_or_else(|| "".into());
                let own = columns.iter().map(|(column, path)| {
                    let found = path.as_ref().and_then(|path| path.find(object).first().copied());
                    found.map_or(Value::Null, |value| cell(&column.type_, value, now))
                });
                std::iter::once(name).chain(own).collect()
            }
        }
    }
}

/// A value in a column of a type; nothing if it does not fit.
fn cell(type_: &str, value: &Value, now: Timestamp) -> Value {
    match (type_, value) {
        ("string", Value::String(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("string", Value::Null) => "<no value>".into(),
        ("string", other) => show(other).into(),
        ("integer", Value::Number(number)) => {
            number.as_i64().or_else(|| whole(number.as_f64()?)).map_or(Value::Null, Value::from)
        }
        ("number", Value::Number(number)) => {
            number.as_f64().and_then(whole_exactly).map_or_else(|| value.clone(), Value::from)
        }
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(time) => human_duration(now.duration_since(time)).into(),
            Err(_) => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}

/// A float cut to an integer, as far as it has one.
#[expect(clippy::cast_possible_truncation, reason = "cutting is what is wanted")]
fn whole(float: f64) -> Option<i64> {
    const MAX: f64 = 9.0e18;
    (float.abs() < MAX).then_some(float.trunc() as i64)
}

fn whole_exactly(float: f64) -> Option<i64> {
    (float.fract() == 0.0).then(|| whole(float)).flatten()
}
