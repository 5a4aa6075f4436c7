//! What someone may do who only creates objects of a kind that an administrator has defined without much thought.

use serde_json::{Value, json};

use super::{CARS, DEFINITIONS, ask, car, cars, create, get};
use crate::support::TestHub;

async fn start_with(spec: Value) -> TestHub {
    let server = TestHub::start().await;
    create(&server, DEFINITIONS, &cars(spec)).await;
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_does_not_multiply_with_the_items_of_a_list() {
    let part = json!({"type": "string", "default": "x".repeat(60_000)});
    let items = json!({"type": "object", "properties": {"text": part}});
    let list = json!({"type": "array", "items": items});
    let server = start_with(json!({"type": "object", "properties": {"list": list}})).await;
    let list = |length: usize| json!({"list": vec![json!({}); length]});
    create(&server, CARS, &car("small", list(2))).await;
    let (code, answer) = ask(&server, "POST", CARS, &car("large", list(20_000))).await;
    assert_eq!(code, 413, "{:.200}", answer.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_a_rule_makes_counts() {
    let rule = "self.split(',').all(x, self.split(',').exists_one(y, x == y))";
    let rules = json!([{"rule": rule, "message": "tags differ"}]);
    let tags = json!({"type": "string", "x-kubernetes-validations": rules});
    let server = start_with(json!({"type": "object", "properties": {"tags": tags}})).await;
    let tags = |count: usize| {
        let all: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        json!({"tags": all.join(",")})
    };
    create(&server, CARS, &car("few", tags(20))).await;
    let (code, answer) = ask(&server, "POST", CARS, &car("many", tags(2_000))).await;
    assert_eq!(code, 422, "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("cost budget"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_that_compiles_to_megabytes_is_refused() {
    let pattern = json!({"type": "string", "pattern": "[\\pL\\pN]{300}z"});
    let spec = json!({"type": "object", "properties": {"a": pattern}});
    let server = TestHub::start().await;
    let (code, answer) = ask(&server, "POST", DEFINITIONS, &cars(spec)).await;
    assert_eq!(code, 422, "{answer}");
    // The same as data of a rule.
    let rules = json!([{"rule": "'abc'.matches(self)"}]);
    let value = json!({"type": "string", "x-kubernetes-validations": rules});
    let spec = json!({"type": "object", "properties": {"a": value}});
    create(&server, DEFINITIONS, &cars(spec)).await;
    let sent = car("a", json!({"a": "[\\pL\\pN]{300}z"}));
    assert_eq!(ask(&server, "POST", CARS, &sent).await.0, 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_object_outlives_its_definition() {
    let server = start_with(json!({"type": "object"})).await;
    let definition = format!("{DEFINITIONS}/cars.example.com");
    for round in 0..8 {
        let objects: Vec<Value> =
            (0..8).map(|number| car(&format!("c{number}"), json!({}))).collect();
        let created = objects.iter().map(|object| ask(&server, "POST", CARS, object));
        let (_, (code, _)) = tokio::join!(
            futures::future::join_all(created),
            ask(&server, "DELETE", &definition, &Value::Null)
        );
        assert_eq!(code, 200);
        while get(&server, &definition).await.0 != 404 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        create(&server, DEFINITIONS, &cars(json!({"type": "object"}))).await;
        let (code, list) = get(&server, CARS).await;
        assert_eq!(
            (code, list["items"].as_array().map(Vec::len)),
            (200, Some(0)),
            "{round} {list}"
        );
    }
}
