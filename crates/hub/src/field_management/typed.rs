//! What the walks over objects share: which alternative of a type a value takes, how an item of a list is identified, and
//! whether a value fits its type.
//!
//! Pure. The error texts are those that an API server shows for an apply patch which does not fit.

use serde_json::Value;

use super::merge_schema::{
    ListOwnership, ListType, MapType, MergeSchema, MergeType, ScalarType, TypeId,
};
use super::path_element::PathElement;

/// A value does not fit its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TypeMismatch {
    path: String,
    message: String,
}

impl TypeMismatch {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { path: String::new(), message: message.into() }
    }

    /// The error seen from one level above.
    pub(super) fn under(mut self, element: &PathElement) -> Self {
        self.path.insert_str(0, &element.to_string());
        self
    }

    /// Several errors as one text.
    pub(super) fn join(errors: &[Self]) -> String {
        match errors {
            [one] => one.to_string(),
            many => {
                let lines = many.iter().map(|error| format!("\n  {error}"));
                format!("errors:{}", lines.collect::<String>())
            }
        }
    }
}

impl std::fmt::Display for TypeMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

/// The alternatives of a type that a value can take: one if its form decides, all of them for null and for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alternatives {
    Scalar,
    List,
    Map,
    All,
}

/// How a value is walked.
pub(super) enum Form<'a> {
    Scalar(ScalarType),
    List(&'a ListType),
    Map(&'a MapType),
}

pub(super) fn alternatives(type_: &MergeType, value: Option<&Value>) -> Alternatives {
    match value {
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) if type_.scalar.is_some() => {
            Alternatives::Scalar
        }
        Some(Value::Array(_)) if type_.list.is_some() => Alternatives::List,
        Some(Value::Object(_)) if type_.map.is_some() => Alternatives::Map,
        _ => Alternatives::All,
    }
}

/// The form of a value with these alternatives: a map before a scalar before a list.
pub(super) fn form(type_: &MergeType, alternatives: Alternatives) -> Option<Form<'_>> {
    let map = || type_.map.as_ref().map(Form::Map);
    let scalar = || type_.scalar.map(Form::Scalar);
    let list = || type_.list.as_ref().map(Form::List);
    match alternatives {
        Alternatives::Scalar => scalar(),
        Alternatives::List => list(),
        Alternatives::Map => map(),
        Alternatives::All => map().or_else(scalar).or_else(list),
    }
}

/// The form of one value.
pub(super) fn form_of<'a>(type_: &'a MergeType, value: &Value) -> Option<Form<'a>> {
    form(type_, alternatives(type_, Some(value)))
}

/// Why an item of a list has no path element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemError {
    /// An item of a map list has none of the key fields.
    OmitsKeys,
    /// It has the wrong type. The text is kube-apiserver's.
    WrongType(&'static str),
}

/// The path element of an item of a set or map list.
pub(super) fn item_element(
    schema: &MergeSchema,
    list: &ListType,
    item: &Value,
) -> Result<PathElement, ItemError> {
    let wrong_type = |text| Err(ItemError::WrongType(text));
    match &list.ownership {
        ListOwnership::Atomic => wrong_type("invalid indexing of non-associative list"),
        ListOwnership::Set => match item {
            Value::Object(_) => {
                wrong_type("associative list without keys has an element that's a map type")
            }
            Value::Array(_) => wrong_type("not supported: associative list with lists as elements"),
            Value::Null => {
                wrong_type("associative list without keys has an element that's an explicit null")
            }
            value => Ok(PathElement::Value(value.clone())),
        },
        ListOwnership::Map(keys) => {
            let fields = match item {
                Value::Null => {
                    return wrong_type("associative list with keys may not have a null element");
                }
                Value::Object(fields) => fields,
                _ => return wrong_type("associative list with keys may not have non-map elements"),
            };
            let map = schema.get(list.items).map.as_ref();
            let value_of = |key: &String| {
                let default = || map?.fields.get(key)?.default.as_ref();
                fields.get(key).or_else(default).cloned()
            };
            let mut found: Vec<(Box<str>, Value)> =
                keys.iter().filter_map(|key| Some((key.as_str().into(), value_of(key)?))).collect();
            if found.is_empty() && !keys.is_empty() {
                return Err(ItemError::OmitsKeys);
            }
            found.sort_by(|left, right| left.0.cmp(&right.0));
            Ok(PathElement::Key(found.into()))
        }
    }
}

/// The whole text of an error of [`item_element`].
pub(super) fn item_error(list: &ListType, index: usize, error: ItemError) -> TypeMismatch {
    let keys: &[String] = match &list.ownership {
        ListOwnership::Map(keys) => keys,
        ListOwnership::Atomic | ListOwnership::Set => &[],
    };
    let keys: Vec<String> = keys.iter().map(|key| crate::schema::quote(key)).collect();
    let keys = keys.join(" ");
    TypeMismatch::new(match error {
        ItemError::WrongType(text) => format!("element {index}: {text}"),
        ItemError::OmitsKeys => format!(
            "element {index}: associative list with keys has an element that omits all key fields [{keys}] (and \
             doesn't have default values for any key fields)"
        ),
    })
}

