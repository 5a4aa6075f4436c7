//! Definitions that are accepted, with objects that are and that are not.

use super::{Agreement, Case};
use serde_json::{Value, json};

/// One whose objects have this `spec`.
fn field(name: &'static str, schema: Value, specs: &[Value]) -> Case {
    let spec = json!({"schema": {"type": "object", "properties": {"spec": schema}}});
    let objects = specs.iter().map(|spec| json!({"spec": spec})).collect();
    Case { name, spec, agreement: Agreement::Text, objects }
}

/// One whose `spec.a` has this schema and these values.
fn values(name: &'static str, schema: Value, values: &[Value]) -> Case {
    let specs: Vec<Value> = values.iter().map(|value| json!({"a": value})).collect();
    field(name, json!({"type": "object", "properties": {"a": schema}}), &specs)
}

fn rule(name: &'static str, rule: &str, properties: Value, specs: &[Value]) -> Case {
    let schema = json!({
        "type": "object", "properties": properties,
        "x-kubernetes-validations": [{"rule": rule, "message": "the rule does not hold"}],
    });
    field(name, schema, specs)
}

pub(super) fn cases() -> Vec<Case> {
    [shapes(), texts(), rules()].into_iter().flatten().collect()
}

fn shapes() -> Vec<Case> {
    let text = json!({"type": "string"});
    vec![
        field(
            "pruning",
            json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": text}}}}),
            &[json!({"a": {"b": "x", "c": 1}, "d": [1]}), json!({"a": {"b": 1}}), json!("text")],
        ),
        field(
            "unknown fields kept",
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "object", "properties": {"b": text}}}}),
            &[json!({"x": {"y": [1, {"z": null}]}, "a": {"b": "1", "c": 2}})],
        ),
        field(
            "anything",
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            &[json!(1), json!("a"), json!([{"a": 1}]), Value::Null],
        ),
        field(
            "maps",
            json!({"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}}),
            &[json!({"a": 1, "b": 2}), json!({"a": 0}), json!({"a": "x"})],
        ),
        field(
            "maps of anything",
            json!({"type": "object", "additionalProperties": true}),
            &[json!({"a": {"b": 1}})],
        ),
        field(
            "defaults",
            json!({
                "type": "object", "default": {"b": "z"}, "required": ["b"],
                "properties": {
                    "a": {"type": "integer", "default": 3}, "b": {"type": "string", "default": "x"},
                    "c": {"type": "object", "default": {"d": {}}, "properties": {"d": {"type": "object", "properties": {"e": {"type": "boolean", "default": true}}}}},
                    "f": {"type": "array", "items": {"type": "object", "properties": {"g": {"type": "number", "default": 1.5}}}},
                    "h": {"type": "string", "nullable": true, "default": "y"},
                },
            }),
            &[
                json!({}),
                json!({"a": null, "h": null}),
                json!({"c": {}, "f": [{}, {"g": 2}]}),
                Value::Null,
            ],
        ),
        field(
            "required fields",
            json!({"type": "object", "required": ["a", "b"], "properties": {"a": text, "b": {"type": "object", "required": ["c"], "properties": {"c": text}}}}),
            &[json!({}), json!({"a": "", "b": {}}), json!({"a": "", "b": {"c": ""}})],
        ),
        field(
            "sets and maps",
            json!({"type": "object", "properties": {
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
                "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "d"], "items": {"type": "object", "required": ["k"], "properties": {"k": text, "d": {"type": "integer", "default": 1}, "v": text}}},
            }}),
            &[
                json!({"set": ["a", "b"], "map": [{"k": "a"}, {"k": "a", "d": 2}]}),
                json!({"set": ["a", "a"]}),
                json!({"map": [{"k": "a"}, {"k": "a", "d": 1}]}),
                json!({"map": [{"d": 1}]}),
            ],
        ),
        field(
            "an embedded object",
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            &[
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"x": 1}}),
                json!({"kind": "Pod"}),
                json!({"apiVersion": "a/b/c", "kind": "Po d"}),
            ],
        ),
        field(
            "alternatives",
            json!({
                "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "not": {"properties": {"a": {"enum": [3]}}, "required": ["a"]},
                "anyOf": [{"properties": {"a": {"minimum": 2}}}, {"required": ["b"]}],
            }),
            &[
                json!({"a": 2}),
                json!({"a": 1}),
                json!({"a": 3}),
                json!({"a": 2, "b": "x"}),
                json!({}),
            ],
        ),
        values(
            "an integer or a string",
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            &[json!(1), json!("50%"), json!(1.5), json!(true)],
        ),
        values(
            "numbers",
            json!({"type": "number", "minimum": 1, "maximum": 3, "exclusiveMaximum": true, "multipleOf": 0.5}),
            &[json!(1), json!(2.5), json!(2.75), json!(3), json!(0)],
        ),
        values(
            "integers",
            json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 10}),
            &[json!(2), json!(1), json!(11), json!(2.5), json!(3.0)],
        ),
        values(
            "counts",
            json!({"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "integer"}}}),
            &[
                json!([]),
                json!([{"a": 1}]),
                json!([{}, {"a": 1}, {"b": 1}]),
                json!([{"a": 1, "b": 2, "c": 3}]),
            ],
        ),
        values(
            "null",
            json!({"type": "string", "nullable": true, "enum": ["a", "b"]}),
            &[Value::Null, json!("a"), json!("c")],
        ),
        Case {
            name: "the length of the name",
            spec: json!({"schema": {"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}}}}}),
            agreement: Agreement::Text,
            objects: vec![json!({}), json!({"metadata": {"name": "short"}})],
        },
        Case {
            name: "a status and columns",
            spec: json!({"version": {
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}, "status": {"type": "object", "properties": {"a": {"type": "string"}}}}}},
                "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".status.a", "priority": 1}],
            }}),
            agreement: Agreement::Text,
            objects: vec![json!({"spec": {}, "status": {"a": "x"}})],
        },
        Case {
            name: "a scale",
            spec: json!({"version": {
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
                    "status": {"type": "object", "properties": {"size": {"type": "integer"}, "selector": {"type": "string"}}},
                }}},
                "subresources": {"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.selector"}},
            }}),
            agreement: Agreement::Text,
            objects: vec![
                json!({"spec": {"size": 1}}),
                json!({"spec": {"size": -1}}),
                json!({"spec": {"size": 3_000_000_000_i64}}),
            ],
        },
    ]
}

