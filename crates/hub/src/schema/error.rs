//! Field errors with the texts of kube-apiserver.

use std::fmt;

use serde_json::Value;

/// The kind of a field error. Each has its own prefix in the message and its own reason in the
/// causes of a `Status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldReason {
    /// A required value is missing.
    Required,
    /// The value is malformed.
    Invalid,
    /// The value has the wrong type.
    TypeInvalid,
    /// The value is not one of the supported ones.
    NotSupported,
    /// The value is a duplicate.
    Duplicate,
    /// The value is not allowed here.
    Forbidden,
    /// The string is too long.
    TooLong,
    /// The list or map has too many entries.
    TooMany,
    /// The referenced object does not exist.
    NotFound,
    /// The validation itself failed.
    Internal,
    /// The rules of the schema were not checked, because of the other errors.
    RulesSkipped,
}

impl FieldReason {
    /// The reason in the causes of a `Status`: `FieldValueRequired`.
    #[must_use]
    pub fn cause_type(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid | Self::RulesSkipped => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
        }
    }

    fn heading(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid | Self::RulesSkipped => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::Internal)
    }
}

/// An error of one field: `spec.x: Invalid value: "y": detail`.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// The field: `spec.items[2].name`; `<nil>` for the whole object.
    pub field: String,
    /// The kind of error.
    pub reason: FieldReason,
    /// The invalid value, if it is shown.
    pub value: Option<Value>,
    /// The explanation, or empty.
    pub detail: String,
}

impl FieldError {
    /// An error that shows no value.
    pub fn new(
        field: impl Into<String>,
        reason: FieldReason,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self { field: field.into(), reason, value, detail: detail.into() }
    }

    /// A required value is missing.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldReason::Required, None, detail)
    }

    /// A value is malformed.
    pub fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(field, FieldReason::Invalid, Some(value.into()), detail)
    }

    /// The rules of the schema were not checked, because of the other errors.
    #[must_use]
    pub fn rules_skipped() -> Self {
        let detail = "some validation rules were not checked because the object was invalid; correct the existing \
                      errors to complete validation";
        Self::new("<nil>", FieldReason::RulesSkipped, Some(Value::Null), detail)
    }

    /// The value is not allowed.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldReason::Forbidden, None, detail)
    }

    /// A value is a duplicate.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(field, FieldReason::Duplicate, Some(value.into()), "")
    }

    /// A value is not one of `supported`.
    pub fn not_supported(
        field: impl Into<String>,
        value: impl Into<Value>,
        supported: &[&str],
    ) -> Self {
        let names: Vec<String> = supported.iter().map(|name| quote(name)).collect();
        let detail = if names.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", names.join(", "))
        };
        Self::new(field, FieldReason::NotSupported, Some(value.into()), detail)
    }

    /// A string is longer than `max`.
    pub fn too_long(field: impl Into<String>, max: u64) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {max} {unit}");
        Self::new(field, FieldReason::TooLong, None, detail)
    }

    /// A list or map has more than `max` entries.
    pub fn too_many(field: impl Into<String>, actual: usize, max: u64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        Self::new(field, FieldReason::TooMany, Some(actual.into()), detail)
    }

    /// The message without the field, as in the causes of a `Status`.
    #[must_use]
    pub fn error_body(&self) -> String {
        let mut text = self.reason.heading().to_owned();
        if self.reason.shows_value()
            && let Some(value) = &self.value
        {
            text.push_str(": ");
            text.push_str(&format_value(value));
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.error_body())
    }
}

impl std::error::Error for FieldError {}

/// Formats a value for a message: strings quoted, the rest as compact JSON.
#[must_use]
pub fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(_) | Value::Bool(_) => format_number(value),
        _ => escape_html(&value.to_string()),
    }
}

/// Formats integers as they are and floats as Go does.
fn format_number(value: &Value) -> String {
    match value.as_f64() {
        Some(float) if value.is_f64() => go_float(float),
        _ => value.to_string(),
    }
}

/// Formats a float like Go's `%v`: with an exponent below 1e-4 and from 1e6 on.
#[must_use]
pub fn go_float(float: f64) -> String {
    if float != 0.0 && !(1e-4..1e6).contains(&float.abs()) {
        let text = format!("{float:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(rest) => ('-', rest),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{float}")
}

/// Escapes what Go's JSON encoder escapes for HTML.
fn escape_html(text: &str) -> String {
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Quotes a string like Go's `%q`.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if printable(c) => out.push(c),
            c if u32::from(c) < 0x80 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if u32::from(c) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

fn printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        c if c.is_control() || c.is_whitespace() => false,
        c => c.is_alphanumeric() || c.escape_debug().len() == 1,
    }
}
