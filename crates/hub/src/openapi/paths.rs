//! The paths and operations of kinds.

use serde_json::{Map, Value, json};

use super::schemas::{meta_reference, reference, schema_name};
use super::{group_version, group_version_kind};
use crate::discovery::{subresources, verbs};
use crate::kind_registry::ResourceKind;

/// The operations of a kind in OpenAPI 3, by path.
pub(super) fn v3(kind: &ResourceKind) -> Map<String, Value> {
    paths(kind, OpenApiVersion::V3)
}

/// The operations of a kind in OpenAPI 2, by path.
pub(super) fn v2(kind: &ResourceKind) -> Map<String, Value> {
    let mut paths = paths(kind, OpenApiVersion::V2);
    for (path, item) in &mut paths {
        let parameters = path_parameters(path);
        if !parameters.is_empty() {
            item["parameters"] = parameters.into();
        }
    }
    paths
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenApiVersion {
    V2,
    V3,
}

fn paths(kind: &ResourceKind, dialect: OpenApiVersion) -> Map<String, Value> {
    let root = format!("/{}", group_version(kind));
    let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    let all = format!("{root}{scope}/{}", kind.plural);
    let one = format!("{all}/{{name}}");
    let collection = [("get", "list"), ("post", "create"), ("delete", "deletecollection")];
    let single = [("get", "get"), ("put", "update"), ("patch", "patch"), ("delete", "delete")];
    let mut found = Map::new();
    if kind.namespaced {
        found.insert(
            format!("{root}/{}", kind.plural),
            path_item(kind, &[("get", "list")], verbs(kind), dialect),
        );
    }
    found.insert(all, path_item(kind, &collection, verbs(kind), dialect));
    for (part, verbs) in subresources(kind) {
        found.insert(format!("{one}/{part}"), path_item(kind, &single, verbs, dialect));
    }
    found.insert(one, path_item(kind, &single, verbs(kind), dialect));
    found
}

fn path_item(
    kind: &ResourceKind,
    methods: &[(&str, &str)],
    verbs: &[&str],
    dialect: OpenApiVersion,
) -> Value {
    let allowed = methods.iter().filter(|(_, verb)| verbs.contains(verb));
    let operations = allowed
        .map(|(method, verb)| ((*method).to_owned(), operation(kind, verb, dialect)))
        .collect::<Map<_, _>>();
    operations.into()
}

/// The names that stand in a path, which OpenAPI 2 requires to be declared.
fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|word| word.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name| json!({"name": name, "in": "path", "required": true, "type": "string"});
    names.map(parameter).collect()
}

fn operation(kind: &ResourceKind, verb: &str, dialect: OpenApiVersion) -> Value {
    let parameters: &[&str] = match verb {
        "list" | "deletecollection" => {
            &["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "watch"]
        }
        "create" | "update" => &["dryRun", "fieldManager", "fieldValidation"],
        "patch" => &["dryRun", "fieldManager", "fieldValidation", "force"],
        "delete" => &["dryRun", "gracePeriodSeconds", "propagationPolicy"],
        _ => &[],
    };
    let parameters: Vec<Value> = parameters.iter().map(|name| parameter(name, dialect)).collect();
    let result = match verb {
        "list" => reference(
            &schema_name(kind).replace(&format!(".{}", kind.kind), &format!(".{}", kind.list_kind)),
        ),
        "delete" | "deletecollection" => meta_reference("Status"),
        _ => reference(&schema_name(kind)),
    };
    let action = match verb {
        "create" => "post",
        "update" => "put",
        other => other,
    };
    let mut operation = json!({
        "description": format!("{verb} {}", kind.kind),
        "operationId": format!("{verb}{}{}{}", camel_case(&kind.group), kind.version, kind.kind),
        "parameters": parameters,
        "responses": {"200": response(&result, dialect)},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": group_version_kind(kind, &kind.kind),
    });
    match (dialect, body(kind, verb)) {
        (OpenApiVersion::V3, Some(body)) => operation["requestBody"] = body,
        (OpenApiVersion::V2, Some(body)) => add_v2_body(&mut operation, &body),
        (_, None) => {}
    }
    operation
}

/// The body as a parameter, and the media types of both directions.
fn add_v2_body(operation: &mut Value, body: &Value) {
    let content = body["content"].as_object();
    let types: Vec<&String> = content.into_iter().flat_map(Map::keys).collect();
    let schema = content.and_then(|content| content.values().next());
    let schema = schema.map(|media| v2_reference(&media["schema"])).unwrap_or_default();
    operation["consumes"] = json!(types);
    if let Some(parameters) = operation["parameters"].as_array_mut() {
        let body = json!({"name": "body", "in": "body", "required": true, "schema": schema});
        parameters.push(body);
    }
}

fn v2_reference(schema: &Value) -> Value {
    let text = schema["$ref"].as_str().unwrap_or_default();
    json!({"$ref": text.replace("#/components/schemas/", "#/definitions/")})
}

fn parameter(name: &str, dialect: OpenApiVersion) -> Value {
    let type_ = match name {
        "limit" | "gracePeriodSeconds" => "integer",
        "watch" | "force" => "boolean",
        _ => "string",
    };
    match dialect {
        OpenApiVersion::V2 => json!({"name": name, "in": "query", "type": type_}),
        OpenApiVersion::V3 => json!({"name": name, "in": "query", "schema": {"type": type_}}),
    }
}

fn response(schema: &Value, dialect: OpenApiVersion) -> Value {
    match dialect {
        OpenApiVersion::V3 => {
            json!({"description": "OK", "content": {"application/json": {"schema": schema}}})
        }
        OpenApiVersion::V2 => json!({"description": "OK", "schema": v2_reference(schema)}),
    }
}

fn body(kind: &ResourceKind, verb: &str) -> Option<Value> {
    let content = match verb {
        "create" | "update" => {
            json!({"application/json": {"schema": reference(&schema_name(kind))}})
        }
        "patch" => {
            let mut types = vec!["application/json-patch+json", "application/merge-patch+json"];
            if kind.built_in {
                types.push("application/strategic-merge-patch+json");
            }
            types.push("application/apply-patch+yaml");
            let entries = types
                .into_iter()
                .map(|name| (name.to_owned(), json!({"schema": meta_reference("Patch")})));
            Value::Object(entries.collect())
        }
        "delete" | "deletecollection" => {
            json!({"application/json": {"schema": meta_reference("DeleteOptions")}})
        }
        _ => return None,
    };
    Some(json!({"content": content}))
}

/// `machineconfiguration.openshift.io` as `MachineconfigurationOpenshiftIo`.
fn camel_case(group: &str) -> String {
    let group = if group.is_empty() { "core" } else { group };
    group
        .split('.')
        .map(|word| {
            let mut letters = word.chars();
            let first = letters.next().map(|c| c.to_ascii_uppercase());
            first.into_iter().chain(letters).collect::<String>()
        })
        .collect()
}
