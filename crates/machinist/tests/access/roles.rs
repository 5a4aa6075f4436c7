//! Roles of one's own on a hub with Machinist's kinds: what `machinist:viewer` gives, and what no binding gives.
use machinist_hub::Hub;
use machinist_hub::auth::UserInfo;
use serde_json::{Value, json};

use super::fixture::{GROUP, SECRET, create, request, start};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn ann() -> UserInfo {
    UserInfo::new("ann", ["ops".to_owned()])
}

async fn bind(hub: &Hub, name: &str, role: &str, group: &str) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "Group", "name": group}],
    });
    create(hub, &format!("{RBAC}/clusterrolebindings"), binding).await;
}

async fn get(hub: &Hub, who: UserInfo, path: &str) -> (u16, String) {
    request(hub, who, "GET", path, Value::Null).await
}

#[tokio::test]
async fn a_group_that_is_bound_to_the_viewer_role_sees_no_contents() {
    let hub = start().await;
    let all = format!("{GROUP}/machineconfigs");
    let one = format!("{all}/99-worker-motd");
    assert_eq!(get(&hub, ann(), &one).await.0, 403);
    bind(&hub, "ops", "machinist:viewer", "ops").await;
    for path in [one.clone(), all.clone(), format!("{all}?watch=true&timeoutSeconds=1")] {
        let (code, text) = get(&hub, ann(), &path).await;
        assert_eq!(code, 200, "{path}: {text}");
        assert!(text.contains("/etc/secret") && !text.contains("SECRET-CONTENT"), "{path}: {text}");
    }
    assert_eq!(get(&hub, ann(), &format!("{one}/outline")).await.0, 404, "it has no path");
    assert_eq!(get(&hub, ann(), &format!("{GROUP}/controllerconfigs")).await.0, 403);
    let review = json!({"spec": {"resourceAttributes": {
        "verb": "get", "group": "machineconfiguration.openshift.io", "resource": "machineconfigs",
    }}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (_, text) = request(&hub, ann(), "POST", path, review).await;
    assert!(text.contains("\"allowed\":true"), "{text}");
    // The outline is no way to the contents.
    let writer = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "writers"},
        "rules": [{"verbs": ["create"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"]}],
    });
    create(&hub, &format!("{RBAC}/clusterroles"), writer).await;
    bind(&hub, "writers", "writers", "ops").await;
    for (resource, expected) in [("machineconfigs", 403), ("machineconfigs/outline", 201)] {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "mine"},
            "rules": [{"verbs": ["get"], "apiGroups": ["machineconfiguration.openshift.io"], "resources": [resource]}],
        });
        let path = format!("{RBAC}/clusterroles");
        let (code, text) = request(&hub, ann(), "POST", &path, role).await;
        assert_eq!(code, expected, "{resource}: {text}");
    }
    // Whoever may read the object sees it.
    bind(&hub, "all", "cluster-admin", "ops").await;
    assert!(get(&hub, ann(), &one).await.1.contains(SECRET));
    assert_eq!(get(&hub, ann(), "/machinist/v1/tokens").await.0, 403, "but makes no tokens");
}

/// The attack of a careless administrator: everything for all machines, in every way that a binding can say it.
#[tokio::test]
async fn no_binding_shows_a_machine_the_config_of_another_pool() {
    let hub = start().await;
    for (index, group) in
        ["system:nodes", "system:authenticated", "machinist:viewers"].iter().enumerate()
    {
        bind(&hub, &format!("wide-{index}"), "cluster-admin", group).await;
    }
    bind(&hub, "nodes", "system:node", "system:nodes").await;
    for path in [
        "machineconfigs/rendered-master-1",
        "machineconfigs/99-worker-motd",
        "machineconfigpools/master",
        "machineconfignodes/m1",
        "controllerconfigs/other",
        "controllerconfigs",
    ] {
        assert_eq!(
            get(&hub, UserInfo::node("w1"), &format!("{GROUP}/{path}")).await.0,
            403,
            "{path}"
        );
    }
    let (code, list) = get(&hub, UserInfo::node("w1"), &format!("{GROUP}/machineconfigs")).await;
    assert_eq!(code, 200);
    assert!(list.contains("rendered-worker-1") && !list.contains("rendered-master-1"), "{list}");
    for path in ["/api/v1/secrets", "/api/v1/nodes/m1", "/machinist/v1/tokens"] {
        assert_eq!(get(&hub, UserInfo::node("w1"), path).await.0, 403, "{path}");
    }
}
