//! What is refused, and with which messages.

use super::ConformanceCheck;
use super::api_server::{ApiServer, TestRequest};
use super::objects::{CONFIGS, POOLS, config, create, pool};
use http::Method;
use serde_json::{Value, json};

pub const CHECKS: &[ConformanceCheck] = &[
    ("something missing is NotFound", not_found),
    ("something twice is AlreadyExists", already_exists),
    ("an unknown resource is NotFound", unknown_resource),
    ("a bad name is Invalid", bad_name),
    ("a schema violation is Invalid, with its causes", invalid),
    ("a rule of the schema is Invalid, with its message", rule),
    ("unknown fields are dropped, warned of or refused", unknown_fields),
    ("a body that is not JSON is BadRequest", malformed),
    ("a body of another kind is BadRequest", wrong_kind),
    ("name in path and body must agree", name_mismatch),
    ("a write that needs a name", method),
    ("a body that is too large", too_large),
    ("a namespace that is missing", missing_namespace),
    ("a status where there is none", no_status),
    ("an update of something missing", update_missing),
    ("a media type that is not offered", not_acceptable),
];

/// Not for kube-apiserver: it closes the connection on these bytes.
pub const HUB_CHECKS: &[ConformanceCheck] = &[("a protobuf body", protobuf)];

fn assert_reason(
    api_server: &ApiServer,
    response: &super::api_server::TestResponse,
    code: u16,
    reason: &str,
) {
    assert_eq!(
        (response.code, &response.body["reason"]),
        (code, &json!(reason)),
        "{}: {}",
        api_server.name,
        response.body
    );
    assert_eq!(
        (&response.body["kind"], &response.body["apiVersion"]),
        (&json!("Status"), &json!("v1"))
    );
    assert_eq!(
        (&response.body["status"], &response.body["code"]),
        (&json!("Failure"), &json!(code))
    );
}

fn not_acceptable(api_server: &ApiServer) {
    let known = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    let only = |list: &str| format!("only the following media types are accepted: {list}");
    let none = |list: &str| format!("406: Not Acceptable\n\nAvailable representations: {list}");
    let maps = "/api/v1/namespaces/default/configmaps";
    for (path, accept, expected) in [
        ("/api", "text/html", none(known)),
        ("/apis", "text/html", only(known)),
        ("/api/v1", "text/html", none(known)),
        ("/version", "text/html", none("application/json")),
        (maps, "text/html", none(&format!("{known}, {streams}"))),
        (maps, "application/json;as=Foo;v=v1;g=meta.k8s.io", only(known)),
        (CONFIGS, "text/html", only(known)),
        ("/api/v1/configmaps?watch=true&timeoutSeconds=1", "application/json;as=Foo", only(known)),
    ] {
        let (content_type, body) = ("application/json", Vec::new());
        let request = TestRequest { method: Method::GET, path, body, content_type, accept };
        let response = api_server.request(request).unwrap();
        assert_reason(api_server, &response, 406, "NotAcceptable");
        assert_eq!(response.body["message"], expected, "{}: {path} {accept}", api_server.name);
    }
}

fn not_found(api_server: &ApiServer) {
    let response = api_server.get(&format!("{POOLS}/nobody"));
    assert_reason(api_server, &response, 404, "NotFound");
    assert_eq!(
        response.body["message"],
        "machineconfigpools.machineconfiguration.openshift.io \"nobody\" not found"
    );
    assert_eq!(
        response.body["details"],
        json!({"name": "nobody", "group": "machineconfiguration.openshift.io", "kind": "machineconfigpools"})
    );
    assert_reason(
        api_server,
        &api_server.delete(&format!("{POOLS}/nobody"), &Value::Null),
        404,
        "NotFound",
    );
}

fn already_exists(api_server: &ApiServer) {
    create(api_server, POOLS, &pool("twice"));
    let response = api_server.post(POOLS, &pool("twice"));
    assert_reason(api_server, &response, 409, "AlreadyExists");
    assert_eq!(
        response.body["message"],
        "machineconfigpools.machineconfiguration.openshift.io \"twice\" already exists"
    );
}

fn unknown_resource(api_server: &ApiServer) {
    for path in [
        "/apis/machineconfiguration.openshift.io/v1/nonsense",
        "/apis/nobody.example.com/v1/things",
    ] {
        assert_eq!(api_server.get(path).code, 404, "{path}");
    }
}

fn bad_name(api_server: &ApiServer) {
    let response = api_server.post(POOLS, &pool("Not_A_Name"));
    assert_reason(api_server, &response, 422, "Invalid");
    let message = response.body["message"].as_str().unwrap();
    assert!(message.contains("metadata.name: Invalid value: \"Not_A_Name\""), "{message}");
}

fn invalid(api_server: &ApiServer) {
    let mut object = pool("invalid");
    object["spec"]["paused"] = json!("yes");
    let response = api_server.post(POOLS, &object);
    assert_reason(api_server, &response, 422, "Invalid");
    let message = response.body["message"].as_str().unwrap();
    let start = "MachineConfigPool.machineconfiguration.openshift.io \"invalid\" is invalid: ";
    assert!(message.starts_with(start), "{message}");
    let problem = "spec.paused: Invalid value: \"string\": spec.paused in body must be of type boolean: \"string\"";
    assert!(message.contains(problem), "{message}");
    let causes = response.body["details"]["causes"].as_array().unwrap();
    let cause = causes.iter().find(|cause| cause["field"] == "spec.paused").unwrap();
    assert_eq!(cause["reason"], "FieldValueTypeInvalid", "{cause}");
    let mut object = pool("invalid");
    object["spec"] = Value::Null;
    assert_eq!(api_server.post(POOLS, &object).code, 422);
}

