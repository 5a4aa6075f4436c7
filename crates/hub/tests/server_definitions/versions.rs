//! Kinds with several versions: the objects are the same in all of them.

use serde_json::{Value, json};

use super::{CARS, DEFINITIONS, ask, car, car_spec, cars, create, get};
use crate::support::TestHub;

const V2: &str = "/apis/example.com/v2/namespaces/default/cars";

/// A definition whose second version has one more field.
fn two_versions(storage: &str) -> Value {
    let mut definition = cars(car_spec());
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    let spec = "/schema/openAPIV3Schema/properties/spec/properties";
    second.pointer_mut(spec).unwrap()["seats"] = json!({"type": "integer", "default": 5});
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    versions.push(second);
    for version in versions {
        version["storage"] = (version["name"] == storage).into();
    }
    definition
}

#[tokio::test]
async fn an_object_is_shown_in_each_version() {
    let server = TestHub::start().await;
    create(&server, DEFINITIONS, &two_versions("v2")).await;
    let made = create(&server, CARS, &car("a", json!({"color": "red"}))).await;
    assert_eq!(made["apiVersion"], "example.com/v1");
    assert_eq!(made["spec"], json!({"color": "red", "doors": 4}));
    let (_, second) = get(&server, &format!("{V2}/a")).await;
    assert_eq!(second["apiVersion"], "example.com/v2");
    assert_eq!(second["spec"], json!({"color": "red", "doors": 4, "seats": 5}));
    let (_, list) = get(&server, V2).await;
    assert_eq!((&list["apiVersion"], &list["items"][0]), (&json!("example.com/v2"), &second));
    let (_, group) = get(&server, "/apis/example.com").await;
    assert_eq!(group["preferredVersion"]["version"], "v2");
    let (code, _) = ask(&server, "PATCH", &format!("{V2}/a"), &json!({"spec": {"seats": 2}})).await;
    assert_eq!(code, 200);
    let (_, first) = get(&server, &format!("{CARS}/a")).await;
    assert_eq!(first["spec"], json!({"color": "red", "doors": 4}), "v1 does not know the field");
    let (_, second) = get(&server, &format!("{V2}/a")).await;
    assert_eq!(second["spec"]["seats"], 2);
}

#[tokio::test]
async fn the_storage_version_moves() {
    let server = TestHub::start().await;
    create(&server, DEFINITIONS, &two_versions("v1")).await;
    create(&server, CARS, &car("a", json!({"color": "red"}))).await;
    let one = format!("{DEFINITIONS}/cars.example.com");
    let versions = two_versions("v2")["spec"]["versions"].clone();
    let (code, changed) =
        ask(&server, "PATCH", &one, &json!({"spec": {"versions": versions}})).await;
    assert_eq!(
        (code, &changed["status"]["storedVersions"]),
        (200, &json!(["v1", "v2"])),
        "{changed}"
    );
    let only = json!({"spec": {"versions": [versions[1]]}});
    let (code, answer) = ask(&server, "PATCH", &one, &only).await;
    assert_eq!(code, 422);
    assert!(
        answer["message"].as_str().unwrap().contains("v1 was previously a storage version"),
        "{answer}"
    );
    // A write that changes nothing moves the object to the new version.
    let (_, before) = get(&server, &format!("{V2}/a")).await;
    let (code, after) = ask(&server, "PUT", &format!("{V2}/a"), &before).await;
    assert_eq!(code, 200, "{after}");
    assert_ne!(before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
    let (code, answer) = ask(
        &server,
        "PATCH",
        &format!("{one}/status"),
        &json!({"status": {"storedVersions": ["v2"]}}),
    )
    .await;
    assert_eq!(code, 200, "{answer}");
    let (code, answer) = ask(&server, "PATCH", &one, &only).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(get(&server, CARS).await.0, 404);
    assert_eq!(get(&server, &format!("{V2}/a")).await.0, 200);
}

#[tokio::test]
async fn a_deprecated_version_warns() {
    let server = TestHub::start().await;
    let mut definition = two_versions("v2");
    definition["spec"]["versions"][0]["deprecated"] = true.into();
    create(&server, DEFINITIONS, &definition).await;
    let request = http::Request::get(CARS).body(axum::body::Body::empty()).unwrap();
    let router = server.hub.router_as(machinist_hub::auth::UserInfo::admin());
    let response = tower::ServiceExt::oneshot(router, request).await.unwrap();
    assert_eq!(response.headers()["warning"], "299 - \"example.com/v1 Car is deprecated\"");
}
