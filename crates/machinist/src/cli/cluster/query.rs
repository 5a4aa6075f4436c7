//! What `get` is asked for, kind by kind, and the objects in the answers.

use anyhow::Result;
use serde_json::Value;

use super::resource_args::ResourceArgs;
use super::session::ClusterSession;
use crate::kubernetes::ServedResource;

/// Objects of one kind that are asked for; no name means all.
#[derive(Debug)]
pub(in crate::cli) struct ResourceQuery<'a> {
    pub(in crate::cli) resource: &'a ServedResource,
    pub(in crate::cli) names: Vec<String>,
}

impl<'a> ResourceQuery<'a> {
    /// The parts of what was named; objects of one kind come together.
    pub(in crate::cli) fn resolve(
        session: &'a ClusterSession,
        words: ResourceArgs,
    ) -> Result<Vec<Self>> {
        match words {
            ResourceArgs::Kinds(kinds, names) => kinds
                .iter()
                .map(|kind| {
                    Ok(Self { resource: session.resources.by_name(kind)?, names: names.clone() })
                })
                .collect(),
            ResourceArgs::Objects(pairs) => {
                let mut parts: Vec<Self> = Vec::new();
                for (kind, name) in pairs {
                    let resource = session.resources.by_name(&kind)?;
                    match parts.iter_mut().find(|part| part.resource == resource) {
                        Some(part) => part.names.push(name),
                        None => parts.push(Self { resource, names: vec![name] }),
                    }
                }
                Ok(parts)
            }
        }
    }
}

/// The objects of an answer: those of a list, or the one. Each as people want it: with its kind,
/// which lists leave out, and without the book-keeping of the server.
pub(in crate::cli) fn objects(resource: &ServedResource, answer: &Value) -> Vec<Value> {
    let items = answer.get("items").and_then(Value::as_array);
    let items = items.map_or_else(|| std::slice::from_ref(answer), Vec::as_slice);
    items.iter().map(|item| with_type_meta(resource, item)).collect()
}

fn with_type_meta(resource: &ServedResource, object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.entry("apiVersion").or_insert_with(|| resource.api_version().into());
        fields.entry("kind").or_insert_with(|| resource.kind.clone().into());
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
    object
}

/// The name of an object.
pub(in crate::cli) fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}
