//! A part of a schema, compiled.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use super::format::{self, Format};
use super::rules::Rule;
use super::{SchemaError, child};

/// One level of a schema.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// Allowed types; `integer` and `string` for int-or-string. Empty allows all.
    pub(super) types: Vec<String>,
    /// The type as it is written, for the errors of rules.
    pub(super) type_name: String,
    pub(super) nullable: bool,
    pub(super) preserve: bool,
    pub(super) embedded: bool,
    pub(super) format: Option<Format>,
    pub(super) enumeration: Vec<Value>,
    pub(super) limits: Limits,
    pub(super) pattern: Option<Regex>,
    /// The pattern as it is written.
    pub(super) pattern_text: String,
    pub(super) properties: BTreeMap<String, Node>,
    pub(super) additional: Additional,
    pub(super) items: Option<Box<Node>>,
    pub(super) required: Vec<String>,
    pub(super) list: ListKind,
    pub(super) default: Option<Value>,
    pub(super) all_of: Vec<Node>,
    pub(super) any_of: Vec<Node>,
    pub(super) one_of: Vec<Node>,
    pub(super) not: Option<Box<Node>>,
    pub(super) rules: Vec<Rule>,
    /// Whether there is a rule here or anywhere inside.
    pub(super) has_rules: bool,
}

/// Bounds of numbers, lengths and counts.
#[derive(Debug, Default)]
pub(super) struct Limits {
    pub(super) minimum: Option<f64>,
    pub(super) exclusive_minimum: bool,
    pub(super) maximum: Option<f64>,
    pub(super) exclusive_maximum: bool,
    pub(super) multiple_of: Option<f64>,
    pub(super) min_length: Option<u64>,
    pub(super) max_length: Option<u64>,
    pub(super) min_items: Option<u64>,
    pub(super) max_items: Option<u64>,
    pub(super) min_properties: Option<u64>,
    pub(super) max_properties: Option<u64>,
}

/// What fields may there be beyond the named ones?
#[derive(Debug, Default)]
pub(super) enum Additional {
    /// Nothing is said.
    #[default]
    Unset,
    /// Any, or none at all.
    Any(bool),
    /// Those that fit.
    Fitting(Box<Node>),
}

/// What kind of list it is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum ListKind {
    /// Replaced as a whole.
    #[default]
    Atomic,
    /// No value twice.
    Set,
    /// Objects told apart by these fields.
    Map(Vec<String>),
}

impl Node {
    pub(super) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        Self::at(schema, "")
    }

    fn at(schema: &Value, path: &str) -> Result<Self, SchemaError> {
        let Value::Object(fields) = schema else {
            return Err(malformed(path, "a schema must be an object"));
        };
        let flag = |key: &str| fields.get(key) == Some(&Value::Bool(true));
        let type_name = text(fields, "type").to_owned();
        let types = if flag("x-kubernetes-int-or-string") {
            vec!["integer".to_owned(), "string".to_owned()]
        } else {
            Some(type_name.clone()).into_iter().filter(|name| !name.is_empty()).collect()
        };
        let pattern_text = text(fields, "pattern").to_owned();
        let pattern = match pattern_text.as_str() {
            "" => None,
            pattern => Some(format::regex(pattern).map_err(|why| SchemaError::Pattern {
                path: path.to_owned(),
                pattern: pattern.to_owned(),
                why,
            })?),
        };
        let mut node = Self {
            types,
            type_name,
            nullable: flag("nullable"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            format: Format::parse(text(fields, "format")),
            enumeration: array(fields, "enum").to_vec(),
            limits: limits(fields),
            pattern,
            pattern_text,
            properties: properties(fields, path)?,
            additional: additional(fields, path)?,
            items: boxed(fields, "items", path)?,
            required: strings(array(fields, "required")),
            list: list_kind(fields),
            default: fields.get("default").filter(|value| !value.is_null()).cloned(),
            all_of: all(fields, "allOf", path)?,
            any_of: all(fields, "anyOf", path)?,
            one_of: all(fields, "oneOf", path)?,
            not: boxed(fields, "not", path)?,
            rules: rules(fields, path)?,
            has_rules: false,
        };
        node.has_rules = node.finds_rules();
        Ok(node)
    }

    /// The schema of a field; none if nothing is said about it.
    pub(super) fn field(&self, name: &str) -> Option<&Node> {
        self.properties.get(name).or(match &self.additional {
            Additional::Fitting(node) => Some(node),
            Additional::Unset | Additional::Any(_) => None,
        })
    }

    fn finds_rules(&self) -> bool {
        let additional = match &self.additional {
            Additional::Fitting(node) => Some(node.as_ref()),
            Additional::Unset | Additional::Any(_) => None,
        };
        let inside = self.properties.values().chain(self.items.as_deref()).chain(additional);
        !self.rules.is_empty() || inside.chain(&self.all_of).any(|part| part.has_rules)
    }

    /// The fields that tell an item of a map-like list from others, as one text.
    pub(super) fn item_key(&self, item: &Value) -> Option<String> {
        let ListKind::Map(keys) = &self.list else { return None };
        let Value::Object(fields) = item else { return None };
        let values: Vec<&Value> = keys
            .iter()
            .map(|key| {
                let default = self.items.as_ref().and_then(|items| items.properties.get(key));
                fields.get(key).or_else(|| default?.default.as_ref()).unwrap_or(&Value::Null)
            })
            .collect();
        serde_json::to_string(&values).ok()
    }
}

