//! Patches, compared with the results of kube-apiserver.
use crate::pure;

use machinist_hub::patch::{PatchKind, apply, strategic_rules};
use serde_json::{Map, Value, json};

/// The parts that these patches can change, without what kube-apiserver omits or defaults.
fn comparable_fields(object: &Value, case: &Value) -> Value {
    let status = case["status"] == true;
    let paths: &[&str] = if status {
        &["/status/conditions", "/status/addresses", "/status/capacity", "/status/images"]
    } else {
        &[
            "/metadata/labels",
            "/metadata/annotations",
            "/metadata/finalizers",
            "/metadata/ownerReferences",
            "/spec/taints",
            "/spec/unschedulable",
            "/spec/podCIDRs",
            "/data",
            "/type",
        ]
    };
    let has = |path: &str| match case["kind"].as_str() {
        Some("Node") => path != "/data" && path != "/type",
        Some("ConfigMap") => path != "/type",
        _ => true,
    };
    let paths = paths.iter().filter(|path| has(path));
    let parts = paths.map(|path| {
        let mut value = object.pointer(path).cloned().unwrap_or(Value::Null);
        if let (false, Value::Object(fields)) = (status, &mut value) {
            // kube-apiserver decodes null in a map of strings as an empty string.
            fields
                .values_mut()
                .filter(|value| value.is_null())
                .for_each(|value| *value = "".into());
        }
        ((*path).to_owned(), without_empty_values(value))
    });
    Value::Object(parts.filter(|(_, value)| !is_empty(value)).collect())
}

fn without_empty_values(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().map(|(key, value)| (key, without_empty_values(value)));
            // An empty label stays; an empty struct field is omitted.
            let plain = |fields: &Map<String, Value>| fields.values().all(Value::is_string);
            let kept: Map<String, Value> = kept.filter(|(_, value)| !value.is_null()).collect();
            let is_struct =
                ["type", "key", "uid", "names"].iter().any(|key| kept.contains_key(*key));
            if plain(&kept) && !is_struct {
                return Value::Object(kept);
            }
            Value::Object(kept.into_iter().filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(items) => items.into_iter().map(without_empty_values).collect(),
        other => other,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(_) => false,
    }
}

fn kind(case: &Value) -> PatchKind {
    match case["type"].as_str() {
        Some("json") => PatchKind::Json,
        Some("merge") => PatchKind::Merge,
        _ => PatchKind::Strategic,
    }
}

#[test]
fn results_match_kube_apiserver() {
    let file = std::env::var("HUB_PATCH_CASES").unwrap_or_else(|_| "patch.jsonl".into());
    let mut wrong = 0;
    for (line, case) in pure::recorded(&file).iter().enumerate() {
        let rules = strategic_rules("", case["kind"].as_str().unwrap_or_default());
        let result = apply(kind(case), &case["target"], &case["patch"], rules);
        let message = case["answer"]["message"].as_str().unwrap_or_default();
        // The patch was applied, but its result was rejected.
        let refused_later = case["code"] == 422 && message.contains("is invalid: ")
            || message.starts_with("the name of the object");
        match result {
            Ok(_) if refused_later => {}
            Ok(object) if case["code"] == 200 => {
                let (ours, theirs) =
                    (comparable_fields(&object, case), comparable_fields(&case["result"], case));
                if ours != theirs {
                    wrong += 1;
                    println!(
                        "line {}: {}\nours   {ours}\ntheirs {theirs}",
                        line + 1,
                        case["patch"]
                    );
                }
            }
            Ok(_) => {
                wrong += 1;
                println!("line {}: not refused: {} {message}", line + 1, case["patch"]);
            }
            Err(error) => {
                let ours = error.to_api_error(&[]);
                if json!(ours.code) != case["code"] || ours.message != message {
                    wrong += 1;
                    println!(
                        "line {}: {}\nours   {} {}\ntheirs {} {message}",
                        line + 1,
                        case["patch"],
                        ours.code,
                        ours.message,
                        case["code"]
                    );
                }
            }
        }
    }
    assert_eq!(wrong, 0, "results differ");
}

#[test]
fn the_media_type_selects_the_patch_type() {
    let table = [
        ("application/json-patch+json", Some(PatchKind::Json)),
        ("application/merge-patch+json; charset=utf-8", Some(PatchKind::Merge)),
        ("application/strategic-merge-patch+json", Some(PatchKind::Strategic)),
        ("application/apply-patch+yaml", Some(PatchKind::Apply)),
        ("application/json", None),
        ("", None),
    ];
    for (text, kind) in table {
        assert_eq!(PatchKind::from_content_type(text), kind, "{text}");
    }
}

#[test]
fn unsupported_patch_types_get_415() {
    let object = json!({"a": 1});
    let refused = [
        apply(PatchKind::Apply, &object, &json!({}), strategic_rules("", "Node")),
        apply(
            PatchKind::Strategic,
            &object,
            &json!({}),
            strategic_rules("config.openshift.io", "Node"),
        ),
    ];
    for result in refused {
        let error = result.expect_err("it is not served").to_api_error(&["a/b"]);
        assert_eq!((error.code, error.reason), (415, "UnsupportedMediaType"));
        assert!(error.message.ends_with("accepted media types include: a/b"), "{}", error.message);
    }
}

/// Malformed patches get the messages of kube-apiserver.
#[test]
fn malformed_patches_get_the_same_messages() {
    let map = "into Go value of type map[string]interface {}";
    let decode = "error decoding patch: json: cannot unmarshal";
    let many = Value::Array(vec![json!({"op": "test", "path": "/a", "value": 1}); 10_001]);
    let table = [
        (PatchKind::Json, json!({"op": "x"}), 400, format!("{decode} object into Go value of type []handlers.jsonPatchOp")),
        (PatchKind::Json, json!([1]), 400, format!("{decode} number into Go value of type handlers.jsonPatchOp")),
        (PatchKind::Json, json!([{"path": 5}]), 400, format!("{decode} number into Go struct field jsonPatchOp.path of type string")),
        (PatchKind::Json, many, 413, "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned()),
        (PatchKind::Merge, json!([1]), 400, format!("{decode} array {map}")),
        (PatchKind::Merge, json!(null), 400, "Invalid JSON Patch".to_owned()),
        (PatchKind::Strategic, json!(1), 400, format!("json: cannot unmarshal number {map}")),
        (PatchKind::Strategic, json!({"a": {"$patch": "foo"}}), 500, "unknown patch type: foo in map: map[$patch:foo]".to_owned()),
    ];
    for (kind, patch, code, message) in table {
        let object = json!({"a": {}});
        let error =
            apply(kind, &object, &patch, strategic_rules("", "Node")).expect_err("it is refused");
        let error = error.to_api_error(&[]);
        assert_eq!((error.code, error.message), (code, message));
    }
}
