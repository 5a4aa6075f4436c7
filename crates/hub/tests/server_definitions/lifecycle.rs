//! From the creation of a definition to its deletion.

use machinist_hub::store::{Store, StoreOptions};
use machinist_hub::{Hub, HubConfig};
use serde_json::{Value, json};

use super::{CARS, DEFINITIONS, ask, car, car_spec, cars, create, get, start_with_cars};
use crate::support::{self, TestHub};

fn condition<'a>(definition: &'a Value, type_: &str) -> &'a Value {
    let all = definition["status"]["conditions"].as_array().unwrap();
    all.iter().find(|condition| condition["type"] == type_).unwrap()
}

#[tokio::test]
async fn a_new_kind_is_served_at_once() {
    let server = TestHub::start().await;
    assert_eq!(get(&server, CARS).await.0, 404);
    let made = create(&server, DEFINITIONS, &cars(car_spec())).await;
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made["spec"]["names"]["listKind"], "CarList");
    assert_eq!(made["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    let (code, list) = get(&server, CARS).await;
    assert_eq!((code, &list["kind"]), (200, &json!("CarList")), "{list}");
    let (_, stored) = get(&server, &format!("{DEFINITIONS}/cars.example.com")).await;
    assert_eq!(condition(&stored, "NamesAccepted")["reason"], "NoConflicts");
    assert_eq!(condition(&stored, "Established")["status"], "True");
    assert_eq!(stored["status"]["acceptedNames"], stored["spec"]["names"]);
}

#[tokio::test]
async fn discovery_and_openapi_name_it() {
    let server = start_with_cars().await;
    let (_, list) = get(&server, "/apis/example.com/v1").await;
    let resource = &list["resources"][0];
    assert_eq!((&resource["name"], &resource["shortNames"]), (&json!("cars"), &json!(["ca"])));
    assert_eq!(list["resources"][1]["name"], "cars/status");
    let (_, groups) = get(&server, "/apis").await;
    assert!(groups["groups"].as_array().unwrap().iter().any(|it| it["name"] == "example.com"));
    let (code, document) = get(&server, "/openapi/v3/apis/example.com/v1").await;
    assert_eq!(code, 200);
    let schema = &document["components"]["schemas"]["com.example.v1.Car"];
    assert_eq!(schema["properties"]["spec"]["properties"]["doors"]["default"], 4);
    let (_, document) = get(&server, "/openapi/v2").await;
    assert!(document["definitions"]["com.example.v1.Car"].is_object());
}

#[tokio::test]
async fn a_deletion_takes_the_objects_with_it() {
    let server = start_with_cars().await;
    create(&server, CARS, &car("a", json!({"color": "red"}))).await;
    let mut held = car("b", json!({"color": "red"}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&server, CARS, &held).await;
    let one = format!("{DEFINITIONS}/cars.example.com");
    let (code, marked) = ask(&server, "DELETE", &one, &Value::Null).await;
    assert_eq!(code, 200, "{marked}");
    let finalizer = "customresourcecleanup.apiextensions.k8s.io";
    assert_eq!(marked["metadata"]["finalizers"], json!([finalizer]));
    assert_eq!(condition(&marked, "Terminating")["status"], "True");
    assert_eq!(get(&server, &format!("{CARS}/a")).await.0, 404);
    let (code, answer) = ask(&server, "POST", CARS, &car("c", json!({"color": "red"}))).await;
    assert_eq!(code, 405, "{answer}");
    let expected = "create not allowed while custom resource definition is terminating";
    assert_eq!(answer["message"], expected);
    let none = json!({"metadata": {"finalizers": null}});
    assert_eq!(ask(&server, "PATCH", &format!("{CARS}/b"), &none).await.0, 200);
    support::wait_until("the definition is gone", async || get(&server, &one).await.0 == 404).await;
    support::wait_until("the kind is gone", async || get(&server, CARS).await.0 == 404).await;
    create(&server, DEFINITIONS, &cars(car_spec())).await;
    let (_, list) = get(&server, CARS).await;
    assert_eq!(list["items"], json!([]), "the objects do not come back");
}

#[tokio::test]
async fn definitions_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let open = async || {
        let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
        let config = HubConfig { crds: vec![support::test_crd()], ..HubConfig::default() };
        TestHub { hub: Hub::start(store, config).await.unwrap() }
    };
    let server = open().await;
    create(&server, DEFINITIONS, &cars(car_spec())).await;
    let made = create(&server, CARS, &car("a", json!({"color": "red"}))).await;
    server.hub.stop().await;
    let store = server.hub.store().clone();
    drop(server);
    store.close().await;
    let server = open().await;
    assert_eq!(get(&server, &format!("{CARS}/a")).await, (200, made));
    let (code, _) = ask(&server, "POST", CARS, &car("b", json!({"color": "green"}))).await;
    assert_eq!(code, 422);
    server.hub.stop().await;
}

#[tokio::test]
async fn a_changed_schema_counts_at_once() {
    let server = start_with_cars().await;
    create(&server, CARS, &car("a", json!({"color": "red", "extras": {"a": 1}}))).await;
    let mut spec = car_spec();
    spec["properties"].as_object_mut().unwrap().remove("extras");
    spec["properties"]["seats"] = json!({"type": "integer", "default": 5});
    let versions = cars(spec)["spec"]["versions"].clone();
    let one = format!("{DEFINITIONS}/cars.example.com");
    let (code, changed) =
        ask(&server, "PATCH", &one, &json!({"spec": {"versions": versions}})).await;
    assert_eq!((code, &changed["metadata"]["generation"]), (200, &json!(2)), "{changed}");
    let (_, car) = get(&server, &format!("{CARS}/a")).await;
    assert_eq!(
        car["spec"],
        json!({"color": "red", "doors": 4, "seats": 5}),
        "pruned and defaulted"
    );
    let (_, list) = get(&server, CARS).await;
    assert_eq!(list["items"][0]["spec"], car["spec"]);
}

#[tokio::test]
async fn names_that_are_taken() {
    let server = start_with_cars().await;
    let mut other = cars(car_spec());
    other["metadata"]["name"] = "autos.example.com".into();
    other["spec"]["names"] = json!({"plural": "autos", "kind": "Car"});
    create(&server, DEFINITIONS, &other).await;
    let one = format!("{DEFINITIONS}/autos.example.com");
    let (_, stored) = get(&server, &one).await;
    assert_eq!(condition(&stored, "NamesAccepted")["status"], "False");
    assert_eq!(condition(&stored, "Established")["reason"], "NotAccepted");
    assert_eq!(get(&server, "/apis/example.com/v1/autos").await.0, 404);
    ask(&server, "DELETE", &format!("{DEFINITIONS}/cars.example.com"), &Value::Null).await;
    support::wait_until("the names are free", async || {
        get(&server, "/apis/example.com/v1/autos").await.0 == 200
    })
    .await;
}
