//! Objects of kinds that clients defined: validation, pruning, defaults, subresources, tables, server-side apply.

use serde_json::{Value, json};

use super::{CARS, ask, car, create, get, start_with_cars};

#[tokio::test]
async fn objects_are_pruned_defaulted_and_validated() {
    let server = start_with_cars().await;
    let sent = car("a", json!({"color": "red", "horn": "loud", "extras": {"any": [1]}}));
    let made = create(&server, CARS, &sent).await;
    assert_eq!(made["spec"], json!({"color": "red", "doors": 4, "extras": {"any": [1]}}));
    let table = [
        (json!({}), "spec.color: Required value"),
        (
            json!({"color": "pink"}),
            "spec.color: Unsupported value: \"pink\": supported values: \"red\", \"blue\"",
        ),
        (
            json!({"color": "red", "doors": "many"}),
            "spec.doors: Invalid value: \"string\": spec.doors in body must be of type integer",
        ),
        (
            json!({"color": "red", "doors": 9}),
            "spec.doors: Invalid value: 9: spec.doors in body should be less than or equal to 5",
        ),
        (
            json!({"color": "red", "doors": 3}),
            "spec: Invalid value: \"object\": three doors are for races",
        ),
        (
            json!({"color": "red", "wheels": [{"place": "l"}, {"place": "l"}]}),
            "spec.wheels[1]: Duplicate value",
        ),
    ];
    for (spec, expected) in table {
        let (code, answer) = ask(&server, "POST", CARS, &car("bad", spec.clone())).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(code == 422 && message.contains(expected), "{spec}: {code} {message}");
    }
    let blue = json!({"spec": {"color": "blue"}});
    let (code, answer) = ask(&server, "PATCH", &format!("{CARS}/a"), &blue).await;
    assert_eq!(code, 422);
    assert!(answer["message"].as_str().unwrap().contains("it cannot be painted"), "{answer}");
    let strict = format!("{CARS}?fieldValidation=Strict");
    let (code, answer) = ask(&server, "POST", &strict, &sent).await;
    assert_eq!(code, 400);
    assert!(
        answer["message"].as_str().unwrap().contains("unknown field \"spec.horn\""),
        "{answer}"
    );
}

#[tokio::test]
async fn the_status_is_written_apart() {
    let server = start_with_cars().await;
    let mut sent = car("a", json!({"color": "red"}));
    sent["status"] = json!({"speed": 1});
    assert_eq!(create(&server, CARS, &sent).await.get("status"), None);
    let one = format!("{CARS}/a");
    let faster = json!({"status": {"speed": 2}, "spec": {"doors": 5}});
    let (code, written) = ask(&server, "PATCH", &format!("{one}/status"), &faster).await;
    assert_eq!(
        (code, &written["status"], &written["spec"]["doors"]),
        (200, &json!({"speed": 2}), &json!(4))
    );
    assert_eq!(written["metadata"]["generation"], 1);
    let (_, written) =
        ask(&server, "PATCH", &one, &json!({"spec": {"doors": 5}, "status": {"speed": 9}})).await;
    assert_eq!(
        (&written["status"], &written["metadata"]["generation"]),
        (&json!({"speed": 2}), &json!(2))
    );
}

#[tokio::test]
async fn tables_have_the_columns_of_the_definition() {
    let server = start_with_cars().await;
    create(&server, CARS, &car("a", json!({"color": "red"}))).await;
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let (_, table) = server.send("GET", CARS, &accept, String::new()).await;
    assert_eq!(table["columnDefinitions"][1]["name"], "Color");
    assert_eq!(table["rows"][0]["cells"], json!(["a", "red"]));
}

#[tokio::test]
async fn server_side_apply_knows_the_schema() {
    let server = start_with_cars().await;
    let apply = async |manager: &str, spec: Value| {
        let path = format!("{CARS}/a?fieldManager={manager}");
        let headers = [("content-type", "application/apply-patch+yaml")];
        let (code, body) = server.send("PATCH", &path, &headers, car("a", spec).to_string()).await;
        (code.as_u16(), body)
    };
    let left = json!({"color": "red", "wheels": [{"place": "left", "size": 1}]});
    assert_eq!(apply("one", left).await.0, 201);
    let right = json!({"color": "red", "wheels": [{"place": "right", "size": 2}]});
    let (code, merged) = apply("two", right).await;
    assert_eq!(code, 200, "{merged}");
    assert_eq!(merged["spec"]["wheels"].as_array().unwrap().len(), 2, "a list of the type map");
    let (code, answer) =
        apply("two", json!({"color": "red", "wheels": [{"place": "left", "size": 9}]})).await;
    assert_eq!(code, 409, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("conflict with \"one\": .spec.wheels[place=\"left\"].size"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_watch_ends_when_the_definition_changes() {
    use futures::StreamExt as _;
    let server = start_with_cars().await;
    create(&server, CARS, &car("a", json!({"color": "red"}))).await;
    let request = http::Request::get(format!("{CARS}?watch=true&timeoutSeconds=60"));
    let request = request.body(axum::body::Body::empty()).unwrap();
    let router = server.hub.router_as(machinist_hub::auth::UserInfo::admin());
    let response = tower::ServiceExt::oneshot(router, request).await.unwrap();
    let mut stream = response.into_body().into_data_stream();
    let first = stream.next().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("\"ADDED\""));
    let definition = format!("{}/cars.example.com", super::DEFINITIONS);
    ask(&server, "DELETE", &definition, &Value::Null).await;
    let rest = async { while stream.next().await.is_some() {} };
    tokio::time::timeout(std::time::Duration::from_secs(10), rest).await.unwrap();
    assert_eq!(get(&server, CARS).await.0, 404);
}

#[tokio::test]
async fn objects_are_selected_by_their_fields() {
    let server = crate::support::TestHub::start().await;
    let mut definition = super::cars(super::car_spec());
    definition["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    create(&server, super::DEFINITIONS, &definition).await;
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        create(&server, CARS, &car(name, json!({"color": color}))).await;
    }
    let (_, list) = get(&server, &format!("{CARS}?fieldSelector=spec.color%3Dred")).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2, "{list}");
    let (code, answer) = get(&server, &format!("{CARS}?fieldSelector=spec.doors%3D4")).await;
    assert_eq!((code, &answer["message"]), (400, &json!("field label not supported: spec.doors")));
}
