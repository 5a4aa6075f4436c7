//! What is refused, and in which words.

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
];

/// Where the real server cannot be asked: these bytes end its connection.
pub const HUB_CHECKS: &[ConformanceCheck] = &[("a protobuf body", protobuf)];

fn assert_reason(
    home: &ApiServer,
    answer: &super::api_server::TestResponse,
    code: u16,
    reason: &str,
) {
    assert_eq!(
        (answer.code, &answer.body["reason"]),
        (code, &json!(reason)),
        "{}: {}",
        home.name,
        answer.body
    );
    assert_eq!(
        (&answer.body["kind"], &answer.body["apiVersion"]),
        (&json!("Status"), &json!("v1"))
    );
    assert_eq!((&answer.body["status"], &answer.body["code"]), (&json!("Failure"), &json!(code)));
}

fn not_found(home: &ApiServer) {
    let answer = home.get(&format!("{POOLS}/nobody"));
    assert_reason(home, &answer, 404, "NotFound");
    assert_eq!(
        answer.body["message"],
        "machineconfigpools.machineconfiguration.openshift.io \"nobody\" not found"
    );
    assert_eq!(
        answer.body["details"],
        json!({"name": "nobody", "group": "machineconfiguration.openshift.io", "kind": "machineconfigpools"})
    );
    assert_reason(home, &home.delete(&format!("{POOLS}/nobody"), &Value::Null), 404, "NotFound");
}

fn already_exists(home: &ApiServer) {
    create(home, POOLS, &pool("twice"));
    let answer = home.post(POOLS, &pool("twice"));
    assert_reason(home, &answer, 409, "AlreadyExists");
    assert_eq!(
        answer.body["message"],
        "machineconfigpools.machineconfiguration.openshift.io \"twice\" already exists"
    );
}

fn unknown_resource(home: &ApiServer) {
    for path in [
        "/apis/machineconfiguration.openshift.io/v1/nonsense",
        "/apis/nobody.example.com/v1/things",
    ] {
        assert_eq!(home.get(path).code, 404, "{path}");
    }
}

fn bad_name(home: &ApiServer) {
    let answer = home.post(POOLS, &pool("Not_A_Name"));
    assert_reason(home, &answer, 422, "Invalid");
    let message = answer.body["message"].as_str().unwrap();
    assert!(message.contains("metadata.name: Invalid value: \"Not_A_Name\""), "{message}");
}

fn invalid(home: &ApiServer) {
    let mut object = pool("invalid");
    object["spec"]["paused"] = json!("yes");
    let answer = home.post(POOLS, &object);
    assert_reason(home, &answer, 422, "Invalid");
    let message = answer.body["message"].as_str().unwrap();
    let start = "MachineConfigPool.machineconfiguration.openshift.io \"invalid\" is invalid: ";
    assert!(message.starts_with(start), "{message}");
    let problem = "spec.paused: Invalid value: \"string\": spec.paused in body must be of type boolean: \"string\"";
    assert!(message.contains(problem), "{message}");
    let causes = answer.body["details"]["causes"].as_array().unwrap();
    let cause = causes.iter().find(|cause| cause["field"] == "spec.paused").unwrap();
    assert_eq!(cause["reason"], "FieldValueTypeInvalid", "{cause}");
    let mut object = pool("invalid");
    object["spec"] = Value::Null;
    assert_eq!(home.post(POOLS, &object).code, 422);
}

fn rule(home: &ApiServer) {
    let nodes = "/apis/machineconfiguration.openshift.io/v1/machineconfignodes";
    let answer = home.post(nodes, &json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigNode", "metadata": {"name": "a"},
        "spec": {"node": {"name": "b"}, "pool": {"name": "worker"}, "configVersion": {"desired": "x"}}
    }));
    assert_reason(home, &answer, 422, "Invalid");
    let message = answer.body["message"].as_str().unwrap();
    assert!(message.contains("spec.node.name should match metadata.name"), "{message}");
}

