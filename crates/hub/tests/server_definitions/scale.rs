//! The `scale` subresource.

use serde_json::{Value, json};

use super::{CARS, DEFINITIONS, ask, car, cars, create, get};
use crate::support::TestHub;

async fn start() -> TestHub {
    let server = TestHub::start().await;
    let mut definition = cars(
        json!({"type": "object", "properties": {"wheels": {"type": "integer", "maximum": 18}}}),
    );
    definition["spec"]["versions"][0]["subresources"]["scale"] =
        json!({"specReplicasPath": ".spec.wheels", "statusReplicasPath": ".status.speed"});
    create(&server, DEFINITIONS, &definition).await;
    create(&server, CARS, &car("a", json!({"wheels": 4}))).await;
    server
}

#[tokio::test]
async fn a_scale_is_read_and_written() {
    let server = start().await;
    let path = format!("{CARS}/a/scale");
    let (code, scale) = get(&server, &path).await;
    assert_eq!(code, 200, "{scale}");
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(
        (&scale["spec"], &scale["status"]),
        (&json!({"replicas": 4}), &json!({"replicas": 0}))
    );
    let (code, scale) = ask(&server, "PATCH", &path, &json!({"spec": {"replicas": 6}})).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(6)), "{scale}");
    let mut sent = scale.clone();
    sent["spec"]["replicas"] = 8.into();
    let (code, scale) = ask(&server, "PUT", &path, &sent).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(8)), "{scale}");
    assert_eq!(ask(&server, "PUT", &path, &sent).await.0, 409, "its resource version is old");
    let (_, car) = get(&server, &format!("{CARS}/a")).await;
    assert_eq!((&car["spec"]["wheels"], &car["metadata"]["generation"]), (&json!(8), &json!(3)));
    let managers = car["metadata"]["managedFields"].as_array().unwrap();
    let scaled = managers.iter().find(|manager| manager["subresource"] == "scale").unwrap();
    assert_eq!(scaled["fieldsV1"], json!({"f:spec": {"f:wheels": {}}}));
}

#[tokio::test]
async fn a_scale_is_validated() {
    let server = start().await;
    let path = format!("{CARS}/a/scale");
    for (replicas, expected) in [
        (json!(19), "spec.wheels in body should be less than or equal to 18"),
        (json!(-1), ".spec.wheels: Invalid value: -1: should be a non-negative integer"),
        (json!("x"), "must be an integer"),
    ] {
        let (code, answer) =
            ask(&server, "PATCH", &path, &json!({"spec": {"replicas": replicas}})).await;
        assert!(code == 422 && answer["message"].as_str().unwrap().contains(expected), "{answer}");
    }
    let (code, _) = ask(&server, "PUT", &path, &car("a", json!({"wheels": 2}))).await;
    assert_eq!(code, 400, "not a Scale");
    create(&server, CARS, &car("b", json!({}))).await;
    let (code, answer) = get(&server, &format!("{CARS}/b/scale")).await;
    assert_eq!(code, 500);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("the spec replicas field \".spec.wheels\" does not exist")
    );
    assert_eq!(
        ask(&server, "PATCH", &format!("{CARS}/b/scale"), &json!({"spec": {"replicas": 3}}))
            .await
            .0,
        200
    );
    assert_eq!(get(&server, &format!("{CARS}/none/scale")).await.0, 404);
}

#[tokio::test]
async fn discovery_names_the_type_of_a_scale() {
    let server = start().await;
    let (_, list) = get(&server, "/apis/example.com/v1").await;
    let all = list["resources"].as_array().unwrap();
    let scale = all.iter().find(|it| it["name"] == "cars/scale").unwrap();
    assert_eq!(
        (&scale["group"], &scale["version"], &scale["kind"]),
        (&json!("autoscaling"), &json!("v1"), &json!("Scale"))
    );
    let _: &Value = scale;
}
