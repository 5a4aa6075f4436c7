//! Structural schemas of CRDs: defaulting, pruning and validation of objects.
//!
//! A schema is compiled once. Defaulting, pruning and validation then walk the object in linear
//! time. The rules (`x-kubernetes-validations`) are CEL expressions; they run only on objects of
//! the right shape, so the schema's own limits bound their cost.
//!
//! Messages are those of kube-apiserver, word for word. They are ordered by field, where
//! kube-apiserver has no order. Pure; called by [`crate::admission`] and by machinist's offline
//! validation.

mod cel_env;
mod cel_library;
mod cel_value;
mod defaults;
mod embedded;
mod error;
mod format;
mod lists;
mod node;
mod prune;
mod rule_checks;
mod validate;
mod validation_rules;
mod value_checks;

use serde_json::Value;

pub use error::{FieldError, FieldReason, format_value, go_float, quote};

pub(crate) use cel_value::escape as cel_field_name;
use node::SchemaNode;
pub use rule_checks::{CheckedRule, check_rule};

/// Why a schema cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A part of the schema is malformed.
    #[error("{path}: {what}")]
    Malformed {
        /// Path in the schema.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// A pattern is not a regular expression.
    #[error("{path}: bad pattern '{pattern}': {why}")]
    Pattern {
        /// Path in the schema.
        path: String,
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// A rule cannot be compiled.
    #[error("{path}: bad rule '{rule}': {why}")]
    Rule {
        /// Path in the schema.
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
    /// Compiles the `openAPIV3Schema` of a CRD version.
    ///
    /// # Errors
    /// It is not a structural schema, or a pattern or rule in it is malformed.
    pub fn compile(openapi_v3_schema: &Value) -> Result<Self, SchemaError> {
        Ok(Self { root: SchemaNode::compile(openapi_v3_schema)? })
    }

    /// Drops nulls that are not allowed, then applies defaults.
    pub fn apply_defaults(&self, object: &mut Value) {
        defaults::drop_nulls(&self.root, object);
        defaults::apply_defaults(&self.root, object);
    }

    /// Applies defaults only.
    pub fn apply_defaults_keeping_nulls(&self, object: &mut Value) {
        defaults::apply_defaults(&self.root, object);
    }

    /// Drops unknown fields of a part of an object, such as a default. Returns their paths.
    pub fn prune_part(&self, value: &mut Value) -> Vec<String> {
        prune::prune_part(&self.root, value)
    }

    /// Drops unknown fields. Returns their paths (`spec.list[0].field`), sorted.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(&self.root, object)
    }

    /// Validates an object.
    ///
    /// With the stored object as `old`, transition rules are checked too. Errors in unchanged parts
    /// are ignored, so that a stricter schema does not block updates of stored objects.
    #[must_use]
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = validate::validate(&self.root, new, old);
        errors.extend(embedded::validate(&self.root, new));
        self.validate_lists_and_rules(new, old, errors)
    }

    /// Validates an update of the status. The rest of `new` must equal `old`.
    #[must_use]
    pub fn validate_status(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let errors = validate::validate_status(&self.root, new, old);
        self.validate_lists_and_rules(new, old, errors)
    }

    /// Checks lists and rules. Runs after the shape is valid.
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
            errors.push(FieldError::rules_skipped());
            return errors;
        }
        errors.extend(validation_rules::validate(&self.root, new, old));
        errors
    }
}

/// Checks that a pattern is a regular expression.
///
/// # Errors
/// It is not, or it is too large when compiled; the text says why.
pub fn check_pattern(pattern: &str) -> Result<(), String> {
    format::regex(pattern).map(|_| ())
}

/// Writes whole floats as integers (`1.0` as `1`), as kube-apiserver does when it stores an object.
/// Call it after validation, whose messages show the original.
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

/// Appends a field to a path: `spec` and `a` give `spec.a`.
fn child_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The path in error messages; `<nil>` for the object itself.
fn display_path(path: &str) -> &str {
    if path.is_empty() { "<nil>" } else { path }
}