fn texts() -> Vec<Case> {
    let format = |name: &str| json!({"type": "string", "format": name});
    vec![
        values(
            "texts",
            json!({"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"}),
            &[json!("abc"), json!("a"), json!("abcde"), json!("AB")],
        ),
        values(
            "an enumeration",
            json!({"type": "string", "enum": ["a", "b c"]}),
            &[json!("a"), json!("d"), json!(1)],
        ),
        values("dates", format("date"), &[json!("2024-01-31"), json!("2024-02-31"), json!("x")]),
        values(
            "times",
            format("date-time"),
            &[json!("2024-01-31T10:00:00Z"), json!("2024-01-31 10:00")],
        ),
        values("durations", format("duration"), &[json!("1h30m"), json!("1 fortnight")]),
        values("addresses", format("ipv4"), &[json!("10.0.0.1"), json!("10.0.0.256")]),
        values("addresses of version 6", format("ipv6"), &[json!("fe80::1"), json!("fe80::g")]),
        values("networks", format("cidr"), &[json!("10.0.0.0/8"), json!("10.0.0.0/33")]),
        values("URIs", format("uri"), &[json!("https://example.com/a"), json!("not a uri")]),
        values(
            "UUIDs",
            format("uuid"),
            &[json!("123e4567-e89b-12d3-a456-426614174000"), json!("123")],
        ),
        values("bytes", format("byte"), &[json!("aGk="), json!("a?")]),
        values("host names", format("hostname"), &[json!("a.example.com"), json!("-a-")]),
        values("MAC addresses", format("mac"), &[json!("00:11:22:33:44:55"), json!("00:11")]),
        values("formats that nobody checks", format("int64"), &[json!("x")]),
    ]
}