/// Whether a scalar fits its type. Nothing and null fit every type.
pub(super) fn check_scalar(
    type_: ScalarType,
    value: Option<&Value>,
    side: &str,
) -> Option<TypeMismatch> {
    let value = value.filter(|value| !value.is_null())?;
    let text = match type_ {
        ScalarType::Number if !value.is_number() => {
            format!("{side}expected numeric (int or float), got {}", go_type(value))
        }
        ScalarType::Text if !value.is_string() => {
            format!(
                "{side}expected string, got &value.valueUnstructured{{Value:{}}}",
                go_syntax(value)
            )
        }
        ScalarType::Flag if !value.is_boolean() => {
            format!("{side}expected boolean, got {}", go_value(value))
        }
        ScalarType::Any if value.is_array() || value.is_object() => {
            format!("{side}expected any scalar, got {}", go_value(value))
        }
        _ => return None,
    };
    Some(TypeMismatch::new(text))
}

/// Checks that an object fits its schema. `duplicates` says whether sets and map lists may have an item twice.
pub(super) fn validate(
    schema: &MergeSchema,
    type_: TypeId,
    value: &Value,
    duplicates: bool,
) -> Vec<TypeMismatch> {
    let type_ = schema.get(type_);
    match form_of(type_, value) {
        Some(Form::Scalar(scalar)) => check_scalar(scalar, Some(value), "").into_iter().collect(),
        Some(Form::List(list)) => validate_list(schema, list, value, duplicates),
        Some(Form::Map(map)) => validate_map(schema, map, value, duplicates),
        None => vec![TypeMismatch::new("schema error: invalid atom: inlined")],
    }
}

fn validate_list(
    schema: &MergeSchema,
    list: &ListType,
    value: &Value,
    duplicates: bool,
) -> Vec<TypeMismatch> {
    let items = match value {
        Value::Null => return Vec::new(),
        Value::Array(items) => items,
        other => return vec![TypeMismatch::new(format!("expected list, got {}", go_value(other)))],
    };
    let mut errors = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let element = match &list.ownership {
            ListOwnership::Atomic => None,
            _ => match item_element(schema, list, item) {
                Ok(element) => Some(element),
                Err(error) => {
                    errors.push(item_error(list, index, error));
                    return errors;
                }
            },
        };
        let inner = validate(schema, list.items, item, duplicates);
        let twice = !duplicates && element.as_ref().is_some_and(|element| seen.contains(element));
        if !inner.is_empty() || twice {
            let index = i64::try_from(index).unwrap_or(i64::MAX);
            let shown = element.clone().unwrap_or(PathElement::Index(index));
            if twice {
                errors.push(TypeMismatch::new(format!("duplicate entries for key {shown}")));
            }
            errors.extend(inner.into_iter().map(|error| error.under(&shown)));
        }
        if let (false, Some(element)) = (duplicates, element) {
            seen.insert(element);
        }
    }
    errors
}

fn validate_map(
    schema: &MergeSchema,
    map: &MapType,
    value: &Value,
    duplicates: bool,
) -> Vec<TypeMismatch> {
    let fields = match value {
        Value::Null => return Vec::new(),
        Value::Object(fields) => fields,
        other => return vec![TypeMismatch::new(format!("expected map, got {}", go_value(other)))],
    };
    let mut errors = Vec::new();
    for (name, value) in fields {
        let inner = match map.field_type(name) {
            Some(type_) => validate(schema, type_, value, duplicates),
            None => {
                let unknown = TypeMismatch::new("field not declared in schema");
                errors.push(unknown.under(&PathElement::field(name)));
                return errors;
            }
        };
        if !inner.is_empty() {
            let element = PathElement::field(name);
            errors.extend(inner.into_iter().map(|error| error.under(&element)));
        }
    }
    errors
}

/// How much of a value an error shows.
const MAX_SHOWN_BYTES: usize = 1024;

fn shortened(text: String) -> String {
    if text.len() <= MAX_SHOWN_BYTES { text } else { crate::object_limits::shorten(&text) }
}

/// A value as Go prints a pointer to it (`%v`).
fn go_value(value: &Value) -> String {
    fn plain(value: &Value) -> String {
        match value {
            Value::Null => "<nil>".to_owned(),
            Value::String(text) => text.clone(),
            Value::Array(items) => {
                format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" "))
            }
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| format!("{name}:{}", plain(value)));
                format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
            }
            Value::Number(number) if number.is_f64() => {
                crate::schema::go_float(number.as_f64().unwrap_or_default())
            }
            other => other.to_string(),
        }
    }
    shortened(format!("&{{{}}}", plain(value)))
}

/// A value as Go prints its syntax (`%#v`).
fn go_syntax(value: &Value) -> String {
    let text = match value {
        Value::String(text) => crate::schema::quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| {
                format!("{}:{}", crate::schema::quote(name), go_syntax(value))
            });
            format!("map[string]interface {{}}{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Null => "interface {}(nil)".to_owned(),
        other => other.to_string(),
    };
    shortened(text)
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
