//! Who may take a backup, and what the audit log says about it. A backup contains every Secret.
use std::path::Path;

use http_body_util::BodyExt as _;
use machinist_hub::audit::AuditLog;
use machinist_hub::auth::{CONTROLLER_GROUP, UserInfo, VIEWER_GROUP};
use machinist_hub::router::PeerAddress;
use machinist_hub::store::{Store, StoreOptions};
use machinist_hub::{Hub, HubConfig, check_backup};
use serde_json::{Value, json};
use tower::ServiceExt as _;

async fn start(audit: &Path) -> Hub {
    let config = HubConfig { audit: AuditLog::to_file(audit).unwrap(), ..HubConfig::default() };
    Hub::start(Store::in_memory(StoreOptions::default()), config).await.unwrap()
}

async fn backup(router: axum::Router, method: &str) -> (u16, Vec<u8>) {
    let mut request = http::Request::builder().method(method).uri("/machinist/v1/backup");
    let peer = PeerAddress([192, 0, 2, 7].into());
    request.extensions_mut().unwrap().insert(peer);
    let response = router.oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    (code, response.into_body().collect().await.unwrap().to_bytes().to_vec())
}

fn lines(audit: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(audit).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn only_administrators_take_backups() {
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("audit.log");
    let hub = start(&audit).await;
    let group = |group: &str| [group.to_owned()];
    let weaker = [
        ("machine", UserInfo::node("w1")),
        ("bootstrap token", UserInfo::new("system:bootstrap:a", group("system:bootstrappers"))),
        ("viewer", UserInfo::new("machinist:token:v", group(VIEWER_GROUP))),
        ("controller", UserInfo::new("machinist:controller", group(CONTROLLER_GROUP))),
        ("no group", UserInfo::new("admin", [])),
    ];
    for (name, user) in weaker {
        for method in ["GET", "HEAD", "POST"] {
            let (code, body) = backup(hub.router_as(user.clone()), method).await;
            assert_eq!(code, 403, "{method} as {name}");
            assert!(!body.starts_with(b"machinist-backup"), "{method} as {name}");
        }
    }
    assert_eq!(backup(hub.router(), "GET").await.0, 401, "anonymous");
    assert_eq!(lines(&audit).len(), 0, "refused requests must not push others out of the log");
    assert_eq!(backup(hub.router_as(UserInfo::admin()), "POST").await.0, 405);
}

#[tokio::test]
async fn a_backup_is_audited() {
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("audit.log");
    let hub = start(&audit).await;
    let (code, bytes) = backup(hub.router_as(UserInfo::admin()), "GET").await;
    assert_eq!(code, 200);
    let check = check_backup(&bytes[..], Path::new("b")).unwrap();
    assert!(check.objects > 0 && check.unreadable.is_empty(), "{check:?}");
    let mut lines = lines(&audit);
    assert_eq!(lines.len(), 1);
    let time = lines[0]["time"].take();
    assert!(time.as_str().unwrap().ends_with('Z'), "{time}");
    let admin = UserInfo::admin();
    let expected = json!({
        "time": null, "user": admin.user, "groups": admin.groups, "sourceIP": "192.0.2.7",
        "verb": "get", "group": "machinist", "resource": "backup", "includesSecrets": true, "code": 200,
    });
    assert_eq!(lines[0], expected);
}
