//! The compiled form of a schema.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use super::format::{self, StringFormat};
use super::validation_rules::ValidationRule;
use super::{SchemaError, child_path};

/// One level of a schema.
#[derive(Debug, Default)]
pub(super) struct SchemaNode {
    /// Allowed types; `integer` and `string` for int-or-string. Empty allows all.
    pub(super) types: Vec<String>,
    /// The declared type, for the error messages of rules.
    pub(super) type_name: String,
    pub(super) nullable: bool,
    pub(super) preserve: bool,
    pub(super) embedded: bool,
    pub(super) format: Option<StringFormat>,
    pub(super) enumeration: Vec<Value>,
    pub(super) limits: ValueLimits,
    pub(super) pattern: Option<Regex>,
    /// The source of the pattern.
    pub(super) pattern_text: String,
    pub(super) properties: BTreeMap<String, SchemaNode>,
    pub(super) additional: AdditionalProperties,
    pub(super) items: Option<Box<SchemaNode>>,
    pub(super) required: Vec<String>,
    pub(super) list: ListKind,
    pub(super) default: Option<Value>,
    pub(super) all_of: Vec<SchemaNode>,
    pub(super) any_of: Vec<SchemaNode>,
    pub(super) one_of: Vec<SchemaNode>,
    pub(super) not: Option<Box<SchemaNode>>,
    pub(super) rules: Vec<ValidationRule>,
    /// Whether this node or one inside it has rules.
    pub(super) has_rules: bool,
}

/// Limits of numbers, lengths and counts.
#[derive(Debug, Default)]
pub(super) struct ValueLimits {
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

/// Which fields are allowed besides the named ones.
#[derive(Debug, Default)]
pub(super) enum AdditionalProperties {
    /// Not specified.
    #[default]
    Unset,
    /// Any, or none.
    Any(bool),
    /// Those that match the schema.
    Schema(Box<SchemaNode>),
}

/// The list type.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum ListKind {
    /// Atomic: replaced as a whole.
    #[default]
    Atomic,
    /// A set: values are unique.
    Set,
    /// A map: these fields identify an item.
    Map(Vec<String>),
}

impl SchemaNode {
    pub(super) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        Self::compile_at(schema, "")
    }

    fn compile_at(schema: &Value, path: &str) -> Result<Self, SchemaError> {
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
            format: StringFormat::parse(text(fields, "format")),
            enumeration: array(fields, "enum").to_vec(),
            limits: limits(fields),
            pattern,
            pattern_text,
            properties: properties(fields, path)?,
            additional: additional(fields, path)?,
            items: compile_optional(fields, "items", path)?,
            required: strings(array(fields, "required")),
            list: list_kind(fields),
            default: fields.get("default").filter(|value| !value.is_null()).cloned(),
            all_of: compile_all(fields, "allOf", path)?,
            any_of: compile_all(fields, "anyOf", path)?,
            one_of: compile_all(fields, "oneOf", path)?,
            not: compile_optional(fields, "not", path)?,
            rules: rules(fields, path)?,
            has_rules: false,
        };
        node.has_rules = node.contains_rules();
        Ok(node)
    }

    /// The schema of a field; `None` if it has none.
    pub(super) fn field(&self, name: &str) -> Option<&SchemaNode> {
        self.properties.get(name).or(match &self.additional {
            AdditionalProperties::Schema(node) => Some(node),
            AdditionalProperties::Unset | AdditionalProperties::Any(_) => None,
        })
    }

    fn contains_rules(&self) -> bool {
        let additional = match &self.additional {
            AdditionalProperties::Schema(node) => Some(node.as_ref()),
            AdditionalProperties::Unset | AdditionalProperties::Any(_) => None,
        };
        let inside = self.properties.values().chain(self.items.as_deref()).chain(additional);
        !self.rules.is_empty() || inside.chain(&self.all_of).any(|part| part.has_rules)
    }

    /// The key fields of an item of a map list, as one text.
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

fn limits(fields: &Map<String, Value>) -> ValueLimits {
    let float = |key: &str| fields.get(key).and_then(Value::as_f64);
    let count = |key: &str| fields.get(key).and_then(Value::as_u64);
    let flag = |key: &str| fields.get(key) == Some(&Value::Bool(true));
    ValueLimits {
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
) -> Result<BTreeMap<String, SchemaNode>, SchemaError> {
    let Some(properties) = fields.get("properties") else { return Ok(BTreeMap::new()) };
    let properties =
        properties.as_object().ok_or_else(|| malformed(path, "properties must be an object"))?;
    properties
        .iter()
        .map(|(name, schema)| {
            Ok((name.clone(), SchemaNode::compile_at(schema, &child_path(path, name))?))
        })
        .collect()
}

fn additional(
    fields: &Map<String, Value>,
    path: &str,
) -> Result<AdditionalProperties, SchemaError> {
    Ok(match fields.get("additionalProperties") {
        None => AdditionalProperties::Unset,
        Some(Value::Bool(any)) => AdditionalProperties::Any(*any),
        Some(schema) => AdditionalProperties::Schema(Box::new(SchemaNode::compile_at(
            schema,
            &child_path(path, "*"),
        )?)),
    })
}

fn compile_optional(
    fields: &Map<String, Value>,
    key: &str,
    path: &str,
) -> Result<Option<Box<SchemaNode>>, SchemaError> {
    let node =
        fields.get(key).map(|schema| SchemaNode::compile_at(schema, &format!("{path}[{key}]")));
    Ok(node.transpose()?.map(Box::new))
}

fn compile_all(
    fields: &Map<String, Value>,
    key: &str,
    path: &str,
) -> Result<Vec<SchemaNode>, SchemaError> {
    let parts = array(fields, key).iter().enumerate();
    parts
        .map(|(index, schema)| SchemaNode::compile_at(schema, &format!("{path}[{key} {index}]")))
        .collect()
}

fn rules(fields: &Map<String, Value>, path: &str) -> Result<Vec<ValidationRule>, SchemaError> {
    let given = array(fields, "x-kubernetes-validations").iter();
    given.map(|rule| ValidationRule::compile(rule, path)).collect()
}
