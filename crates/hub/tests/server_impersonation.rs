//! Impersonation: honoured for those who may, refused for everybody else, and never ignored.
use http::StatusCode;
use machinist_hub::audit::AuditLog;
use machinist_hub::auth::{CONTROLLER_GROUP, NODE_GROUP, UserInfo, VIEWER_GROUP};
use machinist_hub::store::{Store, StoreOptions};
use machinist_hub::{Hub, HubConfig};
use serde_json::{Value, json};

use crate::support::{TestHub, send};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

#[tokio::test]
async fn a_request_runs_with_the_rights_of_the_impersonated_user() {
    let server = TestHub::start().await;
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let viewer = [("impersonate-user", "ann"), ("impersonate-group", VIEWER_GROUP)];
    let (code, _) = server.send("GET", SECRETS, &viewer, String::new()).await;
    assert_eq!(code, StatusCode::FORBIDDEN, "a viewer reads no Secrets");
    let (code, _) = server.send("GET", "/api/v1/nodes", &viewer, String::new()).await;
    assert_eq!(code, StatusCode::OK);
    let (_, review) = server.send("POST", who, &viewer, "{}".to_owned()).await;
    assert_eq!(
        review["status"]["userInfo"],
        json!({"username": "ann", "groups": [VIEWER_GROUP, "system:authenticated"]})
    );
    let admin = [("impersonate-user", "root"), ("impersonate-group", "system:masters")];
    let (code, _) = server.send("GET", "/machinist/v1/tokens", &admin, String::new()).await;
    assert_eq!(code, StatusCode::FORBIDDEN, "tokens are made in one's own name");
}

#[tokio::test]
async fn impersonation_without_the_right_is_refused() {
    let server = TestHub::start().await;
    for user in [
        UserInfo::new("c", [CONTROLLER_GROUP.to_owned()]),
        UserInfo::new("v", [VIEWER_GROUP.to_owned()]),
        UserInfo::node("n"),
        UserInfo::new("n", [NODE_GROUP.to_owned()]),
        UserInfo::new("nobody", []),
    ] {
        for headers in [
            &[("impersonate-user", "admin"), ("impersonate-group", "system:masters")][..],
            &[("impersonate-user", "system:serviceaccount:default:a")][..],
            // Its own name, too.
            &[("Impersonate-User", "n")][..],
        ] {
            for path in [SECRETS, "/api/v1/nodes", "/apis", "/machinist/v1/tokens"] {
                let router = server.hub.router_as(user.clone());
                let (code, body) = send(router, "GET", path, headers, String::new()).await;
                assert_eq!(code, StatusCode::FORBIDDEN, "{user:?} {headers:?} {path}: {body}");
                let message = body["message"].as_str().unwrap();
                assert!(message.contains("cannot impersonate resource"), "{message}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_not_understood_is_refused() {
    let server = TestHub::start().await;
    for headers in [
        &[("impersonate-group", VIEWER_GROUP)][..],
        &[("impersonate-user", "")][..],
        &[("impersonate-user", "a"), ("impersonate-user", "b")][..],
        &[("impersonate-user", "a"), ("impersonate-scopes", "x")][..],
        &[("impersonate-user", "a"), ("impersonate-extra-%zz", "x")][..],
    ] {
        let (code, body) = server.send("GET", "/api/v1/nodes", headers, String::new()).await;
        assert_eq!(code, StatusCode::BAD_REQUEST, "{headers:?}: {body}");
    }
    let many = vec![("impersonate-group", "g"); 100];
    let (code, _) = server.send("GET", "/api/v1/nodes", &many, String::new()).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    let extra =
        [("impersonate-user", "a"), ("impersonate-uid", "u"), ("impersonate-extra-a%2fb", "x")];
    let (code, _) = server.send("GET", "/api", &extra, String::new()).await;
    assert_eq!(code, StatusCode::OK);
}

#[tokio::test]
async fn the_audit_log_has_both_users() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let config = HubConfig { audit: AuditLog::to_file(&path).unwrap(), ..HubConfig::default() };
    let hub = Hub::start(Store::in_memory(StoreOptions::default()), config).await.unwrap();
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}).to_string();
    let headers = [("impersonate-user", "root"), ("impersonate-group", "system:masters")];
    let maps = "/api/v1/namespaces/default/configmaps";
    let (code, body) = send(hub.router_as(UserInfo::admin()), "POST", maps, &headers, map).await;
    assert_eq!(code, StatusCode::CREATED, "{body}");
    let other = hub.router_as(UserInfo::new("eve", []));
    assert_eq!(send(other, "GET", maps, &headers, String::new()).await.0, StatusCode::FORBIDDEN);
    let lines = |name: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (ours, others) = (lines("audit.log"), lines("audit-others.log"));
    assert_eq!((ours.len(), others.len()), (1, 1), "{ours:?} {others:?}");
    assert_eq!(
        (&ours[0]["user"], &ours[0]["impersonatedUser"]["username"]),
        (&json!("admin"), &json!("root"))
    );
    assert_eq!(
        (&others[0]["user"], &others[0]["verb"], &others[0]["name"], &others[0]["code"]),
        (&json!("eve"), &json!("impersonate"), &json!("root"), &json!(403))
    );
}
