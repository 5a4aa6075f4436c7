//! The schemas of kinds: from `k8s-openapi` for built-in kinds, from CRDs for the others.

use std::sync::LazyLock;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Secret, ServiceAccount};
use k8s_openapi::api::events::v1::Event as NewEvent;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ListMeta, ObjectMeta, Status};
use k8s_openapi::schemars::JsonSchema;
use k8s_openapi::schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{convert, group_version_kind};
use crate::kind_registry::ResourceKind;

const META_PACKAGE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The schemas of the built-in kinds and of the types that they use, by name.
static BUILT_IN_SCHEMAS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let mut all = Map::new();
    all.extend(definitions::<Node>());
    all.extend(definitions::<Namespace>());
    all.extend(definitions::<Secret>());
    all.extend(definitions::<ConfigMap>());
    all.extend(definitions::<ServiceAccount>());
    all.extend(definitions::<Event>());
    all.extend(definitions::<NewEvent>());
    all.extend(definitions::<Lease>());
    all.extend(definitions::<CertificateSigningRequest>());
    all.extend(definitions::<Role>());
    all.extend(definitions::<ClusterRole>());
    all.extend(definitions::<RoleBinding>());
    all.extend(definitions::<ClusterRoleBinding>());
    all.extend(definitions::<CustomResourceDefinition>());
    all.extend(definitions::<DeleteOptions>());
    all.extend(definitions::<Status>());
    all.extend(definitions::<ListMeta>());
    all.extend(definitions::<ObjectMeta>());
    all.insert(
        format!("{META_PACKAGE}.Patch"),
        json!({"description": "A change of an object.", "type": "object"}),
    );
    mark_merge_lists(&mut all);
    all
});

fn definitions<T: JsonSchema>() -> Map<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let _ = generator.subschema_for::<T>();
    let mut definitions = generator.take_definitions(false);
    definitions.values_mut().for_each(convert::wrap_references);
    definitions
}

/// Marks the lists that a strategic merge patch merges, so that kubectl makes small patches.
fn mark_merge_lists(all: &mut Map<String, Value>) {
    let lists = [
        ("apimachinery.pkg.apis.meta.v1.ObjectMeta", "ownerReferences", "uid"),
        ("apimachinery.pkg.apis.meta.v1.ObjectMeta", "finalizers", ""),
        ("api.core.v1.NodeSpec", "podCIDRs", ""),
        ("api.core.v1.NodeStatus", "conditions", "type"),
        ("api.core.v1.NodeStatus", "addresses", "type"),
        ("api.core.v1.NamespaceStatus", "conditions", "type"),
        ("api.core.v1.ServiceAccount", "secrets", "name"),
    ];
    for (name, field, key) in lists {
        let schema = all.get_mut(&format!("io.k8s.{name}"));
        let list = schema.and_then(|schema| schema.pointer_mut(&format!("/properties/{field}")));
        let Some(Value::Object(list)) = list else { continue };
        list.insert("x-kubernetes-patch-strategy".into(), "merge".into());
        if !key.is_empty() {
            list.insert("x-kubernetes-patch-merge-key".into(), key.into());
        }
    }
}

/// The schema name of a kind.
pub(super) fn schema_name(kind: &ResourceKind) -> String {
    let package = match (kind.built_in, kind.group.as_str()) {
        (true, "") => "io.k8s.api.core".to_owned(),
        (true, "apiextensions.k8s.io") => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions".to_owned()
        }
        (true, group) => {
            format!("io.k8s.api.{}", group.split('.').next().unwrap_or_default())
        }
        (false, group) => group.rsplit('.').collect::<Vec<_>>().join("."),
    };
    format!("{package}.{}.{}", kind.version, kind.kind)
}

/// A reference to a schema.
pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// A reference to a schema of the meta package, such as `Status`.
pub(super) fn meta_reference(name: &str) -> Value {
    reference(&format!("{META_PACKAGE}.{name}"))
}

/// The schemas that every document includes.
pub(super) fn common_schemas() -> Map<String, Value> {
    let names = ["ObjectMeta", "ListMeta", "DeleteOptions", "Status", "Patch"];
    let mut found = Map::new();
    names.iter().for_each(|name| collect_built_in(&format!("{META_PACKAGE}.{name}"), &mut found));
    found
}

/// The schemas of a kind, of its list and of what they refer to.
pub(super) fn kind_schemas(kind: &ResourceKind) -> Map<String, Value> {
    let name = schema_name(kind);
    let mut found = Map::new();
    if kind.is_always_empty() {
        found.insert(name.clone(), empty_kind_schema());
    } else if kind.built_in {
        collect_built_in(&name, &mut found);
    } else {
        found.insert(name.clone(), crd_schema(kind));
    }
    if let Some(Value::Object(schema)) = found.get_mut(&name) {
        if kind.built_in {
            schema.remove("required");
        }
        schema.insert(
            "x-kubernetes-group-version-kind".into(),
            json!([group_version_kind(kind, &kind.kind)]),
        );
    }
    found.insert(
        name.replace(&format!(".{}", kind.kind), &format!(".{}", kind.list_kind)),
        list_schema(kind),
    );
    found
}

/// The schema of a kind of which there never is an object.
fn empty_kind_schema() -> Value {
    json!({
        "description": "A hub runs no workloads: there never is an object of this kind.",
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [meta_reference("ObjectMeta")]},
        },
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// Adds a built-in schema and everything that it refers to.
fn collect_built_in(name: &str, into: &mut Map<String, Value>) {
    if into.contains_key(name) {
        return;
    }
    let Some(schema) = BUILT_IN_SCHEMAS.get(name) else { return };
    into.insert(name.to_owned(), schema.clone());
    let mut names = Vec::new();
    convert::collect_references(schema, &mut names);
    names.into_iter().for_each(|name| collect_built_in(name, into));
}

/// The schema of a CRD with the fields that all objects have.
fn crd_schema(kind: &ResourceKind) -> Value {
    let mut schema = kind.schema.clone().unwrap_or_else(|| json!({"type": "object"}));
    let Some(fields) = schema.as_object_mut() else { return schema };
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        for field in ["apiVersion", "kind"] {
            let known = BUILT_IN_SCHEMAS.get("io.k8s.api.core.v1.Node");
            let pointer = format!("/properties/{field}");
            let text = known.and_then(|node| node.pointer(&pointer)).cloned();
            properties.insert(field.to_owned(), text.unwrap_or_else(|| json!({"type": "string"})));
        }
        let description = "Standard object's metadata.";
        properties.insert(
            "metadata".to_owned(),
            json!({"description": description, "allOf": [meta_reference("ObjectMeta")]}),
        );
    }
    schema
}

fn list_schema(kind: &ResourceKind) -> Value {
    json!({
        "description": format!("{} is a list of {}", kind.list_kind, kind.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [meta_reference("ListMeta")]},
            "items": {"type": "array", "items": reference(&schema_name(kind))},
        },
        "x-kubernetes-group-version-kind": [group_version_kind(kind, &kind.list_kind)],
    })
}