fn text<'a>(fields: &'a Map<String, Value>, key: &str) -> &'a str {
    fields.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn array<'a>(fields: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    fields.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn strings(values: &[Value]) -> Vec<String> {
    values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn malformed(path: &str, what: &str) -> SchemaError {
    SchemaError::Malformed { path: path.to_owned(), what: what.to_owned() }
}

fn limits(fields: &Map<String, Value>) -> Limits {
    let float = |key: &str| fields.get(key).and_then(Value::as_f64);
    let count = |key: &str| fields.get(key).and_then(Value::as_u64);
    let flag = |key: &str| fields.get(key) == Some(&Value::Bool(true));
    Limits {
        minimum: float("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        maximum: float("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: float("multipleOf").filter(|factor| *factor > 0.0),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
    }
}

fn list_kind(fields: &Map<String, Value>) -> ListKind {
    match text(fields, "x-kubernetes-list-type") {
        "set" => ListKind::Set,
        "map" => ListKind::Map(strings(array(fields, "x-kubernetes-list-map-keys"))),
        _ => ListKind::Atomic,
    }
}

fn properties(
    fields: &Map<String, Value>,
    path: &str,
) -> Result<BTreeMap<String, Node>, SchemaError> {
    let Some(properties) = fields.get("properties") else { return Ok(BTreeMap::new()) };
    let properties =
        properties.as_object().ok_or_else(|| malformed(path, "properties must be an object"))?;
    properties
        .iter()
        .map(|(name, schema)| Ok((name.clone(), Node::at(schema, &child(path, name))?)))
        .collect()
}

fn additional(fields: &Map<String, Value>, path: &str) -> Result<Additional, SchemaError> {
    Ok(match fields.get("additionalProperties") {
        None => Additional::Unset,
        Some(Value::Bool(any)) => Additional::Any(*any),
        Some(schema) => Additional::Fitting(Box::new(Node::at(schema, &child(path, "*"))?)),
    })
}

fn boxed(
    fields: &Map<String, Value>,
    key: &str,
    path: &str,
) -> Result<Option<Box<Node>>, SchemaError> {
    let node = fields.get(key).map(|schema| Node::at(schema, &format!("{path}[{key}]")));
    Ok(node.transpose()?.map(Box::new))
}

fn all(fields: &Map<String, Value>, key: &str, path: &str) -> Result<Vec<Node>, SchemaError> {
    let parts = array(fields, key).iter().enumerate();
    parts.map(|(index, schema)| Node::at(schema, &format!("{path}[{key} {index}]"))).collect()
}

fn rules(fields: &Map<String, Value>, path: &str) -> Result<Vec<Rule>, SchemaError> {
    let given = array(fields, "x-kubernetes-validations").iter();
    given.map(|rule| Rule::compile(rule, path)).collect()
}
