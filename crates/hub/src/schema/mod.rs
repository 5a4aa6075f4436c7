//! Structural schemas: what a definition (CRD) says about the objects of a kind, applied to them.
//!
//! A schema is compiled once. It then fills in defaults, drops what it does not know, and finds faults, all in walks over
//! the object that cost no more than its size. The rules (`x-kubernetes-validations`) are CEL programs; they run only on
//! objects that have the right shape, so the schema's own limits bound their work.
//!
//! Messages are those of an API server, word for word; their order is by field, where the API server has none.

mod cel_env;
mod cel_value;
mod defaults;
mod embedded;
mod error;
mod format;
mod lists;
mod node;
mod prune;
mod validate;
mod validation_rules;
mod value_checks;

use serde_json::Value;

pub use error::{FieldError, FieldReason, format_value, go_float, quote};

use node::SchemaNode;

/// Why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A part of the schema has the wrong form.
    #[error("{path}: {what}")]
    Malformed {
        /// Where in the schema.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// A pattern is no regular expression.
    #[error("{path}: bad pattern '{pattern}': {why}")]
    Pattern {
        /// Where in the schema.
        path: String,
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// A rule cannot be compiled.
    #[error("{path}: bad rule '{rule}': {why}")]
    Rule {
        /// Where in the schema.
        path: String,
        /// The rule.
        rule: String,
        /// What is wrong with it.
        why: String,
    },
}

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    root: SchemaNode,
}

impl Schema {
    /// Compiles the `openAPIV3Schema` of a definition's version.
    ///
    /// # Errors
    /// If it is not a structural schema, or a pattern or a rule in it is malformed.
    pub fn compile(openapi_v3_schema: &Value) -> Result<Self, SchemaError> {
        Ok(Self { root: SchemaNode::compile(openapi_v3_schema)? })
    }

    /// Drops nulls that are not allowed, and fills in defaults.
    pub fn apply_defaults(&self, object: &mut Value) {
        defaults::drop_nulls(&self.root, object);
        defaults::apply_defaults(&self.root, object);
    }

    /// Drops fields that the schema does not know; returns their paths (`spec.list[0].field`), sorted.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(&self.root, object)
    }

    /// Finds what is wrong with an object.
    ///
    /// With the stored object as `old` the transition rules are checked too; faults in parts that did not change are let
    /// pass, so that a stricter schema does not make stored objects untouchable.
    #[must_use]
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = validate::validate(&self.root, new, old);
        errors.extend(embedded::validate(&self.root, new));
        self.validate_lists_and_rules(new, old, errors)
    }

    /// Finds what is wrong with an update of the status alone: the rest of `new` must be that of `old`.
    #[must_use]
    pub fn validate_status(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let errors = validate::validate_status(&self.root, new, old);
        self.validate_lists_and_rules(new, old, errors)
    }

    /// Lists and rules, after the shape.
    fn validate_lists_and_rules(
        &self,
        new: &Value,
        old: Option<&Value>,
        mut errors: Vec<FieldError>,
    ) -> Vec<FieldError> {
        if old.is_none_or(|old| lists::validate(&self.root, old).is_empty()) {
            errors.extend(lists::validate(&self.root, new));
        }
        if !self.root.has_rules {
            return errors;
        }
        if errors.iter().any(blocks_rules) {
            errors.push(FieldError::invalid(
                "<nil>",
                Value::Null,
                "some validation rules were not checked because the object was invalid; correct \
                 the existing errors to complete validation",
            ));
            return errors;
        }
        errors.extend(validation_rules::validate(&self.root, new, old));
        errors
    }
}

/// Writes whole floats as integers (`1.0` as `1`), as an API server does when it stores an object; to be called after
/// validation, whose messages know the difference.
pub fn normalize_numbers(object: &mut Value) {
    defaults::normalize_numbers(object);
}

fn blocks_rules(error: &FieldError) -> bool {
    matches!(
        error.reason,
        FieldReason::NotSupported
            | FieldReason::Required
            | FieldReason::TooLong
            | FieldReason::TooMany
            | FieldReason::TypeInvalid
    )
}

/// A field under a path: `spec` and `a` are `spec.a`.
fn child_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The path as errors name it; that of the object itself is `<nil>`.
fn display_path(path: &str) -> &str {
    if path.is_empty() { "<nil>" } else { path }
}
