//! Reading: lists, selectors, pages, tables, watches, discovery.

use super::ConformanceCheck;
use super::api_server::{ApiServer, TestRequest};
use super::objects::{CONFIGS, POOLS, config, create, pool};
use http::Method;
use serde_json::{Value, json};

pub const CHECKS: &[ConformanceCheck] = &[
    ("lists are selected by label and by name", selectors),
    ("lists come in pages of one revision", pages),
    ("a table has the columns of the kind", table),
    ("a watch sees what happens after a revision", watch),
    ("a watch sees objects enter and leave its selector", watch_selector),
    ("partial metadata", partial_metadata),
    ("discovery names our kinds", discovery),
    ("aggregated discovery names our kinds", aggregated_discovery),
    ("openapi v3 has the schemas", openapi),
    ("health and version answer", health),
];

/// Requests that kube-apiserver refuses with Debian's etcd 3.4.
pub const HUB_CHECKS: &[ConformanceCheck] =
    &[("a watch with initial events ends them with a bookmark", initial_events)];

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect()
}

fn selectors(api_server: &ApiServer) {
    for (name, tier, zone) in
        [("sel-a", "gold", "n"), ("sel-b", "gold", "s"), ("sel-c", "tin", "n")]
    {
        let mut object = config(name);
        object["metadata"]["labels"] = json!({"tier": tier, "zone": zone, "suite": "selectors"});
        create(api_server, CONFIGS, &object);
    }
    for (query, expected) in [
        ("labelSelector=suite%3Dselectors%2Ctier%3Dgold", vec!["sel-a", "sel-b"]),
        ("labelSelector=suite%2Ctier%20in%20(tin%2Clead)", vec!["sel-c"]),
        ("labelSelector=suite%2Ctier%20notin%20(gold)", vec!["sel-c"]),
        ("labelSelector=suite%2Czone!%3Dn", vec!["sel-b"]),
        ("labelSelector=suite%2C!nothing", vec!["sel-a", "sel-b", "sel-c"]),
        ("fieldSelector=metadata.name%3Dsel-b", vec!["sel-b"]),
        ("labelSelector=suite&fieldSelector=metadata.name!%3Dsel-b", vec!["sel-a", "sel-c"]),
    ] {
        let response = api_server.get(&format!("{CONFIGS}?{query}"));
        assert_eq!(response.code, 200, "{query}: {}", response.body);
        assert_eq!(names(&response.body), expected, "{query}");
        assert_eq!(response.body["kind"], "MachineConfigList");
    }
    assert_eq!(api_server.get(&format!("{CONFIGS}?labelSelector=a%20b")).code, 400);
    assert_eq!(api_server.get(&format!("{CONFIGS}?fieldSelector=spec.fips%3Dtrue")).code, 400);
}

