//! What roles and bindings allow, and what they do not.
use axum::body::Body;
use http::StatusCode;
use http_body_util::BodyExt as _;
use machinist_hub::auth::{ADMIN_GROUP, BOOTSTRAP_GROUP, CONTROLLER_GROUP, UserInfo, VIEWER_GROUP};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{MAPS, SECRETS, ask, binding, get, must_create, path, role, rule, user};
use crate::support::{TestHub, send, wait_until};

#[tokio::test]
async fn a_binding_counts_at_once_and_ends_open_watches_when_it_goes() {
    let server = TestHub::start().await;
    let ann = user("ann");
    assert_eq!(get(&server, &ann, MAPS).await, 403);
    must_create(
        &server,
        role("Role", "maps", &[rule(&["get", "list", "watch"], &[""], &["configmaps"])]),
    )
    .await;
    must_create(&server, binding("RoleBinding", "maps", ("Role", "maps"), ("Group", "devs"))).await;
    assert_eq!(get(&server, &ann, MAPS).await, 200);
    assert_eq!(get(&server, &ann, "/api/v1/namespaces/kube-system/configmaps").await, 403);
    assert_eq!(get(&server, &ann, "/api/v1/configmaps").await, 403);
    assert_eq!(get(&server, &ann, SECRETS).await, 403);
    let request = http::Request::get(format!("{MAPS}?watch=true&allowWatchBookmarks=true"));
    let request = request.body(Body::empty()).unwrap();
    let response = server.hub.router_as(ann.clone()).oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let mut watch = response.into_body();
    let bound = format!("{}/maps", path("RoleBinding"));
    assert_eq!(ask(&server, &UserInfo::admin(), "DELETE", &bound, Value::Null).await.0, 200);
    // Written after the right is gone: the watch must not show it.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later"}});
    assert_eq!(ask(&server, &UserInfo::admin(), "POST", MAPS, map).await.0, 201);
    assert_eq!(get(&server, &ann, MAPS).await, 403);
    let mut text = String::new();
    while let Some(frame) = watch.frame().await {
        text.push_str(&String::from_utf8_lossy(&frame.unwrap().into_data().unwrap_or_default()));
    }
    assert!(text.contains("\"code\":403") && !text.contains("later"), "{text}");
}

#[tokio::test]
async fn bindings_do_not_widen_what_machines_and_tokens_may_do() {
    let server = TestHub::start().await;
    let machine = UserInfo::node("w1");
    for (index, subject) in [
        ("Group", "system:nodes"),
        ("User", "system:node:w1"),
        ("Group", "system:authenticated"),
        ("Group", BOOTSTRAP_GROUP),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("b{index}");
        must_create(
            &server,
            binding("ClusterRoleBinding", &name, ("ClusterRole", "cluster-admin"), subject),
        )
        .await;
    }
    for path in [
        SECRETS,
        "/api/v1/nodes",
        "/api/v1/nodes/w2",
        "/machinist/v1/tokens",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    ] {
        assert_eq!(get(&server, &machine, path).await, 403, "{path}");
    }
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(ask(&server, &machine, "PATCH", "/apis/g.io/v1/things/a", patch).await.0, 403);
    assert_eq!(get(&server, &machine, MAPS).await, 200, "named, and not one of the limited kinds");
    let token = UserInfo::new("system:bootstrap:b", [BOOTSTRAP_GROUP.to_owned()]);
    for path in [MAPS, SECRETS, "/api/v1/nodes"] {
        assert_eq!(get(&server, &token, path).await, 403, "{path}");
    }
    for name in ["b0", "b1"] {
        let bound = format!("{}/{name}", path("ClusterRoleBinding"));
        assert_eq!(ask(&server, &UserInfo::admin(), "DELETE", &bound, Value::Null).await.0, 200);
    }
    assert_eq!(get(&server, &machine, MAPS).await, 403, "what everybody gets is not for machines");
    assert_eq!(get(&server, &user("ann"), MAPS).await, 200);
    let own = UserInfo::new("ann", [CONTROLLER_GROUP.to_owned()]);
    let headers = [("impersonate-user", "root")];
    let (code, _) = send(server.hub.router_as(own), "GET", MAPS, &headers, String::new()).await;
    assert_eq!(code, StatusCode::FORBIDDEN, "controllers become nobody, whatever is bound");
}

