#![allow(clippy::needless_pass_by_value, reason = "called with json!")]

use super::*;
use serde_json::json;

/// A definition with this schema of `spec`.
fn definition(spec: Value) -> Value {
    with_root(json!({"type": "object", "properties": {"spec": spec}}))
}

fn with_root(schema: Value) -> Value {
    let mut definition = json!({
        "metadata": {"name": "cars.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "cars", "singular": "car", "kind": "Car", "listKind": "CarList"},
            "conversion": {"strategy": "None"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            }],
        },
        "status": {"storedVersions": ["v1"]},
    });
    super::super::complete::complete(&mut definition);
    definition
}

fn messages(definition: &Value) -> Vec<String> {
    validate(definition, None).iter().map(ToString::to_string).collect()
}

const SPEC: &str = "spec.validation.openAPIV3Schema.properties[spec]";

#[test]
fn good_schemas() {
    for spec in [
        json!({"type": "object"}),
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        json!({
            "x-kubernetes-int-or-string": true, "pattern": "^a$",
            "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"minLength": 2}],
        }),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "object", "default": {"a": 1}, "properties": {"a": {"type": "integer"}}}),
        json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
            "items": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}},
        }),
        json!({
            "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "oneOf": [{"required": ["a"]}, {"properties": {"b": {"minimum": 3}}}],
        }),
        json!({"type": "object", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "no"}]}),
    ] {
        assert_eq!(messages(&definition(spec.clone())), Vec::<String>::new(), "{spec}");
    }
}

#[test]
fn schemas_that_are_not_structural() {
    let table = [
        (json!({}), "{}.type: Required value: must not be empty for specified object fields"),
        (json!({"type": "array"}), "{}.items: Required value: must be specified"),
        (
            json!({"type": "array", "items": {}}),
            "{}.items.type: Required value: must not be empty for specified array items",
        ),
        (
            json!({"type": "object", "anyOf": [{"type": "object"}]}),
            "{}.anyOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            "{}.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without \
             x-kubernetes-preserve-unknown-fields",
        ),
        (
            json!({"type": "string", "pattern": "("}),
            "{}.pattern: Invalid value: \"(\": must be a valid regular expression, but isn't",
        ),
        (
            json!({"type": "thing"}),
            "{}.type: Unsupported value: \"thing\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \
             \"object\", \"string\"",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
            "{}.uniqueItems: Forbidden",
        ),
        (json!({"type": "string", "$ref": "#/a"}), "{}.$ref: Forbidden: $ref is not supported"),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
            "{}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            json!({"type": "integer", "default": "x"}),
            "{}.default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer", "default": "x"}}),
            "{}.additionalProperties.default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
        ),
        (
            json!({"type": "object", "default": {"b": 1}}),
            "{}.default: Invalid value: {\"b\":1}: must not have unknown fields",
        ),
        (
            json!({"type": "string", "x-kubernetes-list-type": "set"}),
            "{}.type: Invalid value: \"string\": must be array if x-kubernetes-list-type is specified",
        ),
        (
            json!({
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
                "items": {"type": "object", "properties": {"a": {"type": "string"}}},
            }),
            "{}.items.properties[a].default: Required value: this property is in x-kubernetes-list-map-keys",
        ),
        (
            json!({"type": "object", "x-kubernetes-validations": [{"rule": " "}]}),
            "{}.x-kubernetes-validations[0].rule: Required value: rule is not specified",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "object"}}, "x-kubernetes-validations": [{"rule": "has(self.a.b)"}]}),
            "{}.x-kubernetes-validations[0].rule: Invalid value: {\"rule\":\"has(self.a.b)\"}: compilation failed: undefined field 'b'",
        ),
        (
            json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self + 1"}]}),
            "{}.x-kubernetes-validations[0].rule: Invalid value: {\"rule\":\"self + 1\"}: cel expression must evaluate to a bool",
        ),
        (
            json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": "self.all(x, x == 1) || other"}]}),
            "{}.x-kubernetes-validations[0].rule: Invalid value: {\"rule\":\"self.all(x, x == 1) || other\"}: compilation failed: undeclared reference to 'other'",
        ),
        (
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "nobody(self)"}]}),
            "{}.x-kubernetes-validations[0].rule: Invalid value",
        ),
        (
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "true", "fieldPath": ".a"}]}),
            "{}.x-kubernetes-validations[0].fieldPath: Invalid value: \".a\": must be a valid path",
        ),
        (
            json!({"type": "array", "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}),
            "{}.items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the \
             uncorrelatable portion of the schema within {}",
        ),
    ];
    for (spec, expected) in table {
        let expected = expected.replace("{}", SPEC);
        let found = messages(&definition(spec.clone()));
        assert!(
            found.iter().any(|one| one.starts_with(&expected)),
            "{spec}: {found:#?}\n{expected}"
        );
    }
}

