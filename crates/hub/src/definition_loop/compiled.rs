//! The kinds of a definition, with their compiled schemas.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::storage_version;
use crate::admission::Admission;
use crate::built_in;
use crate::definition::lifecycle::condition_holds;
use crate::kind_registry::{DefinedKind, ResourceKind};
use crate::object::metadata_str;
use crate::schema::Schema;
use crate::served_kinds::AdmittedKind;

/// A compiled definition.
pub(super) struct CompiledDefinition {
    name: String,
    generation: Value,
    accepted_names: Value,
    is_terminating: bool,
    kinds: Vec<AdmittedKind>,
}

impl CompiledDefinition {
    /// Compiles a definition.
    ///
    /// # Errors
    /// A schema cannot be compiled; the text says why.
    pub(super) fn new(definition: &Value) -> Result<Self, String> {
        let mut accepted = definition.clone();
        accepted["spec"]["names"] = definition["status"]["acceptedNames"].clone();
        let schemas = compile_schemas(definition)?;
        let storage_version = storage_version(definition)?;
        let is_terminating = condition_holds(definition, "Terminating");
        let kinds = built_in::from_crd(&accepted).into_iter().map(|mut kind| {
            let schema = schemas.get(&kind.version).cloned();
            kind.defined = Some(Arc::new(DefinedKind {
                storage_version: storage_version.clone(),
                served_versions: served_versions(definition),
                schemas: schemas.clone(),
                is_terminating,
                deprecation_warning: deprecation_warning(definition, &kind),
            }));
            let admission = Admission::with_schema(&kind, schema);
            (Arc::new(kind), Arc::new(admission))
        });
        Ok(Self {
            name: metadata_str(definition, "name").to_owned(),
            generation: definition["metadata"]["generation"].clone(),
            accepted_names: definition["status"]["acceptedNames"].clone(),
            is_terminating,
            kinds: kinds.collect(),
        })
    }

    /// Whether it is what the definition compiles to.
    pub(super) fn is_of(&self, definition: &Value) -> bool {
        self.generation == definition["metadata"]["generation"]
            && self.accepted_names == definition["status"]["acceptedNames"]
            && self.is_terminating == condition_holds(definition, "Terminating")
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = &AdmittedKind> {
        self.kinds.iter()
    }
}

fn served_versions(definition: &Value) -> Vec<String> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let served = versions.filter(|version| version["served"] == true);
    served.filter_map(|version| version["name"].as_str().map(str::to_owned)).collect()
}

fn compile_schemas(definition: &Value) -> Result<BTreeMap<String, Arc<Schema>>, String> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let schemas = versions.filter_map(|version| {
        let schema = version.pointer("/schema/openAPIV3Schema")?;
        Some((version["name"].as_str()?.to_owned(), schema))
    });
    let compiled = schemas.map(|(name, schema)| {
        let schema = Schema::compile(schema).map_err(|error| error.to_string())?;
        Ok((name, Arc::new(schema)))
    });
    compiled.collect()
}

fn deprecation_warning(definition: &Value, kind: &ResourceKind) -> Option<String> {
    let mut versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let version = versions.find(|version| version["name"] == kind.version.as_str())?;
    if version["deprecated"] != true {
        return None;
    }
    let own = version["deprecationWarning"].as_str().map(str::to_owned);
    Some(own.unwrap_or_else(|| format!("{} {} is deprecated", kind.api_version(), kind.kind)))
}