#[tokio::test]
async fn the_built_in_roles_are_objects_and_count() {
    let server = TestHub::start().await;
    let viewer = UserInfo::new("v", [VIEWER_GROUP.to_owned()]);
    assert_eq!(get(&server, &viewer, MAPS).await, 200);
    assert_eq!(get(&server, &viewer, SECRETS).await, 403);
    let (_, list) = ask(&server, &viewer, "GET", &path("ClusterRole"), Value::Null).await;
    let names: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["metadata"]["name"].as_str().unwrap())
        .collect();
    for name in [
        "cluster-admin",
        "admin",
        "edit",
        "view",
        "machinist:controller",
        "machinist:viewer",
        "system:node",
    ] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    // A role that others gather from shows in them, and counts in them at once.
    must_create(&server, binding("RoleBinding", "ann", ("ClusterRole", "view"), ("User", "ann")))
        .await;
    assert_eq!(get(&server, &user("ann"), MAPS).await, 200);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    assert_eq!(get(&server, &user("ann"), leases).await, 403);
    let mut more =
        role("ClusterRole", "more", &[rule(&["list"], &["coordination.k8s.io"], &["leases"])]);
    more["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    must_create(&server, more).await;
    assert_eq!(get(&server, &user("ann"), leases).await, 200);
    for name in ["view", "edit", "admin"] {
        let path = format!("{}/{name}", path("ClusterRole"));
        wait_until("the gathered rules are shown", async || {
            let (_, role) = ask(&server, &UserInfo::admin(), "GET", &path, Value::Null).await;
            role["rules"].to_string().contains("leases")
        })
        .await;
    }
    // Viewers can be taken away, as everything else that is a binding.
    let viewers = format!("{}/machinist:viewers", path("ClusterRoleBinding"));
    assert_eq!(ask(&server, &UserInfo::admin(), "DELETE", &viewers, Value::Null).await.0, 200);
    assert_eq!(get(&server, &viewer, MAPS).await, 403);
    let admin = UserInfo::new("root", [ADMIN_GROUP.to_owned()]);
    let all = format!("{}/cluster-admin", path("ClusterRoleBinding"));
    assert_eq!(ask(&server, &admin, "DELETE", &all, Value::Null).await.0, 200);
    assert_eq!(
        get(&server, &admin, SECRETS).await,
        200,
        "administrators lock themselves out of nothing"
    );
}

#[tokio::test]
async fn reviews_know_roles() {
    let server = TestHub::start().await;
    must_create(&server, role("Role", "maps", &[rule(&["get"], &[""], &["configmaps"])])).await;
    must_create(&server, binding("RoleBinding", "maps", ("Role", "maps"), ("User", "ann"))).await;
    let review = |kind: &str, spec: Value| json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let spec = review("SelfSubjectRulesReview", json!({"namespace": "default"}));
    let (code, found) = ask(&server, &user("ann"), "POST", rules, spec.clone()).await;
    assert_eq!(code, 201, "{found}");
    assert_eq!(found["status"]["incomplete"], false);
    let resource = found["status"]["resourceRules"].as_array().unwrap();
    assert!(resource.contains(&rule(&["get"], &[""], &["configmaps"])), "{found}");
    assert!(found["status"]["nonResourceRules"].to_string().contains("/openapi/*"), "{found}");
    let (_, found) = ask(&server, &UserInfo::node("w1"), "POST", rules, spec.clone()).await;
    assert_eq!(found["status"]["incomplete"], true);
    assert!(
        found["status"]["resourceRules"].to_string().contains("\"resourceNames\":[\"w1\"]"),
        "{found}"
    );
    for who in [
        UserInfo::new("v", [VIEWER_GROUP.to_owned()]),
        UserInfo::new("c", [CONTROLLER_GROUP.to_owned()]),
    ] {
        let (_, found) = ask(&server, &who, "POST", rules, spec.clone()).await;
        assert!(found["status"]["resourceRules"].as_array().unwrap().len() > 5, "{who:?}: {found}");
    }
    let (code, _) =
        ask(&server, &user("ann"), "POST", rules, review("SelfSubjectRulesReview", json!({})))
            .await;
    assert_eq!(code, 400);
    let others = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let question = |verb: &str| {
        review(
            "SubjectAccessReview",
            json!({
                "user": "ann", "groups": ["devs"],
                "resourceAttributes": {"verb": verb, "resource": "configmaps", "namespace": "default"},
            }),
        )
    };
    for (verb, expected) in [("get", true), ("list", false)] {
        let (_, found) = ask(&server, &UserInfo::admin(), "POST", others, question(verb)).await;
        assert_eq!(found["status"]["allowed"], expected, "{verb}");
    }
    assert_eq!(ask(&server, &user("eve"), "POST", others, question("get")).await.0, 403);
    must_create(
        &server,
        binding(
            "ClusterRoleBinding",
            "eve",
            ("ClusterRole", "system:auth-delegator"),
            ("User", "eve"),
        ),
    )
    .await;
    assert_eq!(ask(&server, &user("eve"), "POST", others, question("get")).await.0, 201);
}

/// What observes machines, such as a problem detector, writes their status and nothing else.
#[tokio::test]
async fn a_right_to_the_status_of_nodes_does_not_change_pools() {
    let server = TestHub::start().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w1"}});
    assert_eq!(ask(&server, &UserInfo::admin(), "POST", "/api/v1/nodes", node).await.0, 201);
    let ann = user("ann");
    let rules = [rule(&["get", "patch"], &[""], &["nodes/status"])];
    must_create(&server, role("ClusterRole", "status", &rules)).await;
    let bound = binding("ClusterRoleBinding", "status", ("ClusterRole", "status"), ("User", "ann"));
    must_create(&server, bound).await;
    let status = "/api/v1/nodes/w1/status";
    let ready = json!({"status": {"conditions": [{"type": "Disk", "status": "True"}]}});
    assert_eq!(ask(&server, &ann, "PATCH", status, ready).await.0, 200);
    let edge = json!({"metadata": {"labels": {"node-role.kubernetes.io/edge": ""}}});
    let (code, body) = ask(&server, &ann, "PATCH", status, edge.clone()).await;
    let message = body["message"].as_str().unwrap_or_default();
    assert!(code == 403 && message.contains("may not change role labels"), "{code} {message}");
    assert_eq!(ask(&server, &UserInfo::admin(), "PATCH", status, edge).await.0, 200);
}
