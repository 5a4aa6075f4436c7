//! What definitions may not do, and who may not create them.

use machinist_hub::auth::{CONTROLLER_GROUP, NODE_GROUP, UserInfo, VIEWER_GROUP};
use serde_json::{Value, json};

use super::{CARS, DEFINITIONS, ask, ask_as, car, car_spec, cars, create, get, start_with_cars};
use crate::support::TestHub;

#[tokio::test]
async fn own_kinds_and_groups_are_not_for_others() {
    let server = TestHub::start().await;
    let own = format!("{DEFINITIONS}/things.g.io");
    for (method, body) in [
        ("DELETE", Value::Null),
        ("PATCH", json!({"metadata": {"labels": {"a": "b"}}})),
        ("PUT", json!({"metadata": {"name": "things.g.io"}})),
    ] {
        let (code, answer) = ask(&server, method, &own, &body).await;
        assert_eq!(code, 403, "{method}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains("belongs to this version of the hub"));
    }
    ask(&server, "DELETE", DEFINITIONS, &Value::Null).await;
    assert_eq!(get(&server, &own).await.0, 200, "also of a collection");
    for group in
        ["g.io", "rbac.authorization.k8s.io", "authentication.k8s.io", "apiextensions.k8s.io"]
    {
        let mut definition = cars(car_spec());
        definition["metadata"]["name"] = format!("cars.{group}").into();
        definition["spec"]["group"] = group.into();
        let (code, answer) = ask(&server, "POST", DEFINITIONS, &definition).await;
        assert_eq!(code, 422, "{group}: {answer}");
        let expected =
            format!("spec.group: Forbidden: the hub serves {group} itself: use another group");
        assert!(answer["message"].as_str().unwrap().contains(&expected), "{answer}");
    }
}

#[tokio::test]
async fn webhooks_and_aggregated_apis_need_kubernetes() {
    let server = TestHub::start().await;
    let sentence = "webhooks and aggregated APIs need Kubernetes";
    let mut definition = cars(car_spec());
    definition["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://a.example.com"}},
    });
    let (code, answer) = ask(&server, "POST", DEFINITIONS, &definition).await;
    assert!(code == 422 && answer["message"].as_str().unwrap().contains(sentence), "{answer}");
    for path in [
        "/apis/apiregistration.k8s.io/v1/apiservices",
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    ] {
        let (code, answer) = ask(&server, "POST", path, &json!({})).await;
        assert!(code == 404 && answer["message"].as_str().unwrap().contains(sentence), "{answer}");
    }
}

#[tokio::test]
async fn only_those_with_the_right_define_kinds() {
    let server = TestHub::start().await;
    let one = format!("{DEFINITIONS}/cars.example.com");
    let users = || {
        [
            UserInfo::node("a"),
            UserInfo::new("v", [VIEWER_GROUP.to_owned()]),
            UserInfo::new("c", [CONTROLLER_GROUP.to_owned()]),
            UserInfo::new("n", [NODE_GROUP.to_owned()]),
            UserInfo::new("somebody", []),
        ]
    };
    for user in users() {
        let (code, answer) = ask_as(&server, user, "POST", DEFINITIONS, &cars(car_spec())).await;
        assert_eq!(code, 403, "{answer}");
    }
    create(&server, DEFINITIONS, &cars(car_spec())).await;
    create(&server, CARS, &car("a", json!({"color": "red"}))).await;
    for user in users() {
        let name = user.user.clone();
        for (method, path) in
            [("PATCH", &*one), ("DELETE", &one), ("PATCH", &format!("{one}/status"))]
        {
            let (code, answer) = ask_as(&server, user.clone(), method, path, &json!({})).await;
            assert_eq!(code, 403, "{name} {method} {path}: {answer}");
        }
        // The objects of a new kind are for those whom a role lets in.
        let (code, _) = ask_as(&server, user, "GET", &format!("{CARS}/a"), &Value::Null).await;
        assert_eq!(code, 403, "{name}");
    }
}

#[tokio::test]
async fn roles_count_for_new_kinds() {
    let server = start_with_cars().await;
    create(&server, CARS, &car("a", json!({"color": "red"}))).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({
        "metadata": {"name": "drivers"},
        "rules": [{"apiGroups": ["example.com"], "resources": ["cars"], "verbs": ["get", "list"]}],
    });
    create(&server, &format!("{rbac}/clusterroles"), &role).await;
    let binding = json!({
        "metadata": {"name": "drivers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "drivers"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}],
    });
    create(&server, &format!("{rbac}/clusterrolebindings"), &binding).await;
    let ann = || UserInfo::new("ann", []);
    let (code, list) = ask_as(&server, ann(), "GET", CARS, &Value::Null).await;
    assert_eq!((code, &list["items"][0]["metadata"]["name"]), (200, &json!("a")));
    let (code, _) = ask_as(&server, ann(), "DELETE", &format!("{CARS}/a"), &Value::Null).await;
    assert_eq!(code, 403);
}

#[tokio::test]
async fn objects_go_with_their_namespace() {
    let server = start_with_cars().await;
    create(&server, "/api/v1/namespaces", &json!({"metadata": {"name": "garage"}})).await;
    let garage = "/apis/example.com/v1/namespaces/garage/cars";
    create(&server, garage, &car("a", json!({"color": "red"}))).await;
    ask(&server, "DELETE", "/api/v1/namespaces/garage", &Value::Null).await;
    crate::support::wait_until("the namespace is empty and gone", async || {
        get(&server, "/api/v1/namespaces/garage").await.0 == 404
            && get(&server, &format!("{garage}/a")).await.0 == 404
    })
    .await;
}