fn rule(api_server: &ApiServer) {
    let nodes = "/apis/machineconfiguration.openshift.io/v1/machineconfignodes";
    let response = api_server.post(nodes, &json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigNode", "metadata": {"name": "a"},
        "spec": {"node": {"name": "b"}, "pool": {"name": "worker"}, "configVersion": {"desired": "x"}}
    }));
    assert_reason(api_server, &response, 422, "Invalid");
    let message = response.body["message"].as_str().unwrap();
    assert!(message.contains("spec.node.name should match metadata.name"), "{message}");
}

fn unknown_fields(api_server: &ApiServer) {
    let mut object = pool("unknown");
    object["spec"]["pausde"] = json!(true);
    let strict = api_server.post(&format!("{POOLS}?fieldValidation=Strict"), &object);
    assert_reason(api_server, &strict, 400, "BadRequest");
    let message = strict.body["message"].as_str().unwrap();
    assert!(message.contains("unknown field \"spec.pausde\""), "{message}");
    let warned = api_server.post(&format!("{POOLS}?fieldValidation=Warn"), &object);
    assert_eq!(warned.code, 201);
    assert!(
        warned.warnings.iter().any(|text| text.contains("unknown field \\\"spec.pausde\\\"")),
        "{:?}",
        warned.warnings
    );
    assert!(warned.body["spec"].get("pausde").is_none(), "{}", warned.body);
}

fn request(
    api_server: &ApiServer,
    method: Method,
    path: &str,
    body: &[u8],
    content_type: &str,
) -> super::api_server::TestResponse {
    let question =
        TestRequest { method, path, body: body.to_vec(), content_type, accept: "application/json" };
    api_server.request(question).unwrap()
}

fn malformed(api_server: &ApiServer) {
    assert_reason(
        api_server,
        &request(api_server, Method::POST, POOLS, b"{\"kind\": ", "application/json"),
        400,
        "BadRequest",
    );
    assert_reason(
        api_server,
        &request(api_server, Method::POST, POOLS, b"", "application/json"),
        400,
        "BadRequest",
    );
    let yaml = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata:\n  name: from-yaml\nspec: {paused: true}\n";
    let response = request(api_server, Method::POST, POOLS, yaml.as_bytes(), "application/yaml");
    assert_eq!(response.code, 201, "{}", response.body);
    assert_eq!(response.body["spec"]["paused"], true);
}

fn wrong_kind(api_server: &ApiServer) {
    let response = api_server.post(POOLS, &config("kind"));
    assert_reason(api_server, &response, 422, "Invalid");
    let message = response.body["message"].as_str().unwrap();
    assert!(
        message.contains("kind: Invalid value: \"MachineConfig\": must be MachineConfigPool"),
        "{message}"
    );
    let mut object = pool("version");
    object["apiVersion"] = json!("machineconfiguration.openshift.io/v7");
    assert_reason(api_server, &api_server.post(POOLS, &object), 400, "BadRequest");
}

fn name_mismatch(api_server: &ApiServer) {
    create(api_server, POOLS, &pool("path-name"));
    let response = api_server.put(&format!("{POOLS}/path-name"), &pool("body-name"));
    assert_reason(api_server, &response, 400, "BadRequest");
    let message = response.body["message"].as_str().unwrap();
    assert!(
        message.contains(
            "the name of the object (body-name) does not match the name on the URL (path-name)"
        ),
        "{message}"
    );
}

fn method(api_server: &ApiServer) {
    for response in
        [api_server.put(POOLS, &pool("x")), api_server.patch(POOLS, "merge-patch+json", &json!({}))]
    {
        assert_reason(api_server, &response, 400, "BadRequest");
        assert_eq!(response.body["message"], "name must be provided");
    }
}

fn too_large(api_server: &ApiServer) {
    let mut object = config("large");
    object["spec"]["kernelArguments"] = json!(["x".repeat(4 << 20)]);
    assert_eq!(api_server.post(CONFIGS, &object).code, 413);
}

fn missing_namespace(api_server: &ApiServer) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    let response = api_server.post("/api/v1/namespaces/nowhere/configmaps", &object);
    assert_reason(api_server, &response, 404, "NotFound");
    assert_eq!(response.body["message"], "namespaces \"nowhere\" not found");
}

fn no_status(api_server: &ApiServer) {
    create(api_server, CONFIGS, &config("no-status"));
    assert_eq!(api_server.get(&format!("{CONFIGS}/no-status/status")).code, 404);
}

fn update_missing(api_server: &ApiServer) {
    assert_eq!(api_server.put(&format!("{POOLS}/nobody-yet"), &pool("nobody-yet")).code, 404);
}

fn protobuf(api_server: &ApiServer) {
    let response = request(
        api_server,
        Method::POST,
        POOLS,
        b"k8s\0xxxx",
        "application/vnd.kubernetes.protobuf",
    );
    assert_reason(api_server, &response, 415, "UnsupportedMediaType");
}
