//! Errors, compared with `Status` objects of kube-apiserver.
use crate::pure;

use machinist_hub::schema::FieldError;
use machinist_hub::status::ApiError;
use serde_json::{Value, json};

fn status(code: u16, reason: &str, message: &str, details: &Value) -> Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    if !details.is_null() {
        status["details"] = details.clone();
    }
    status
}

#[test]
fn errors_match_kube_apiserver() {
    let node = pure::kind_of(&json!({"apiVersion": "v1", "kind": "Node"}));
    let config =
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig"});
    let config = pure::kind_of(&config);
    let group = "machineconfiguration.openshift.io";
    let table = [
        (
            ApiError::not_found(node, "x"),
            status(
                404,
                "NotFound",
                "nodes \"x\" not found",
                &json!({"name": "x", "kind": "nodes"}),
            ),
        ),
        (
            ApiError::not_found(config, "x"),
            status(
                404,
                "NotFound",
                "machineconfigs.machineconfiguration.openshift.io \"x\" not found",
                &json!({"name": "x", "group": group, "kind": "machineconfigs"}),
            ),
        ),
        (
            ApiError::already_exists(config, "a"),
            status(
                409,
                "AlreadyExists",
                "machineconfigs.machineconfiguration.openshift.io \"a\" already exists",
                &json!({"name": "a", "group": group, "kind": "machineconfigs"}),
            ),
        ),
        (
            ApiError::modified_conflict(node, "n"),
            status(
                409,
                "Conflict",
                "Operation cannot be fulfilled on nodes \"n\": the object has been modified; \
                 please apply your changes to the latest version and try again",
                &json!({"name": "n", "kind": "nodes"}),
            ),
        ),
        (
            ApiError::forbidden("nobody", "get", "", "nodes/status", "x", None),
            status(
                403,
                "Forbidden",
                "nodes \"x\" is forbidden: User \"nobody\" cannot get resource \"nodes/status\" in \
                 API group \"\" at the cluster scope",
                &json!({"name": "x", "kind": "nodes"}),
            ),
        ),
        (
            ApiError::forbidden("nobody", "deletecollection", "", "secrets", "", Some("foo")),
            status(
                403,
                "Forbidden",
                "secrets is forbidden: User \"nobody\" cannot deletecollection resource \
                 \"secrets\" in API group \"\" in the namespace \"foo\"",
                &json!({"kind": "secrets"}),
            ),
        ),
        (
            ApiError::forbidden_path("nobody", "get", "/foo"),
            status(
                403,
                "Forbidden",
                "forbidden: User \"nobody\" cannot get path \"/foo\"",
                &json!({}),
            ),
        ),
        (ApiError::unauthorized(), status(401, "Unauthorized", "Unauthorized", &Value::Null)),
        (
            ApiError::method_not_allowed(),
            status(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
                &json!({}),
            ),
        ),
        (
            ApiError::resource_not_found(),
            status(404, "NotFound", "the server could not find the requested resource", &json!({})),
        ),
        (
            ApiError::not_acceptable(&["application/json", "application/yaml"]),
            status(
                406,
                "NotAcceptable",
                "only the following media types are accepted: application/json, application/yaml",
                &Value::Null,
            ),
        ),
        (
            ApiError::unsupported_media_type(&["application/json"]),
            status(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json",
                &Value::Null,
            ),
        ),
        (
            ApiError::future_revision(100_000, 298),
            status(
                504,
                "Timeout",
                "Timeout: Too large resource version: 100000, current: 298",
                &json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}),
            ),
        ),
    ];
    for (ours, theirs) in table {
        assert_eq!(ours.to_status(), theirs);
    }
}

#[test]
fn field_errors_become_causes() {
    let error = FieldError::forbidden(
        "resourceVersionMatch",
        "resourceVersionMatch is forbidden unless resourceVersion is provided",
    );
    let ours = ApiError::invalid_options("meta.k8s.io", "ListOptions", "", vec![error.clone()]);
    let message = "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
                   resourceVersionMatch is forbidden unless resourceVersion is provided";
    let causes = json!([{
        "reason": "FieldValueForbidden",
        "message": "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        "field": "resourceVersionMatch",
    }]);
    let details = json!({"group": "meta.k8s.io", "kind": "ListOptions", "causes": causes});
    assert_eq!(ours.to_status(), status(422, "Invalid", message, &details));
    let twice = ApiError::invalid_options("", "Node", "n", vec![error.clone(), error]);
    assert_eq!(twice.message.matches("Forbidden").count(), 1, "duplicates are reported once");
}

#[test]
fn field_errors_have_the_same_texts() {
    let table = [
        (FieldError::required("spec.x", ""), "spec.x: Required value"),
        (FieldError::invalid("spec.x", "y", "bad"), "spec.x: Invalid value: \"y\": bad"),
        (FieldError::invalid("spec.x", 5, "bad"), "spec.x: Invalid value: 5: bad"),
        (FieldError::invalid("a", json!({"b": "<"}), ""), "a: Invalid value: {\"b\":\"\\u003c\"}"),
        (FieldError::invalid("a", "\u{1}\n\"é", ""), "a: Invalid value: \"\\x01\\n\\\"é\""),
        (
            FieldError::not_supported("spec.x", "a", &["b", "c"]),
            "spec.x: Unsupported value: \"a\": supported values: \"b\", \"c\"",
        ),
        (FieldError::duplicate("l[1]", json!({"n": "a"})), "l[1]: Duplicate value: {\"n\":\"a\"}"),
        (FieldError::too_long("spec.x", 5), "spec.x: Too long: may not be more than 5 bytes"),
        (FieldError::too_long("spec.x", 1), "spec.x: Too long: may not be more than 1 byte"),
        (FieldError::too_many("l", 3, 2), "l: Too many: 3: must have at most 2 items"),
        (FieldError::forbidden("a", "no"), "a: Forbidden: no"),
    ];
    for (error, text) in table {
        assert_eq!(error.to_string(), text);
    }
}
