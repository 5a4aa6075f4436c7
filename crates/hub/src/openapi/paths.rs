//! The operations on kinds.

use serde_json::{Map, Value, json};

use super::schemas::{meta, name, reference};
use super::{group_version, identity};
use crate::discovery::{subresources, verbs};
use crate::registry::Kind;

/// The operations of a kind in version 3, by path.
pub(super) fn v3(kind: &Kind) -> Map<String, Value> {
    paths(kind, Dialect::V3)
}

/// The operations of a kind in version 2, by path.
pub(super) fn v2(kind: &Kind) -> Map<String, Value> {
    paths(kind, Dialect::V2)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    V2,
    V3,
}

fn paths(kind: &Kind, dialect: Dialect) -> Map<String, Value> {
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
            item(kind, &[("get", "list")], verbs(kind), dialect),
        );
    }
    found.insert(all, item(kind, &collection, verbs(kind), dialect));
    for (part, verbs) in subresources(kind) {
        found.insert(format!("{one}/{part}"), item(kind, &single, verbs, dialect));
    }
    found.insert(one, item(kind, &single, verbs(kind), dialect));
    found
}

fn item(kind: &Kind, methods: &[(&str, &str)], verbs: &[&str], dialect: Dialect) -> Value {
    let allowed = methods.iter().filter(|(_, verb)| verbs.contains(verb));
    let operations = allowed
        .map(|(method, verb)| ((*method).to_owned(), operation(kind, verb, dialect)))
        .collect::<Map<_, _>>();
    operations.into()
}

fn operation(kind: &Kind, verb: &str, dialect: Dialect) -> Value {
    let parameters: &[&str] = match verb {
        "list" | "deletecollection" => {
            &["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "watch"]
        }
        "create" | "update" | "patch" => &["dryRun", "fieldManager", "fieldValidation"],
        "delete" => &["dryRun", "gracePeriodSeconds", "propagationPolicy"],
        _ => &[],
    };
    let parameters: Vec<Value> = parameters.iter().map(|name| parameter(name, dialect)).collect();
    let answer = match verb {
        "list" => reference(
            &name(kind).replace(&format!(".{}", kind.kind), &format!(".{}", kind.list_kind)),
        ),
        "delete" | "deletecollection" => meta("Status"),
        _ => reference(&name(kind)),
    };
    let action = match verb {
        "create" => "post",
        "update" => "put",
        other => other,
    };
    let mut operation = json!({
        "description": format!("{verb} {}", kind.kind),
        "operationId": format!("{verb}{}{}{}", camel(&kind.group), kind.version, kind.kind),
        "parameters": parameters,
        "responses": {"200": response(&answer, dialect)},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": identity(kind, &kind.kind),
    });
    if let Some(body) = body(kind, verb).filter(|_| dialect == Dialect::V3) {
        operation["requestBody"] = body;
    }
    operation
}

fn parameter(name: &str, dialect: Dialect) -> Value {
    let type_ = match name {
        "limit" | "gracePeriodSeconds" => "integer",
        "watch" => "boolean",
        _ => "string",
    };
    match dialect {
        Dialect::V2 => json!({"name": name, "in": "query", "type": type_}),
        Dialect::V3 => json!({"name": name, "in": "query", "schema": {"type": type_}}),
    }
}

fn response(schema: &Value, dialect: Dialect) -> Value {
    match dialect {
        Dialect::V3 => {
            json!({"description": "OK", "content": {"application/json": {"schema": schema}}})
        }
        Dialect::V2 => {
            let text = schema["$ref"].as_str().unwrap_or_default();
            let text = text.replace("#/components/schemas/", "#/definitions/");
            json!({"description": "OK", "schema": {"$ref": text}})
        }
    }
}

fn body(kind: &Kind, verb: &str) -> Option<Value> {
    let content = match verb {
        "create" | "update" => {
            json!({"application/json": {"schema": reference(&name(kind))}})
        }
        "patch" => {
            let mut types = vec!["application/json-patch+json", "application/merge-patch+json"];
            if kind.built_in {
                types.push("application/strategic-merge-patch+json");
            }
            let entries =
                types.into_iter().map(|name| (name.to_owned(), json!({"schema": meta("Patch")})));
            Value::Object(entries.collect())
        }
        "delete" | "deletecollection" => {
            json!({"application/json": {"schema": meta("DeleteOptions")}})
        }
        _ => return None,
    };
    Some(json!({"content": content}))
}

/// `machineconfiguration.openshift.io` as `MachineconfigurationOpenshiftIo`.
fn camel(group: &str) -> String {
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
