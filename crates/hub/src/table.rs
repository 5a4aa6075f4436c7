//! Server-side tables: what `kubectl get` prints.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::json_path::JsonPath;
use crate::kind_registry::{PrinterColumn, ResourceKind};
use crate::schema::format_value;

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
    kind: &ResourceKind,
    objects: &[Value],
    list_metadata: Value,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let printer = CellPrinter::new(kind);
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells = printer.cells(object, now);
            json!({"cells": cells, "object": row_object(object, include)})
        })
        .collect();
    let mut table = json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": null,
        "columnDefinitions": column_definitions(kind),
        "rows": rows,
    });
    table["metadata"] = list_metadata;
    table
}

fn row_object(object: &Value, include: IncludeObject) -> Value {
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
fn column_definitions(kind: &ResourceKind) -> Vec<Value> {
    let name = json!({
        "name": "Name",
        "type": "string",
        "format": "name",
        "description": "The name of the object, unique within its namespace.",
        "priority": 0,
    });
    let own = kind.columns.iter().map(column_definition);
    if built_in::has_name_column(kind) {
        return own.collect();
    }
    std::iter::once(name).chain(own).collect()
}

fn column_definition(column: &PrinterColumn) -> Value {
    json!({
        "name": column.name,
        "type": column.type_,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    })
}

/// How the cells of a kind are made: by code for the built-in kinds, by paths for others.
enum CellPrinter<'a> {
    BuiltIn(built_in::PrintCells),
    Paths(Vec<(&'a PrinterColumn, Option<JsonPath>)>),
}

impl<'a> CellPrinter<'a> {
    fn new(kind: &'a ResourceKind) -> Self {
        if let Some(cells) = built_in::cell_printer(kind) {
            return Self::BuiltIn(cells);
        }
        let path = |column: &'a PrinterColumn| (column, JsonPath::parse(&column.json_path));
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
        ("string", other) => format_value(other).into(),
        ("integer", Value::Number(number)) => number
            .as_i64()
            .or_else(|| truncate_to_i64(number.as_f64()?))
            .map_or(Value::Null, Value::from),
        ("number", Value::Number(number)) => {
            number.as_f64().and_then(exact_i64).map_or_else(|| value.clone(), Value::from)
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
fn truncate_to_i64(float: f64) -> Option<i64> {
    const MAX: f64 = 9.0e18;
    (float.abs() < MAX).then_some(float.trunc() as i64)
}

fn exact_i64(float: f64) -> Option<i64> {
    (float.fract() == 0.0).then(|| truncate_to_i64(float)).flatten()
}
