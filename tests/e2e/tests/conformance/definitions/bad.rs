//! Definitions that are refused.

use super::{Agreement, Case};
use serde_json::{Value, json};

fn case(name: &'static str, spec: Value) -> Case {
    Case { name, spec, agreement: Agreement::Text, objects: Vec::new() }
}

/// One whose schema of `spec` is wrong.
fn field(name: &'static str, schema: Value) -> Case {
    case(name, json!({"schema": {"type": "object", "properties": {"spec": schema}}}))
}

fn loosely(case: Case) -> Case {
    Case { agreement: Agreement::Fields, ..case }
}

pub(super) fn cases() -> Vec<Case> {
    let object = json!({"type": "object"});
    let schema = json!({"openAPIV3Schema": object});
    let list = |extra: Value| {
        let mut list = json!({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}});
        for (name, value) in extra.as_object().into_iter().flatten() {
            list[name] = value.clone();
        }
        list
    };
    vec![
        case("no schema", json!({"version": {"schema": null}})),
        case("a scope that does not exist", json!({"scope": "World", "schema": object})),
        case(
            "a plural that is no label",
            json!({"names": {"plural": "Thi ngs"}, "schema": object}),
        ),
        case("a kind with a space", json!({"names": {"kind": "A b"}, "schema": object})),
        case(
            "a list kind like the kind",
            json!({"names": {"kind": "Same", "listKind": "Same"}, "schema": object}),
        ),
        case(
            "a short name with a capital",
            json!({"names": {"shortNames": ["Th"]}, "schema": object}),
        ),
        case("a category with a dot", json!({"names": {"categories": ["a.b"]}, "schema": object})),
        case("a version that is no label", json!({"version": {"name": "V_1", "schema": schema}})),
        loosely(case(
            "no storage version",
            json!({"version": {"storage": false, "schema": schema}}),
        )),
        case("unknown fields at the top", json!({"preserveUnknownFields": true, "schema": object})),
        case(
            "a column of no type",
            json!({"version": {"schema": schema, "additionalPrinterColumns": [{"name": "A", "type": "text", "jsonPath": ".a"}]}}),
        ),
        case(
            "a column without a path",
            json!({"version": {"schema": schema, "additionalPrinterColumns": [{"name": "", "type": "string", "jsonPath": "a"}]}}),
        ),
        case(
            "a scale outside of spec",
            json!({"version": {"schema": schema, "subresources": {"scale": {"specReplicasPath": ".size", "statusReplicasPath": ".status.size"}}}}),
        ),
        case(
            "a scale without status",
            json!({"version": {"schema": schema, "subresources": {"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ""}}}}),
        ),
        case(
            "a selectable field that is not there",
            json!({"version": {"schema": schema, "selectableFields": [{"jsonPath": ".spec.a"}]}}),
        ),
        case(
            "a warning for nothing",
            json!({"version": {"schema": schema, "deprecationWarning": "old"}}),
        ),
        case(
            "a conversion that does not exist",
            json!({"conversion": {"strategy": "Magic"}, "schema": object}),
        ),
        case("a root of another type", json!({"schema": {"type": "string"}})),
        case(
            "a root without a type",
            json!({"schema": {"properties": {"spec": {"type": "object"}}}}),
        ),
        case("a root that may be null", json!({"schema": {"type": "object", "nullable": true}})),
        case(
            "a map at the root",
            json!({"schema": {"type": "object", "additionalProperties": {"type": "string"}}}),
        ),
        case(
            "restricted metadata",
            json!({"schema": {"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}}),
        ),
        case(
            "a default of the kind",
            json!({"schema": {"type": "object", "properties": {"kind": {"type": "string", "default": "A"}}}}),
        ),
        case(
            "a kind that is a number",
            json!({"schema": {"type": "object", "properties": {"kind": {"type": "integer"}}}}),
        ),
        field("no type", json!({})),
        field("an unknown type", json!({"type": "thing"})),
        field("the type null", json!({"type": "null"})),
        field("a list of nothing", json!({"type": "array"})),
        field("items without a type", json!({"type": "array", "items": {}})),
        field(
            "unique items",
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
        ),
        field(
            "properties and others",
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        ),
        field("a type in an alternative", json!({"type": "object", "anyOf": [{"type": "object"}]})),
        field(
            "a description in an alternative",
            json!({"type": "object", "oneOf": [{"description": "a"}]}),
        ),
        field(
            "a default in an alternative",
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "allOf": [{"properties": {"a": {"default": 1}}}]}),
        ),
        case(
            "a field that is only forbidden",
            json!({"schema": {"type": "object", "not": {"properties": {"a": {"minimum": 1}}}}}),
        ),
        case(
            "items that are only in an alternative",
            json!({"schema": {"type": "object", "properties": {"a": {"type": "object"}}, "anyOf": [{"properties": {"a": {"items": {"minLength": 1}}}}]}}),
        ),
        field(
            "an embedded object without fields",
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
        ),
        field(
            "an embedded list",
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-embedded-resource": true}),
        ),
        field(
            "an integer or string with unknown fields",
            json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
        ),
        field(
            "unknown fields that are not kept",
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
        ),
        field(
            "a list type of a string",
            json!({"type": "string", "x-kubernetes-list-type": "set"}),
        ),
        field("an unknown list type", list(json!({"x-kubernetes-list-type": "heap"}))),
        field("a map without keys", list(json!({"x-kubernetes-list-type": "map"}))),
        field("keys without a map", list(json!({"x-kubernetes-list-map-keys": ["a"]}))),
        field(
            "a key that is not there",
            list(json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"]})),
        ),
        field(
            "a key that is not required",
            list(json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]})),
        ),
        field(
            "the same key twice",
            list(
                json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "a"]}),
            ),
        ),
        field(
            "a map of strings",
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"], "items": {"type": "string"}}),
        ),
        field(
            "a set that may have null",
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "nullable": true}}),
        ),
        field(
            "a set of lists that are sets",
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}),
        ),
        field(
            "a map type of a list",
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-map-type": "atomic"}),
        ),
        field("an unknown map type", json!({"type": "object", "x-kubernetes-map-type": "odd"})),
        field("a default of another type", json!({"type": "integer", "default": "a"})),
        field("a default with unknown fields", json!({"type": "object", "default": {"a": 1}})),
        field("a default out of range", json!({"type": "integer", "maximum": 3, "default": 4})),
        field(
            "a default that lacks a field",
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}, "default": {}}),
        ),
        loosely(field("a pattern that is none", json!({"type": "string", "pattern": "a("}))),
        field(
            "an empty rule",
            json!({"type": "object", "x-kubernetes-validations": [{"rule": " "}]}),
        ),
        field(
            "a rule of two lines without a message",
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "true &&\ntrue"}]}),
        ),
        field(
            "a message of two lines",
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "true", "message": "a\nb"}]}),
        ),
        field(
            "an unknown reason",
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "true", "reason": "Odd"}]}),
        ),
        field(
            "a field path that is not there",
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "true", "fieldPath": ".a"}]}),
        ),
        loosely(field(
            "a rule that is no expression",
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "self +"}]}),
        )),
        loosely(field(
            "a rule with an unknown function",
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "odd(self)"}]}),
        )),
        loosely(field(
            "a rule with an unknown name",
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "other == 1"}]}),
        )),
        loosely(field(
            "a rule about an unknown field",
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.b == 1"}]}),
        )),
        loosely(field(
            "a rule that is a number",
            json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self + 1"}]}),
        )),
        field(
            "an old value in an atomic list",
            json!({"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}),
        ),
        field(
            "an optional old value for nothing",
            json!({"type": "string", "x-kubernetes-validations": [{"rule": "self == 'a'", "optionalOldSelf": true}]}),
        ),
    ]
}
