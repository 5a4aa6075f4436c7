//! Schemas: the valid and invalid objects of `tests/cases/api`, and responses of kube-apiserver.
use crate::pure;

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use machinist_hub::schema::{Schema, SchemaError, normalize_numbers};
use machinist_hub::status::ApiError;
use serde_json::{Value, json};

/// The compiled schema of an object's kind.
fn schema(object: &Value) -> &'static Schema {
    static SCHEMAS: LazyLock<HashMap<String, Schema>> = LazyLock::new(|| {
        let mut schemas = HashMap::new();
        for kind in pure::registry().kinds() {
            if let Some(schema) = &kind.schema {
                let schema = Schema::compile(schema).expect("it compiles");
                schemas.insert(format!("{} {}", kind.api_version(), kind.kind), schema);
            }
        }
        schemas
    });
    let text = |key: &str| object[key].as_str().expect("an object names its kind");
    &SCHEMAS[&format!("{} {}", text("apiVersion"), text("kind"))]
}

fn admitted(schema: &Schema, object: &Value) -> Value {
    let mut object = object.clone();
    schema.prune(&mut object);
    schema.apply_defaults(&mut object);
    object
}

#[test]
fn every_crd_schema_compiles() {
    for definition in pure::definitions() {
        for kind in machinist_hub::built_in::from_crd(&definition) {
            let schema = kind.schema.as_ref().expect("every version has a schema");
            if let Err(error) = Schema::compile(schema) {
                panic!("{}: {error}", kind.kind);
            }
        }
    }
}

#[test]
fn valid_objects_pass() {
    for (name, object) in pure::cases("api") {
        let schema = schema(&object);
        let object = admitted(schema, &object);
        let errors = schema.validate(&object, None);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert!(texts.is_empty(), "{name}: {texts:#?}");
        assert_eq!(schema.validate(&object, Some(&object)), [], "{name}: unchanged");
    }
}

#[test]
fn invalid_objects_get_the_same_messages() {
    for (name, case) in pure::cases("api/refused") {
        let schema = schema(&case["object"]);
        let new = admitted(schema, &case["object"]);
        let old = case.get("before").map(|before| admitted(schema, before));
        let errors = schema.validate(&new, old.as_ref());
        let kind = pure::kind_of(&new);
        let object_name = new["metadata"]["name"].as_str().unwrap_or_default();
        let error = ApiError::invalid(kind, object_name, errors);
        let message = case["message"].as_str().expect("a message");
        assert!(error.message.contains(message), "{name}: {message}\nbut: {}", error.message);
    }
}

/// Our result for a recorded request: errors, warnings, object.
fn evaluate_case(schema: &Schema, case: &Value) -> (BTreeSet<String>, Vec<String>, Value) {
    let mut new = case["object"].clone();
    let unknown = schema.prune(&mut new);
    schema.apply_defaults(&mut new);
    let errors = match case["mode"].as_str() {
        Some("status") => schema.validate_status(&new, case.get("old")),
        _ => schema.validate(&new, case.get("old")),
    };
    let causes =
        errors.iter().map(|error| format!("{} {error}", error.reason.cause_type())).collect();
    let warnings = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    normalize_numbers(&mut new);
    (causes, warnings, new)
}

/// The distinct causes that kube-apiserver returned.
fn recorded_causes(case: &Value) -> BTreeSet<String> {
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
    let causes = case["causes"].as_array().cloned().unwrap_or_default();
    causes
        .iter()
        .map(|cause| {
            format!(
                "{} {}: {}",
                text(cause, "reason"),
                text(cause, "field"),
                text(cause, "message")
            )
        })
        .collect()
}

/// The difference between our result and the recorded one, if any.
fn difference(schema: &Schema, case: &Value) -> Option<String> {
    let (causes, warnings, object) = evaluate_case(schema, case);
    let wanted = recorded_causes(case);
    if causes != wanted {
        let ours: Vec<_> = causes.difference(&wanted).collect();
        let theirs: Vec<_> = wanted.difference(&causes).collect();
        return Some(format!("ours {ours:#?} theirs {theirs:#?}"));
    }
    let result = case.get("result")?;
    for part in ["spec", "status"] {
        let (ours, theirs) = (object.get(part), result.get(part));
        if ours != theirs {
            return Some(format!("{part} ours {ours:?}\ntheirs {theirs:?}"));
        }
    }
    let expected = case["warnings"].as_array().into_iter().flatten();
    let expected: Vec<&str> = expected.filter_map(Value::as_str).collect();
    (warnings != expected).then(|| format!("warnings ours {warnings:?} theirs {expected:?}"))
}

