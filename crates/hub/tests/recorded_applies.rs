//! Server-side apply as a real kube-apiserver did it: recorded sequences of requests by several managers, sent to the hub.
//! Every response must be the same: the object, who owns what, and the errors.
use machinist_hub::auth::UserInfo;
use machinist_hub::store::{Store, StoreOptions};
use machinist_hub::{Hub, HubConfig};
use serde_json::{Value, json};

use crate::pure;
use crate::support::send;

/// A response without what differs from one API server to another, and from one second to the next.
fn comparable(code: u16, mut body: Value) -> Value {
    if let Some(causes) = body["details"].get_mut("causes").and_then(Value::as_array_mut) {
        causes.sort_by_key(Value::to_string);
    }
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            metadata.remove(field);
        }
        if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
            for entry in entries.iter_mut().filter(|entry| entry.get("time").is_some()) {
                entry["time"] = json!("some");
            }
            entries.sort_by_key(|entry| {
                ["operation", "manager", "apiVersion", "subresource"]
                    .map(|key| entry[key].to_string())
            });
        }
    }
    json!({"code": code, "body": body})
}

/// The places where two responses differ, one per line.
fn differences(path: &str, wanted: &Value, found: &Value) -> String {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            let keys: std::collections::BTreeSet<_> = wanted.keys().chain(found.keys()).collect();
            let of = |fields: &serde_json::Map<String, Value>, key: &str| fields.get(key).cloned();
            let missing = || json!("(nothing)");
            keys.into_iter()
                .map(|key| {
                    let (wanted, found) = (of(wanted, key), of(found, key));
                    let (wanted, found) =
                        (wanted.unwrap_or_else(missing), found.unwrap_or_else(missing));
                    differences(&format!("{path}/{key}"), &wanted, &found)
                })
                .collect()
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            let items = wanted.iter().zip(found).enumerate();
            items
                .map(|(index, (wanted, found))| {
                    differences(&format!("{path}/{index}"), wanted, found)
                })
                .collect()
        }
        _ if wanted == found => String::new(),
        _ => format!("  {path}: kube-apiserver has {wanted}, the hub {found}\n"),
    }
}

/// The first difference of a sequence.
async fn replay(hub: &Hub, steps: &[Value]) -> Option<String> {
    let mut log = String::new();
    for step in steps {
        let text = |name: &str| step[name].as_str().unwrap();
        let (method, path) = (text("method"), text("path"));
        let router = || hub.router_as(UserInfo::admin());
        let mut body = step["body"].clone();
        if step["versioned"] == true {
            let object = path.split('?').next().unwrap().trim_end_matches("/status");
            let (_, live) = send(router(), "GET", object, &[], String::new()).await;
            let version = live["metadata"]["resourceVersion"].clone();
            let metadata = body["metadata"].as_object_mut().unwrap();
            metadata.remove("resourceVersion");
            if !version.is_null() {
                metadata.insert("resourceVersion".to_owned(), version);
            }
        }
        log.push_str(&format!("{method} {path} {} {}\n", text("type"), step["body"]));
        let headers = [("content-type", text("type"))];
        let (code, found) = send(router(), method, path, &headers, body.to_string()).await;
        let wanted = comparable(step["code"].as_u64().unwrap() as u16, step["response"].clone());
        let found = comparable(code.as_u16(), found);
        if wanted != found {
            return Some(format!("{log}{}", differences("", &wanted, &found)));
        }
    }
    None
}

#[tokio::test]
async fn the_hub_applies_as_kube_apiserver_did() {
    let path = std::env::var("MACHINIST_RECORDED_APPLIES")
        .unwrap_or_else(|_| format!("{}/tests/cases/hub/apply.jsonl", pure::root().display()));
    let config = HubConfig { crds: pure::definitions(), ..HubConfig::default() };
    let hub = Hub::start(Store::in_memory(StoreOptions::default()), config).await.unwrap();
    let (mut count, mut failures) = (0, Vec::new());
    for line in std::fs::read_to_string(&path).unwrap().lines() {
        let sequence: Value = serde_json::from_str(line).unwrap();
        count += 1;
        failures.extend(replay(&hub, sequence["steps"].as_array().unwrap()).await);
    }
    for failure in failures.iter().take(5) {
        eprintln!("{failure}\n");
    }
    assert!(failures.is_empty(), "{} of {count} sequences differ", failures.len());
}
