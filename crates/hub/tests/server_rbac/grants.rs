//! What may be granted, and by whom.
use http::StatusCode;
use machinist_hub::auth::UserInfo;
use serde_json::{Value, json};

use super::{SECRETS, ask, binding, create, get, must_create, path, role, rule, user};
use crate::support::{TestHub, send};

#[tokio::test]
async fn nobody_grants_what_they_do_not_have() {
    let server = TestHub::start().await;
    let ann = user("ann");
    let all = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let resources = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"];
    let rules = [
        rule(&all, &["rbac.authorization.k8s.io"], &resources),
        rule(&["get"], &[""], &["configmaps"]),
    ];
    must_create(&server, role("ClusterRole", "delegate", &rules)).await;
    must_create(
        &server,
        binding("ClusterRoleBinding", "ann", ("ClusterRole", "delegate"), ("User", "ann")),
    )
    .await;
    must_create(&server, role("ClusterRole", "more", &[rule(&["get"], &[""], &["secrets"])])).await;
    let maps = rule(&["get"], &[""], &["configmaps"]);
    let gathers = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "g"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
    });
    for (object, expected) in [
        (role("Role", "a", std::slice::from_ref(&maps)), 201),
        (role("ClusterRole", "b", std::slice::from_ref(&maps)), 201),
        (role("Role", "c", &[rule(&["get"], &[""], &["secrets"])]), 403),
        (role("Role", "c", &[rule(&["get", "list"], &[""], &["configmaps"])]), 403),
        (role("ClusterRole", "c", &[rule(&["*"], &["*"], &["*"])]), 403),
        (
            role(
                "ClusterRole",
                "c",
                &[rule(&["bind"], &["rbac.authorization.k8s.io"], &["clusterroles"])],
            ),
            403,
        ),
        (gathers, 403),
        (binding("RoleBinding", "a", ("Role", "a"), ("User", "bob")), 201),
        (binding("RoleBinding", "b", ("ClusterRole", "delegate"), ("User", "bob")), 201),
        (binding("RoleBinding", "c", ("ClusterRole", "more"), ("User", "ann")), 403),
        (
            binding("ClusterRoleBinding", "c", ("ClusterRole", "cluster-admin"), ("User", "ann")),
            403,
        ),
        (
            binding(
                "ClusterRoleBinding",
                "c",
                ("ClusterRole", "machinist:controller"),
                ("User", "ann"),
            ),
            403,
        ),
        (binding("ClusterRoleBinding", "c", ("ClusterRole", "nowhere"), ("User", "ann")), 404),
    ] {
        let (code, body) = create(&server, &ann, object.clone()).await;
        assert_eq!(code, expected, "{object}: {body}");
    }
    let wider = json!({"rules": [rule(&["get"], &[""], &["secrets"])]});
    let own = format!("{}/a", path("Role"));
    let (code, body) = ask(&server, &ann, "PATCH", &own, wider.clone()).await;
    assert_eq!(code, 403);
    assert_eq!(
        body["message"],
        "roles.rbac.authorization.k8s.io \"a\" is forbidden: user \"ann\" (groups=[\"devs\" \
         \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}"
    );
    let mut put = role("Role", "a", &[rule(&["*"], &["*"], &["*"])]);
    assert_eq!(ask(&server, &ann, "PUT", &own, put.clone()).await.0, 403);
    put["kind"] = "Role".into();
    let apply = [("content-type", "application/apply-patch+yaml")];
    let router = server.hub.router_as(ann.clone());
    let applied = format!("{}/new?fieldManager=m", path("Role"));
    let (code, _) = send(
        router,
        "PATCH",
        &applied,
        &apply,
        role("Role", "new", &[rule(&["*"], &["*"], &["*"])]).to_string(),
    )
    .await;
    assert_eq!(code, StatusCode::FORBIDDEN, "an apply is checked, too");
    // With the verbs escalate and bind it is possible.
    let verbs = ["escalate", "bind"];
    let special = rule(&verbs, &["rbac.authorization.k8s.io"], &["roles", "clusterroles"]);
    must_create(&server, role("ClusterRole", "special", &[special])).await;
    must_create(
        &server,
        binding("RoleBinding", "special", ("ClusterRole", "special"), ("User", "ann")),
    )
    .await;
    assert_eq!(ask(&server, &ann, "PATCH", &own, wider).await.0, 200);
    let bound = binding("RoleBinding", "c", ("ClusterRole", "cluster-admin"), ("User", "bob"));
    assert_eq!(create(&server, &ann, bound).await.0, 201);
    let bound =
        binding("ClusterRoleBinding", "c", ("ClusterRole", "cluster-admin"), ("User", "bob"));
    assert_eq!(create(&server, &ann, bound).await.0, 403, "only in that namespace");
    assert_eq!(get(&server, &user("bob"), SECRETS).await, 200);
}

