//! The queries of `get`, by kind, and the objects in their responses.

use anyhow::Result;
use serde_json::Value;

use super::resource_args::ResourceArgs;
use super::session::ClusterSession;
use crate::kubernetes::ServedResource;

/// A query for objects of one kind; no name means all.
#[derive(Debug)]
pub(in crate::cli) struct ResourceQuery<'a> {
    pub(in crate::cli) resource: &'a ServedResource,
    pub(in crate::cli) names: Vec<String>,
}

impl<'a> ResourceQuery<'a> {
    /// The queries for resource arguments. Objects of one kind are in one query.
    pub(in crate::cli) fn resolve(
        session: &'a ClusterSession,
        resource_args: ResourceArgs,
    ) -> Result<Vec<Self>> {
        match resource_args {
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

/// The objects in a response: the items of a list, or the object itself. Each gets its kind, which lists
/// omit, and loses `managedFields`, which nobody reads.
pub(in crate::cli) fn objects(resource: &ServedResource, response: &Value) -> Vec<Value> {
    let items = response.get("items").and_then(Value::as_array);
    let items = items.map_or_else(|| std::slice::from_ref(response), Vec::as_slice);
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
