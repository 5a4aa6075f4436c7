//! Server-side tables: what `kubectl get` prints.
//!
//! Pure. Called by the router when a client accepts a `Table`, and by machinist's CLI.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::json_path::JsonPath;
use crate::kind_registry::{PrinterColumn, ResourceKind};
use crate::schema::format_value;

mod built_in;
mod duration;

pub use duration::human_duration;

/// What a row includes of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncludeObject {
    /// Only the metadata, as a `PartialObjectMetadata`.
    Metadata,
    /// The whole object.
    Object,
    /// Nothing.
    None,
}

impl IncludeObject {
    /// Parses the query parameter `includeObject`; empty means the metadata. `None` if it is
    /// unknown.
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

/// Returns a `Table` of objects of one kind.
#[must_use]
pub fn table(
    kind: &ResourceKind,
    objects: &[Value],
    list_metadata: Value,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let rows: Vec<Value> =
        objects.iter().map(|object| table_row(kind, object, include, now)).collect();
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

/// One row of a table.
#[must_use]
pub fn table_row(
    kind: &ResourceKind,
    object: &Value,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let cells = CellPrinter::new(kind).cells(object, now);
    json!({"cells": cells, "object": row_object(object, include)})
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

/// The columns: the name and those of the kind. Events define their own name column.
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

/// How cells are made: by code for built-in kinds, by JSONPath for CRDs.
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

/// Converts a value to the type of its column; null if it does not fit.
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

/// Truncates a float to an integer, if it fits.
#[expect(clippy::cast_possible_truncation, reason = "truncation is intended")]
fn truncate_to_i64(float: f64) -> Option<i64> {
    const MAX: f64 = 9.0e18;
    (float.abs() < MAX).then_some(float.trunc() as i64)
}

fn exact_i64(float: f64) -> Option<i64> {
    (float.fract() == 0.0).then(|| truncate_to_i64(float)).flatten()
}
