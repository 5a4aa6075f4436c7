//! What is refused, and in which words.

use super::Check;
use super::home::{Home, Question};
use super::objects::{CONFIGS, POOLS, config, make, pool};
use http::Method;
use serde_json::{Value, json};

pub const CHECKS: &[Check] = &[
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
pub const HUB_CHECKS: &[Check] = &[("a protobuf body", protobuf)];

fn reason(home: &Home, answer: &super::home::Answer, code: u16, reason: &str) {
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

fn not_found(home: &Home) {
    let answer = home.get(&format!("{POOLS}/nobody"));
    reason(home, &answer, 404, "NotFound");
    assert_eq!(
        answer.body["message"],
        "machineconfigpools.machineconfiguration.openshift.io \"nobody\" not found"
    );
    assert_eq!(
        answer.body["details"],
        json!({"name": "nobody", "group": "machineconfiguration.openshift.io", "kind": "machineconfigpools"})
    );
    reason(home, &home.delete(&format!("{POOLS}/nobody"), &Value::Null), 404, "NotFound");
}

fn already_exists(home: &Home) {
    make(home, POOLS, &pool("twice"));
    let answer = home.post(POOLS, &pool("twice"));
    reason(home, &answer, 409, "AlreadyExists");
    assert_eq!(
        answer.body["message"],
        "machineconfigpools.machineconfiguration.openshift.io \"twice\" already exists"
    );
}

fn unknown_resource(home: &Home) {
    for path in [
        "/apis/machineconfiguration.openshift.io/v1/nonsense",
        "/apis/nobody.example.com/v1/things",
    ] {
        assert_eq!(home.get(path).code, 404, "{path}");
    }
}

fn bad_name(home: &Home) {
    let answer = home.post(POOLS, &pool("Not_A_Name"));
    reason(home, &answer, 422, "Invalid");
    let message = answer.body["message"].as_str().unwrap();
    assert!(message.contains("metadata.name: Invalid value: \"Not_A_Name\""), "{message}");
}

fn invalid(home: &Home) {
    let mut object = pool("invalid");
    object["spec"]["paused"] = json!("yes");
    let answer = home.post(POOLS, &object);
    reason(home, &answer, 422, "Invalid");
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

fn rule(home: &Home) {
    let nodes = "/apis/machineconfiguration.openshift.io/v1/machineconfignodes";
    let answer = home.post(nodes, &json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigNode", "metadata": {"name": "a"},
        "spec": {"node": {"name": "b"}, "pool": {"name": "worker"}, "configVersion": {"desired": "x"}}
    }));
    reason(home, &answer, 422, "Invalid");
    let message = answer.body["message"].as_str().unwrap();
    assert!(message.contains("spec.node.name should match metadata.name"), "{message}");
}

fn unknown_fields(home: &Home) {
    let mut object = pool("unknown");
    object["spec"]["pausde"] = json!(true);
    let strict = home.post(&format!("{POOLS}?fieldValidation=Strict"), &object);
    reason(home, &strict, 400, "BadRequest");
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

fn ask(
    home: &Home,
    method: Method,
    path: &str,
    body: &[u8],
    content_type: &str,
) -> super::home::Answer {
    let question =
        Question { method, path, body: body.to_vec(), content_type, accept: "application/json" };
    home.ask(question).unwrap()
}

fn malformed(home: &Home) {
    reason(
        home,
        &ask(home, Method::POST, POOLS, b"{\"kind\": ", "application/json"),
        400,
        "BadRequest",
    );
    reason(home, &ask(home, Method::POST, POOLS, b"", "application/json"), 400, "BadRequest");
    let yaml = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata:\n  name: from-yaml\nspec: {paused: true}\n";
    let answer = ask(home, Method::POST, POOLS, yaml.as_bytes(), "application/yaml");
    assert_eq!(answer.code, 201, "{}", answer.body);
    assert_eq!(answer.body["spec"]["paused"], true);
}

fn wrong_kind(home: &Home) {
    let answer = home.post(POOLS, &config("kind"));
    reason(home, &answer, 422, "Invalid");
    let message = answer.body["message"].as_str().unwrap();
    assert!(
        message.contains("kind: Invalid value: \"MachineConfig\": must be MachineConfigPool"),
        "{message}"
    );
    let mut object = pool("version");
    object["apiVersion"] = json!("machineconfiguration.openshift.io/v7");
    reason(home, &home.post(POOLS, &object), 400, "BadRequest");
}

fn name_mismatch(home: &Home) {
    make(home, POOLS, &pool("path-name"));
    let answer = home.put(&format!("{POOLS}/path-name"), &pool("body-name"));
    reason(home, &answer, 400, "BadRequest");
    let message = answer.body["message"].as_str().unwrap();
    assert!(
        message.contains(
            "the name of the object (body-name) does not match the name on the URL (path-name)"
        ),
        "{message}"
    );
}

fn method(home: &Home) {
    for answer in [home.put(POOLS, &pool("x")), home.patch(POOLS, "merge-patch+json", &json!({}))] {
        reason(home, &answer, 400, "BadRequest");
        assert_eq!(answer.body["message"], "name must be provided");
    }
}

fn too_large(home: &Home) {
    let mut object = config("large");
    object["spec"]["kernelArguments"] = json!(["x".repeat(4 << 20)]);
    assert_eq!(home.post(CONFIGS, &object).code, 413);
}

fn missing_namespace(home: &Home) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    let answer = home.post("/api/v1/namespaces/nowhere/configmaps", &object);
    reason(home, &answer, 404, "NotFound");
    assert_eq!(answer.body["message"], "namespaces \"nowhere\" not found");
}

fn no_status(home: &Home) {
    make(home, CONFIGS, &config("no-status"));
    assert_eq!(home.get(&format!("{CONFIGS}/no-status/status")).code, 404);
}

fn update_missing(home: &Home) {
    assert_eq!(home.put(&format!("{POOLS}/nobody-yet"), &pool("nobody-yet")).code, 404);
}

fn protobuf(home: &Home) {
    let answer =
        ask(home, Method::POST, POOLS, b"k8s\0xxxx", "application/vnd.kubernetes.protobuf");
    reason(home, &answer, 415, "UnsupportedMediaType");
}