fn unknown_fields(home: &ApiServer) {
    let mut object = pool("unknown");
    object["spec"]["pausde"] = json!(true);
    let strict = home.post(&format!("{POOLS}?fieldValidation=Strict"), &object);
    assert_reason(home, &strict, 400, "BadRequest");
    let message = strict.body["message"].as_str().unwrap();
    assert!(message.contains("unknown field \"spec.pausde\""), "{message}");
    let warned = home.post(&format!("{POOLS}?fieldValidation=Warn"), &object);
    assert_eq!(warned.code, 201);
    assert!(
        warned.warnings.iter().any(|text| text.contains("unknown field \\\"spec.pausde\\\"")),
        "{:?}",
        warned.warnings
    );
    assert!(warned.body["spec"].get("pausde").is_none(), "{}", warned.body);
}

fn request(
    home: &ApiServer,
    method: Method,
    path: &str,
    body: &[u8],
    content_type: &str,
) -> super::api_server::TestResponse {
    let question =
        TestRequest { method, path, body: body.to_vec(), content_type, accept: "application/json" };
    home.request(question).unwrap()
}

fn malformed(home: &ApiServer) {
    assert_reason(
        home,
        &request(home, Method::POST, POOLS, b"{\"kind\": ", "application/json"),
        400,
        "BadRequest",
    );
    assert_reason(
        home,
        &request(home, Method::POST, POOLS, b"", "application/json"),
        400,
        "BadRequest",
    );
    let yaml = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata:\n  name: from-yaml\nspec: {paused: true}\n";
    let answer = request(home, Method::POST, POOLS, yaml.as_bytes(), "application/yaml");
    assert_eq!(answer.code, 201, "{}", answer.body);
    assert_eq!(answer.body["spec"]["paused"], true);
}

fn wrong_kind(home: &ApiServer) {
    let answer = home.post(POOLS, &config("kind"));
    assert_reason(home, &answer, 422, "Invalid");
    let message = answer.body["message"].as_str().unwrap();
    assert!(
        message.contains("kind: Invalid value: \"MachineConfig\": must be MachineConfigPool"),
        "{message}"
    );
    let mut object = pool("version");
    object["apiVersion"] = json!("machineconfiguration.openshift.io/v7");
    assert_reason(home, &home.post(POOLS, &object), 400, "BadRequest");
}

fn name_mismatch(home: &ApiServer) {
    create(home, POOLS, &pool("path-name"));
    let answer = home.put(&format!("{POOLS}/path-name"), &pool("body-name"));
    assert_reason(home, &answer, 400, "BadRequest");
    let message = answer.body["message"].as_str().unwrap();
    assert!(
        message.contains(
            "the name of the object (body-name) does not match the name on the URL (path-name)"
        ),
        "{message}"
    );
}

fn method(home: &ApiServer) {
    for answer in [home.put(POOLS, &pool("x")), home.patch(POOLS, "merge-patch+json", &json!({}))] {
        assert_reason(home, &answer, 400, "BadRequest");
        assert_eq!(answer.body["message"], "name must be provided");
    }
}

fn too_large(home: &ApiServer) {
    let mut object = config("large");
    object["spec"]["kernelArguments"] = json!(["x".repeat(4 << 20)]);
    assert_eq!(home.post(CONFIGS, &object).code, 413);
}

fn missing_namespace(home: &ApiServer) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    let answer = home.post("/api/v1/namespaces/nowhere/configmaps", &object);
    assert_reason(home, &answer, 404, "NotFound");
    assert_eq!(answer.body["message"], "namespaces \"nowhere\" not found");
}

fn no_status(home: &ApiServer) {
    create(home, CONFIGS, &config("no-status"));
    assert_eq!(home.get(&format!("{CONFIGS}/no-status/status")).code, 404);
}

fn update_missing(home: &ApiServer) {
    assert_eq!(home.put(&format!("{POOLS}/nobody-yet"), &pool("nobody-yet")).code, 404);
}

fn protobuf(home: &ApiServer) {
    let answer =
        request(home, Method::POST, POOLS, b"k8s\0xxxx", "application/vnd.kubernetes.protobuf");
    assert_reason(home, &answer, 415, "UnsupportedMediaType");
}
