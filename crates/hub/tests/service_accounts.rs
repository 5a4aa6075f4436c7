//! Service accounts and their tokens.
use crate::support;

use machinist_hub::auth::{CONTROLLER_GROUP, UserInfo, VIEWER_GROUP};
use serde_json::{Value, json};
use support::{TestHub, send};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

async fn as_admin(hub: &machinist_hub::Hub, method: &str, path: &str, body: Value) -> (u16, Value) {
    let router = hub.router_as(UserInfo::admin());
    let (code, response) = send(router, method, path, &JSON, body.to_string()).await;
    (code.as_u16(), response)
}

async fn create_account(hub: &machinist_hub::Hub, name: &str) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    assert_eq!(as_admin(hub, "POST", ACCOUNTS, account).await.0, 201);
}

async fn create_token(hub: &machinist_hub::Hub, name: &str, spec: Value) -> (u16, Value) {
    as_admin(hub, "POST", &format!("{ACCOUNTS}/{name}/token"), json!({"spec": spec})).await
}

/// Who the client with a token is.
async fn whoami(hub: &machinist_hub::Hub, token: &str) -> (u16, Value) {
    let bearer = format!("Bearer {token}");
    let headers = [JSON[0], ("authorization", bearer.as_str())];
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, review) = send(hub.router(), "POST", path, &headers, "{}".to_owned()).await;
    (code.as_u16(), review["status"]["userInfo"].clone())
}

#[tokio::test]
async fn a_token_authenticates_its_service_account() {
    let server = TestHub::start().await;
    let hub = &server.hub;
    create_account(hub, "robot").await;
    let (code, answer) = create_token(hub, "robot", json!({})).await;
    assert_eq!((code, &answer["kind"]), (201, &json!("TokenRequest")), "{answer}");
    assert_eq!(answer["spec"]["expirationSeconds"], 3600);
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    let (code, user) = whoami(hub, &token).await;
    assert_eq!((code, &user["username"]), (200 + 1, &json!("system:serviceaccount:default:robot")));
    let groups =
        json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]);
    assert_eq!(user["groups"], groups);
    // Another account with the same name is another user.
    assert_eq!(as_admin(hub, "DELETE", &format!("{ACCOUNTS}/robot"), Value::Null).await.0, 200);
    assert_eq!(whoami(hub, &token).await.0, 401);
    create_account(hub, "robot").await;
    assert_eq!(whoami(hub, &token).await.0, 401);
}

#[tokio::test]
async fn a_token_is_for_its_audience() {
    let server = TestHub::start().await;
    let hub = &server.hub;
    create_account(hub, "robot").await;
    let (_, answer) = create_token(hub, "robot", json!({"audiences": ["vault"]})).await;
    let token = answer["status"]["token"].as_str().unwrap();
    assert_eq!(whoami(hub, token).await.0, 401, "it is not for the API");
    for (audiences, expected) in [
        (json!(null), false),
        (json!(["vault"]), true),
        (json!(["other"]), false),
        (json!(["https://kubernetes.default.svc"]), false),
    ] {
        let review = json!({"spec": {"token": token, "audiences": audiences}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let (_, review) = as_admin(hub, "POST", path, review).await;
        let status = &review["status"];
        assert_eq!(status["authenticated"] == true, expected, "{audiences}: {status}");
    }
}

#[tokio::test]
async fn requests_that_are_refused() {
    let server = TestHub::start().await;
    let hub = &server.hub;
    create_account(hub, "robot").await;
    for (name, spec, expected, text) in [
        ("none", json!({}), 404, "serviceaccounts \"none\" not found"),
        ("robot", json!({"expirationSeconds": 599}), 422, "less than 10 minutes"),
        ("robot", json!({"expirationSeconds": 4_294_967_297_i64}), 422, "larger than 2^32"),
        ("robot", json!({"expirationSeconds": "x"}), 400, "whole number"),
        ("robot", json!({"audiences": ["x".repeat(300)]}), 422, "at most 16 items"),
        ("robot", json!({"audiences": vec!["x"; 17]}), 422, "at most 16 items"),
        ("robot", json!({"boundObjectRef": {"kind": "Foo", "apiVersion": "v1"}}), 400, "Kind=Foo"),
    ] {
        let (code, error) = create_token(hub, name, spec.clone()).await;
        let message = error["message"].as_str().unwrap_or_default();
        assert!(code == expected && message.contains(text), "{spec}: {code} {message}");
    }
    let path = format!("{ACCOUNTS}/robot/token");
    assert_eq!(as_admin(hub, "GET", &path, Value::Null).await.0, 405);
    let viewer = UserInfo::new("v", [VIEWER_GROUP.to_owned()]);
    let controller = UserInfo::new("c", [CONTROLLER_GROUP.to_owned()]);
    for user in [viewer, controller, UserInfo::node("a")] {
        let router = hub.router_as(user);
        let (code, body) = send(router, "POST", &path, &JSON, "{}".to_owned()).await;
        assert_eq!(code.as_u16(), 403, "{body}");
    }
}