/// Prints the differences and fails if there are any.
fn compare<'a>(cases: &[Value], schema: impl Fn(&Value) -> &'a Schema) {
    let mut wrong = 0;
    for (line, case) in cases.iter().enumerate() {
        if let Some(what) = difference(schema(&case["object"]), case) {
            wrong += 1;
            println!("case {}: {what}", line + 1);
        }
    }
    assert_eq!(wrong, 0, "results differ");
}

#[test]
fn results_match_kube_apiserver() {
    let file = std::env::var("HUB_SCHEMA_CASES").unwrap_or_else(|_| "schema.jsonl".into());
    compare(&pure::recorded(&file), |object| schema(object));
}

/// A kind that uses every schema keyword.
#[test]
fn every_keyword_matches_kube_apiserver() {
    let file = std::env::var("HUB_WIDGET_CASES").unwrap_or_else(|_| "widget.jsonl".into());
    let mut cases = pure::recorded(&file);
    let kinds = machinist_hub::built_in::from_crd(&cases.remove(0)["crd"]);
    let schema = Schema::compile(kinds[0].schema.as_ref().expect("a schema")).expect("it compiles");
    compare(&cases, |_| &schema);
}

/// The schema of a kind with this spec.
fn with_spec(spec: &Value) -> Result<Schema, SchemaError> {
    Schema::compile(&json!({"type": "object", "properties": {"spec": spec}}))
}

#[test]
fn invalid_schemas_are_rejected() {
    let rule = |text: &str| json!({"type": "string", "x-kubernetes-validations": [{"rule": text}]});
    let table = [
        (json!("string"), "spec: a schema must be an object"),
        (json!({"properties": []}), "spec: properties must be an object"),
        (json!({"type": "string", "pattern": "("}), "spec: bad pattern '('"),
        (rule("self =="), "spec: bad rule 'self =='"),
        (rule("self.shout() == 'A'"), "undeclared reference to 'shout'"),
    ];
    for (spec, wanted) in table {
        let error = with_spec(&spec).expect_err("it must not compile").to_string();
        assert!(error.contains(wanted), "{wanted}\nbut: {error}");
    }
}

/// A rule over an unbounded list is stopped by its cost.
#[test]
fn rules_have_a_cost_budget() {
    let rule = "self.all(a, self.exists(b, self.exists(c, a == b && b == c)))";
    let spec = json!({
        "type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": rule}],
    });
    let schema = with_spec(&spec).expect("it compiles");
    let object = |size: u32| json!({"spec": (0..size).collect::<Vec<_>>()});
    assert_eq!(schema.validate(&object(10), None), []);
    let errors = schema.validate(&object(1000), None);
    let wanted = "spec: Invalid value: \"array\": validation failed due to running out of cost \
                  budget, no further validation rules will be run";
    assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [wanted]);
}

/// Reordering a set or map is not a change.
#[test]
fn order_does_not_matter_in_sets_and_maps() {
    let rules = json!([{"rule": "self == oldSelf", "message": "it never changes"}]);
    let set = json!({
        "type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"},
        "x-kubernetes-validations": rules,
    });
    let map = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
        "items": {"type": "object", "properties": {"n": {"type": "string"}}},
        "x-kubernetes-validations": rules,
    });
    let table = [
        (&set, json!(["a", "b"]), json!(["b", "a"]), 0),
        (&set, json!(["a", "b"]), json!(["b", "c"]), 1),
        (&map, json!([{"n": "a"}, {"n": "b"}]), json!([{"n": "b"}, {"n": "a"}]), 0),
        (&map, json!([{"n": "a"}, {"n": "b"}]), json!([{"n": "b"}]), 1),
    ];
    for (spec, old, new, faults) in table {
        let schema = with_spec(spec).expect("it compiles");
        let errors = schema.validate(&json!({"spec": new}), Some(&json!({"spec": old})));
        assert_eq!(errors.len(), faults, "{errors:?}");
    }
}