#[tokio::test]
async fn an_approval_needs_the_right_for_the_signer() {
    let server = TestHub::start().await;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let csr = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "a"},
        "spec": {"request": "", "signerName": "example.com/own", "usages": ["client auth"]},
    });
    let (code, body) = ask(&server, &UserInfo::admin(), "POST", requests, csr).await;
    assert_eq!(code, 201, "{body}");
    let group = "certificates.k8s.io";
    let resources = ["certificatesigningrequests/approval", "certificatesigningrequests/status"];
    must_create(
        &server,
        role("ClusterRole", "approver", &[rule(&["get", "patch", "update"], &[group], &resources)]),
    )
    .await;
    must_create(
        &server,
        binding("ClusterRoleBinding", "ann", ("ClusterRole", "approver"), ("User", "ann")),
    )
    .await;
    let approved = json!({"status": {"conditions": [
        {"type": "Approved", "status": "True", "reason": "x", "message": "x"},
    ]}});
    for part in ["approval", "status"] {
        let (code, body) =
            ask(&server, &user("ann"), "PATCH", &format!("{requests}/a/{part}"), approved.clone())
                .await;
        assert_eq!(code, 403, "{part}: {body}");
        assert!(body["message"].as_str().unwrap().contains("example.com/own"), "{body}");
    }
    let mut signers = rule(&["approve", "sign"], &[group], &["signers"]);
    signers["resourceNames"] = json!(["example.com/*"]);
    must_create(&server, role("ClusterRole", "signer", &[signers])).await;
    must_create(
        &server,
        binding("ClusterRoleBinding", "signer", ("ClusterRole", "signer"), ("User", "ann")),
    )
    .await;
    let status = format!("{requests}/a/status");
    assert_eq!(
        ask(&server, &user("ann"), "PATCH", &status, approved.clone()).await.0,
        403,
        "not through the status"
    );
    let approval = format!("{requests}/a/approval");
    assert_eq!(ask(&server, &user("ann"), "PATCH", &approval, approved).await.0, 200);
}

#[tokio::test]
async fn roles_are_bounded_and_validated() {
    let server = TestHub::start().await;
    for (object, expected) in [
        (role("Role", "a:b", &[rule(&["get"], &[""], &["pods"])]), 201),
        (role("Role", "..", &[]), 422),
        (role("Role", "a%b", &[]), 422),
        (role("Role", "a\u{7}", &[]), 422),
        (role("Role", &"n".repeat(254), &[]), 422),
        (role("Role", "c", &[json!({"verbs": ["get"]})]), 422),
        (role("Role", "d", &[rule(&["get"], &[""], &[&"r".repeat(600 << 10)])]), 413),
        (binding("RoleBinding", "e", ("Role", "x"), ("User", &"u".repeat(2000))), 422),
        (binding("RoleBinding", "f", ("Robot", "x"), ("User", "u")), 422),
    ] {
        let (code, body) = create(&server, &UserInfo::admin(), object.clone()).await;
        assert_eq!(code, expected, "{:.200}: {:.300}", object.to_string(), body.to_string());
    }
    must_create(&server, binding("RoleBinding", "g", ("Role", "a:b"), ("User", "u"))).await;
    let bound = format!("{}/g", path("RoleBinding"));
    let moved = json!({"roleRef": {"name": "other"}});
    let (code, body) = ask(&server, &UserInfo::admin(), "PATCH", &bound, moved).await;
    assert_eq!(code, 422);
    assert!(body["message"].as_str().unwrap().contains("cannot change roleRef"), "{body}");
    let (_, found) = ask(&server, &UserInfo::admin(), "GET", &bound, Value::Null).await;
    assert_eq!(
        found["subjects"],
        json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "u"}])
    );
    let warned = binding("RoleBinding", "h", ("Role", "a:b"), ("Group", "system:nodes"));
    assert_eq!(create(&server, &UserInfo::admin(), warned).await.0, 201);
}