#[test]
fn roots_that_are_refused() {
    let root = "spec.validation.openAPIV3Schema";
    let table = [
        (
            json!({"type": "string"}),
            "{}.type: Invalid value: \"string\": must be object at the root",
        ),
        (
            json!({"type": "object", "not": {"properties": {"a": {"minimum": 1}}}}),
            "{}.properties[a]: Required value: because it is defined in {}.not.properties[a]",
        ),
        (
            json!({"type": "object", "nullable": true}),
            "{}.nullable: Forbidden: nullable cannot be true at the root",
        ),
        (
            json!({"type": "object", "additionalProperties": true}),
            "{}.additionalProperties: Forbidden: must not be used at the root",
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
            "{}.properties[metadata]: Forbidden: must not specify anything other than name and generateName",
        ),
        (
            json!({"type": "object", "properties": {"kind": {"type": "string", "default": "x"}}}),
            "{}.properties[kind].default: Forbidden: must not be set in top-level kind",
        ),
    ];
    for (schema, expected) in table {
        let expected = expected.replace("{}", root);
        let found = messages(&with_root(schema.clone()));
        assert!(found.iter().any(|one| one.starts_with(&expected)), "{schema}: {found:#?}");
    }
}

#[test]
fn specs_that_are_refused() {
    type Change = fn(&mut Value);
    let table: [(Change, &str); 15] = [
        (
            |it| it["group"] = "example".into(),
            "spec.group: Invalid value: \"example\": should be a domain with at least one dot",
        ),
        (|it| it["scope"] = "World".into(), "spec.scope: Unsupported value: \"World\""),
        (
            |it| it["names"]["kind"] = "a b".into(),
            "spec.names.kind: Invalid value: \"a b\": may have mixed case, but should otherwise match",
        ),
        (
            |it| it["names"]["listKind"] = "Car".into(),
            "spec.names.listKind: Invalid value: \"Car\": kind and listKind may not be the same",
        ),
        (
            |it| it["names"]["plural"] = "autos".into(),
            "metadata.name: Invalid value: \"cars.example.com\": must be spec.names.plural+\".\"+spec.group",
        ),
        (
            |it| it["versions"][0]["name"] = "V1".into(),
            "spec.versions[0].name: Invalid value: \"V1\"",
        ),
        (
            |it| it["versions"][0]["storage"] = false.into(),
            "spec.versions: Invalid value: [\"v1\"]: must have exactly one version marked as storage version",
        ),
        (
            |it| it["versions"][0]["schema"] = Value::Null,
            "spec.versions[0].schema.openAPIV3Schema: Required value",
        ),
        (
            |it| it["conversion"] = json!({"strategy": "Webhook"}),
            "spec.conversion.strategy: Forbidden: webhooks and aggregated APIs need Kubernetes",
        ),
        (
            |it| it["preserveUnknownFields"] = true.into(),
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true",
        ),
        (
            |it| {
                it["versions"][0]["additionalPrinterColumns"] =
                    json!([{"name": "A", "type": "text", "jsonPath": ".a"}]);
            },
            "spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of boolean,date,integer,number,string",
        ),
        (
            |it| {
                it["versions"][0]["subresources"] =
                    json!({"scale": {"specReplicasPath": ".a", "statusReplicasPath": ".status.a"}});
            },
            "spec.subresources.scale.specReplicasPath: Invalid value: \".a\": should be a json path under .spec",
        ),
        (
            |it| it["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.a"}]),
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec.a\": is an invalid path: does not refer to a valid field",
        ),
        (
            |it| it["versions"][0]["deprecationWarning"] = "x".into(),
            "spec.versions[0].deprecationWarning: Invalid value: \"x\": can only be set for deprecated versions",
        ),
        (
            |it| it["group"] = "cars.k8s.io".into(),
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation",
        ),
    ];
    for (change, expected) in table {
        let mut definition = definition(json!({"type": "object"}));
        change(&mut definition["spec"]);
        let found = messages(&definition);
        assert!(found.iter().any(|one| one.starts_with(expected)), "{expected}: {found:#?}");
    }
}

#[test]
fn names_are_immutable_once_established() {
    let old = definition(json!({"type": "object"}));
    let mut new = old.clone();
    new["spec"]["names"]["kind"] = "Auto".into();
    new["spec"]["scope"] = "Cluster".into();
    assert_eq!(validate(&new, Some(&old)), []);
    let mut established = old.clone();
    established["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    let found: Vec<String> =
        validate(&new, Some(&established)).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "spec.scope: Invalid value: \"Cluster\": field is immutable",
            "spec.names.kind: Invalid value: \"Auto\": field is immutable",
        ]
    );
}

#[test]
fn a_stored_version_stays() {
    let mut definition = definition(json!({"type": "object"}));
    definition["status"]["storedVersions"] = json!(["v0", "v1"]);
    let found = messages(&definition);
    assert!(
        found[0].starts_with(
            "status.storedVersions[0]: Invalid value: \"v0\": missing from spec.versions"
        ),
        "{found:?}"
    );
}

#[test]
fn what_costs_too_much_is_refused() {
    let mut deep = json!({"type": "string"});
    for _ in 0..60 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    let wide: Value = (0..21_000).map(|n| (format!("f{n}"), json!({"type": "string"}))).collect();
    for spec in [
        deep,
        json!({"type": "object", "properties": wide}),
        json!({"type": "string", "pattern": "a".repeat(5000)}),
        json!({"type": "string", "default": "a".repeat(70_000)}),
        json!({"type": "string", "x-kubernetes-validations": [{"rule": "x".repeat(17_000)}]}),
    ] {
        let found = messages(&definition(spec));
        assert!(found.len() == 1 && found[0].contains("too large: "), "{found:?}");
    }
}
