//! Checks objects against the schema and the rules of their kind, as an API server does, but offline.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use machinist_core::lint::LintFinding;
use machinist_hub::schema::{FieldError, FieldReason, Schema};
use serde_json::Value;

/// The schemas of Machinist's kinds, compiled on first use.
#[derive(Debug, Default)]
pub(super) struct SchemaCache(HashMap<(String, String), Option<Schema>>);

impl SchemaCache {
    /// The findings for an object, by the definition of its kind.
    ///
    /// # Errors
    /// None in practice: the definitions are generated from our own types.
    pub(super) fn check(
        &mut self,
        crd: &CustomResourceDefinition,
        version: &str,
        object: &Value,
    ) -> Result<Vec<LintFinding>> {
        let kind = &crd.spec.names.kind;
        let schema = match self.0.entry((kind.clone(), version.to_owned())) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                entry.insert(compile(crd, version).with_context(|| format!("schema of {kind}"))?)
            }
        };
        Ok(schema.as_ref().map(|schema| findings(schema, object)).unwrap_or_default())
    }
}

fn compile(crd: &CustomResourceDefinition, version: &str) -> Result<Option<Schema>> {
    let served = crd.spec.versions.iter().find(|served| served.name == version);
    let schema = served.and_then(|served| served.schema.as_ref()?.open_api_v3_schema.as_ref());
    let Some(schema) = schema else { return Ok(None) };
    Ok(Some(Schema::compile(&serde_json::to_value(schema)?)?))
}

/// The order of an API server: unknown fields, then defaults, then validation.
fn findings(schema: &Schema, object: &Value) -> Vec<LintFinding> {
    let mut object = object.clone();
    let unknown = schema.prune(&mut object).into_iter().map(|field| {
        LintFinding::error(field, "is not a field of this kind", "correct its name, or remove it")
    });
    let mut findings: Vec<LintFinding> = unknown.collect();
    schema.apply_defaults(&mut object);
    findings.extend(schema.validate(&object, None).iter().filter_map(finding));
    findings
}

/// A finding without the value, which may be a secret in the wrong place.
fn finding(error: &FieldError) -> Option<LintFinding> {
    let (message, remedy) = match error.reason {
        FieldReason::RulesSkipped => return None,
        FieldReason::Required => ("is missing", "add it"),
        FieldReason::TypeInvalid => ("has the wrong type", "correct the type of the value"),
        FieldReason::NotSupported => ("is not one of the allowed values", "write one of them"),
        FieldReason::Duplicate => ("is given twice", "remove one of the two"),
        FieldReason::Forbidden => ("is not allowed here", "remove it"),
        FieldReason::TooLong | FieldReason::TooMany => ("is too long", "shorten it"),
        FieldReason::Invalid | FieldReason::NotFound | FieldReason::Internal => {
            ("is not valid", "correct the value")
        }
    };
    let message = match error.detail.as_str() {
        "" => message.to_owned(),
        detail => format!("{message}: {detail}"),
    };
    let field = if error.field == "<nil>" { "(object)" } else { &error.field };
    Some(LintFinding::error(field, message, remedy))
}