fn rules() -> Vec<Case> {
    let text = json!({"type": "string", "maxLength": 100});
    let int = json!({"type": "integer"});
    let texts =
        json!({"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 20}});
    let ints = json!({"type": "array", "maxItems": 10, "items": {"type": "integer"}});
    vec![
        rule(
            "a comparison",
            "self.min <= self.max",
            json!({"min": int, "max": int}),
            &[json!({"min": 1, "max": 2}), json!({"min": 3, "max": 2})],
        ),
        rule(
            "a field that may be missing",
            "!has(self.a) || self.a.startsWith('x')",
            json!({"a": text}),
            &[json!({}), json!({"a": "xy"}), json!({"a": "y"})],
        ),
        rule(
            "all items",
            "self.a.all(x, x.size() > 1)",
            json!({"a": texts}),
            &[json!({"a": ["ab"]}), json!({"a": ["ab", "c"]})],
        ),
        rule(
            "quantities",
            "quantity(self.a).isLessThan(quantity(self.b))",
            json!({"a": text, "b": text}),
            &[
                json!({"a": "100m", "b": "1"}),
                json!({"a": "1Gi", "b": "1G"}),
                json!({"a": "x", "b": "1"}),
            ],
        ),
        rule(
            "sums of quantities",
            "quantity(self.a).add(quantity('1k')).compareTo(quantity(self.b)) == 0",
            json!({"a": text, "b": text}),
            &[json!({"a": "0.5k", "b": "1500"}), json!({"a": "1", "b": "1"})],
        ),
        rule(
            "addresses in networks",
            "cidr(self.a).containsIP(ip(self.b))",
            json!({"a": text, "b": text}),
            &[
                json!({"a": "10.0.0.0/8", "b": "10.2.3.4"}),
                json!({"a": "10.0.0.0/8", "b": "11.2.3.4"}),
            ],
        ),
        rule(
            "kinds of addresses",
            "isIP(self.a) && ip(self.a).family() == 6 && !ip(self.a).isLoopback()",
            json!({"a": text}),
            &[
                json!({"a": "fe80::1"}),
                json!({"a": "::1"}),
                json!({"a": "10.0.0.1"}),
                json!({"a": "x"}),
            ],
        ),
        rule(
            "networks in networks",
            "isCIDR(self.a) && cidr('10.0.0.0/8').containsCIDR(self.a) && cidr(self.a).prefixLength() > 8",
            json!({"a": text}),
            &[json!({"a": "10.1.0.0/16"}), json!({"a": "11.0.0.0/16"}), json!({"a": "x"})],
        ),
        rule(
            "URLs",
            "isURL(self.a) && url(self.a).getScheme() == 'https' && url(self.a).getHost() == 'example.com:80' && url(self.a).getPort() == '80'",
            json!({"a": text}),
            &[
                json!({"a": "https://example.com:80/x?y=1"}),
                json!({"a": "http://example.com:80"}),
                json!({"a": "x"}),
            ],
        ),
        rule(
            "formats",
            "!format.dns1123Label().validate(self.a).hasValue()",
            json!({"a": text}),
            &[json!({"a": "abc"}), json!({"a": "A_b"})],
        ),
        rule(
            "formats by name",
            "format.named('uuid').hasValue() && !format.named(self.a).hasValue()",
            json!({"a": text}),
            &[json!({"a": "odd"}), json!({"a": "uri"})],
        ),
        rule(
            "lists",
            "self.a.isSorted() && self.a.sum() < 10 && self.a.max() == 4 && self.a.indexOf(4) == 1",
            json!({"a": ints}),
            &[json!({"a": [1, 4]}), json!({"a": [4, 1]}), json!({"a": [5, 6]})],
        ),
        rule(
            "sets",
            "sets.contains(['a', 'b'], self.a) && sets.equivalent(self.a, ['a'])",
            json!({"a": texts}),
            &[json!({"a": ["a", "a"]}), json!({"a": ["a", "b"]}), json!({"a": ["c"]})],
        ),
        rule(
            "texts in rules",
            "self.a.lowerAscii().startsWith('a-x') && self.a.find('[0-9]+') == '12'",
            json!({"a": text}),
            &[json!({"a": "A-X12"}), json!({"a": "a-b1"})],
        ),
        rule(
            "optional values",
            "self.?a.orValue('x') == 'x'",
            json!({"a": text}),
            &[json!({}), json!({"a": "y"})],
        ),
        rule(
            "a division by zero",
            "10 / self.a > 1",
            json!({"a": int}),
            &[json!({"a": 2}), json!({"a": 0})],
        ),
        rule(
            "times",
            "timestamp(self.a) < timestamp('2024-01-01T00:00:00Z') && duration('1h') < duration('90m')",
            json!({"a": text}),
            &[json!({"a": "2023-01-01T00:00:00Z"}), json!({"a": "2025-01-01T00:00:00Z"})],
        ),
        rule(
            "names with odd letters",
            "self.a__dash__b == 'x' && self.__namespace__ == 'y'",
            json!({"a-b": text, "namespace": text}),
            &[json!({"a-b": "x", "namespace": "y"}), json!({"a-b": "y", "namespace": "y"})],
        ),
    ]
}