fn pages(api_server: &ApiServer) {
    for index in 0..7 {
        let mut object = config(&format!("page-{index}"));
        object["metadata"]["labels"] = json!({"suite": "pages"});
        create(api_server, CONFIGS, &object);
    }
    let first = api_server.get(&format!("{CONFIGS}?limit=3")).body;
    assert_eq!(names(&first).len(), 3);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let total = 3 + first["metadata"]["remainingItemCount"].as_u64().unwrap();
    create(api_server, CONFIGS, &config("page-later"));
    let mut seen: Vec<String> = names(&first).iter().map(ToString::to_string).collect();
    let mut token = token;
    while !token.is_empty() {
        let page = api_server.get(&format!("{CONFIGS}?limit=3&continue={token}"));
        assert_eq!(page.code, 200, "{}", page.body);
        assert_eq!(page.body["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
        seen.extend(names(&page.body).iter().map(ToString::to_string));
        token = page.body["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!(seen.len() as u64, total, "{seen:?}");
    assert!(!seen.contains(&"page-later".to_owned()), "a page is of another revision");
    assert_eq!(api_server.get(&format!("{CONFIGS}?limit=3&continue=nonsense")).code, 400);
}

fn table(api_server: &ApiServer) {
    create(api_server, POOLS, &pool("tabled"));
    let status = json!({"status": {
        "machineCount": 3, "readyMachineCount": 2, "configuration": {"name": "rendered-x"},
        "conditions": [{"type": "Updated", "status": "True", "lastTransitionTime": null}]
    }});
    api_server.patch(&format!("{POOLS}/tabled/status"), "merge-patch+json", &status);
    let path = format!("{POOLS}?fieldSelector=metadata.name%3Dtabled");
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let request = TestRequest {
        method: Method::GET,
        path: &path,
        body: Vec::new(),
        content_type: "application/json",
        accept,
    };
    let table = api_server.request(request).unwrap().body;
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|c| c["name"].as_str())
        .collect();
    assert_eq!(
        columns,
        [
            "Name",
            "Config",
            "Updated",
            "Updating",
            "Degraded",
            "MachineCount",
            "ReadyMachineCount",
            "UpdatedMachineCount",
            "DegradedMachineCount",
            "Age",
            "Blocked",
            "Why"
        ]
    );
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(
        cells[..7],
        [
            json!("tabled"),
            json!("rendered-x"),
            json!("True"),
            Value::Null,
            Value::Null,
            json!(3),
            json!(2)
        ]
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

/// (type, name) of each event.
fn event_types_and_names(events: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events
        .iter()
        .map(|event| (text(&event["type"]), text(&event["object"]["metadata"]["name"])))
        .collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(kind, name)| ((*kind).to_owned(), (*name).to_owned())).collect()
}

fn watch(api_server: &ApiServer) {
    let first = create(api_server, CONFIGS, &config("watched-1"));
    let revision = first["metadata"]["resourceVersion"].as_str().unwrap();
    create(api_server, CONFIGS, &config("watched-2"));
    api_server.patch(
        &format!("{CONFIGS}/watched-1"),
        "merge-patch+json",
        &json!({"spec": {"fips": true}}),
    );
    api_server.delete(&format!("{CONFIGS}/watched-2"), &Value::Null);
    let events =
        api_server.watch(&format!("{CONFIGS}?watch=1&resourceVersion={revision}&timeoutSeconds=2"));
    assert_eq!(
        event_types_and_names(&events),
        pairs(&[("ADDED", "watched-2"), ("MODIFIED", "watched-1"), ("DELETED", "watched-2")])
    );
    let versions: Vec<u64> = events
        .iter()
        .map(|e| e["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap())
        .collect();
    assert!(versions.is_sorted(), "{versions:?}");
    let one = format!(
        "{CONFIGS}?watch=1&resourceVersion={revision}&timeoutSeconds=1&fieldSelector=metadata.name%3Dwatched-1"
    );
    assert_eq!(event_types_and_names(&api_server.watch(&one)), pairs(&[("MODIFIED", "watched-1")]));
}

fn watch_selector(api_server: &ApiServer) {
    let list = api_server.get(CONFIGS).body;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    create(api_server, CONFIGS, &config("wanderer"));
    let path = format!("{CONFIGS}/wanderer");
    api_server.patch(&path, "merge-patch+json", &json!({"metadata": {"labels": {"in": "yes"}}}));
    api_server.patch(&path, "merge-patch+json", &json!({"spec": {"fips": true}}));
    api_server.patch(&path, "merge-patch+json", &json!({"metadata": {"labels": {"in": null}}}));
    let events = api_server.watch(&format!(
        "{CONFIGS}?watch=1&resourceVersion={revision}&timeoutSeconds=2&labelSelector=in%3Dyes"
    ));
    assert_eq!(
        event_types_and_names(&events),
        pairs(&[("ADDED", "wanderer"), ("MODIFIED", "wanderer"), ("DELETED", "wanderer")])
    );
}

fn initial_events(api_server: &ApiServer) {
    create(api_server, CONFIGS, &config("initial"));
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=2&fieldSelector=metadata.name%3Dinitial";
    let events = api_server.watch(&format!("{CONFIGS}?{query}"));
    assert_eq!(events[0]["type"], "ADDED", "{events:?}");
    let bookmark = events.iter().find(|event| event["type"] == "BOOKMARK").unwrap();
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

fn partial_metadata(api_server: &ApiServer) {
    create(api_server, CONFIGS, &config("partial"));
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
    let path = format!("{CONFIGS}/partial");
    let request = TestRequest {
        method: Method::GET,
        path: &path,
        body: Vec::new(),
        content_type: "application/json",
        accept,
    };
    let object = api_server.request(request).unwrap().body;
    assert_eq!(object["kind"], "PartialObjectMetadata", "{object}");
    assert!(object.get("spec").is_none());
}

fn discovery(api_server: &ApiServer) {
    assert!(api_server.get("/api").body["versions"].as_array().unwrap().contains(&json!("v1")));
    let groups = api_server.get("/apis").body;
    let ours = groups["groups"]
        .as_array()
        .unwrap()
        .iter()
        .find(|g| g["name"] == "machineconfiguration.openshift.io")
        .unwrap();
    assert_eq!(ours["preferredVersion"]["version"], "v1");
    let resources = api_server.get("/apis/machineconfiguration.openshift.io/v1").body;
    let find = |name: &str| {
        resources["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).cloned()
    };
    let pools = find("machineconfigpools").unwrap();
    assert_eq!(
        (&pools["kind"], &pools["namespaced"], &pools["shortNames"]),
        (&json!("MachineConfigPool"), &json!(false), &json!(["mcp"]))
    );
    let mut verbs: Vec<&str> =
        pools["verbs"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    verbs.sort_unstable();
    assert_eq!(
        verbs,
        ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    );
    assert!(find("machineconfigpools/status").is_some());
    assert!(find("machineconfigs/status").is_none());
}

fn aggregated_discovery(api_server: &ApiServer) {
    let accept =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let request = TestRequest {
        method: Method::GET,
        path: "/apis",
        body: Vec::new(),
        content_type: "application/json",
        accept,
    };
    let list = api_server.request(request).unwrap().body;
    assert_eq!(list["kind"], "APIGroupDiscoveryList");
    let ours = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|g| g["metadata"]["name"] == "machineconfiguration.openshift.io")
        .unwrap();
    let resources = ours["versions"][0]["resources"].as_array().unwrap();
    let pools = resources.iter().find(|r| r["resource"] == "machineconfigpools").unwrap();
    assert_eq!(
        (&pools["scope"], &pools["singularResource"]),
        (&json!("Cluster"), &json!("machineconfigpool"))
    );
    assert_eq!(pools["subresources"][0]["subresource"], "status");
}

fn openapi(api_server: &ApiServer) {
    let index = api_server.get("/openapi/v3").body;
    let path = index["paths"]["apis/machineconfiguration.openshift.io/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap()
        .to_owned();
    let document = api_server.get(&path).body;
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let pool = schemas.iter().find(|(name, _)| name.ends_with(".MachineConfigPool")).unwrap().1;
    assert!(
        pool["properties"]["spec"]["properties"]["paused"]["description"].is_string(),
        "{pool}"
    );
}

fn health(api_server: &ApiServer) {
    for path in ["/healthz", "/livez", "/readyz"] {
        let response = api_server.get(path);
        assert_eq!((response.code, &response.body), (200, &json!("ok")), "{path}");
    }
    assert_eq!(api_server.get("/version").body["major"], "1");
}
