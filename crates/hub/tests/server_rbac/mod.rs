//! Roles and bindings: they give rights at once, take them at once, and nobody grants more than they have.
mod grants;
mod rights;

use machinist_hub::auth::UserInfo;
use serde_json::{Value, json};

use crate::support::{TestHub, send};

pub(super) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
pub(super) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(super) const SECRETS: &str = "/api/v1/namespaces/default/secrets";

pub(super) fn user(name: &str) -> UserInfo {
    UserInfo::new(name, ["devs".to_owned()])
}

pub(super) async fn ask(
    server: &TestHub,
    who: &UserInfo,
    method: &str,
    path: &str,
    body: Value,
) -> (u16, Value) {
    let content =
        if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let router = server.hub.router_as(who.clone());
    let (code, body) = send(router, method, path, &[("content-type", content)], body).await;
    (code.as_u16(), body)
}

pub(super) async fn get(server: &TestHub, who: &UserInfo, path: &str) -> u16 {
    ask(server, who, "GET", path, Value::Null).await.0
}

pub(super) fn rule(verbs: &[&str], groups: &[&str], resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": groups, "resources": resources})
}

pub(super) fn role(kind: &str, name: &str, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "rules": rules,
    })
}

pub(super) fn binding(kind: &str, name: &str, role: (&str, &str), subject: (&str, &str)) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"kind": role.0, "name": role.1},
        "subjects": [{"kind": subject.0, "name": subject.1}],
    })
}

pub(super) fn path(kind: &str) -> String {
    match kind {
        "ClusterRole" => format!("{RBAC}/clusterroles"),
        "ClusterRoleBinding" => format!("{RBAC}/clusterrolebindings"),
        "Role" => format!("{RBAC}/namespaces/default/roles"),
        _ => format!("{RBAC}/namespaces/default/rolebindings"),
    }
}

pub(super) async fn create(server: &TestHub, who: &UserInfo, object: Value) -> (u16, Value) {
    let path = path(object["kind"].as_str().unwrap());
    ask(server, who, "POST", &path, object).await
}

pub(super) async fn must_create(server: &TestHub, object: Value) {
    let (code, body) = create(server, &UserInfo::admin(), object).await;
    assert_eq!(code, 201, "{body}");
}
