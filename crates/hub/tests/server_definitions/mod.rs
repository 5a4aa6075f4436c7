//! Definitions that clients create: their kinds are served like all others, and go with them.
mod guards;
mod hostile;
mod lifecycle;
mod objects;
mod scale;
mod versions;

use machinist_hub::auth::UserInfo;
use serde_json::{Value, json};

use crate::support::{self, TestHub};

pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(super) const CARS: &str = "/apis/example.com/v1/namespaces/default/cars";

/// A definition with one version, whose `spec` has this schema.
pub(super) fn cars(spec: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "cars.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "cars", "kind": "Car", "shortNames": ["ca"], "categories": ["all"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
                "schema": {"openAPIV3Schema": {
                    "type": "object", "required": ["spec"],
                    "properties": {
                        "spec": spec,
                        "status": {"type": "object", "properties": {"speed": {"type": "integer"}}},
                    },
                }},
            }],
        },
    })
}

pub(super) fn car_spec() -> Value {
    json!({
        "type": "object", "required": ["color"],
        "properties": {
            "color": {"type": "string", "enum": ["red", "blue"]},
            "doors": {"type": "integer", "default": 4, "maximum": 5},
            "extras": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "wheels": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["place"],
                "items": {
                    "type": "object", "required": ["place"],
                    "properties": {"place": {"type": "string"}, "size": {"type": "integer"}},
                },
            },
        },
        "x-kubernetes-validations": [
            {"rule": "self.doors != 3", "message": "three doors are for races"},
            {"rule": "self.color == oldSelf.color", "message": "it cannot be painted"},
        ],
    })
}

pub(super) fn car(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Car", "metadata": {"name": name}, "spec": spec})
}

/// Sends a request as an administrator.
pub(super) async fn ask(server: &TestHub, method: &str, path: &str, body: &Value) -> (u16, Value) {
    ask_as(server, UserInfo::admin(), method, path, body).await
}

pub(super) async fn ask_as(
    server: &TestHub,
    user: UserInfo,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let media_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let headers = [("content-type", media_type)];
    let (code, body) =
        support::send(server.hub.router_as(user), method, path, &headers, body).await;
    (code.as_u16(), body)
}

pub(super) async fn get(server: &TestHub, path: &str) -> (u16, Value) {
    ask(server, "GET", path, &Value::Null).await
}

/// Creates something, which must succeed.
pub(super) async fn create(server: &TestHub, path: &str, object: &Value) -> Value {
    let (code, made) = ask(server, "POST", path, object).await;
    assert_eq!(code, 201, "{made}");
    made
}

pub(super) async fn start_with_cars() -> TestHub {
    let server = TestHub::start().await;
    create(&server, DEFINITIONS, &cars(car_spec())).await;
    server
}
