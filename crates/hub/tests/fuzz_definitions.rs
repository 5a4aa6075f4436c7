//! Random definitions, most of them wrong: they are judged without a panic, and what is accepted can be served.

use machinist_hub::built_in;
use machinist_hub::definition::complete::complete;
use machinist_hub::definition::validate::validate;
use machinist_hub::schema::Schema;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A value of any type that may stand in a schema or in an object.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..12).prop_map(Value::from),
        Just(json!(1.5)),
        "[a-c]{0,3}".prop_map(Value::from),
        Just(json!("2024-01-01")),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..3)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn keyword() -> impl Strategy<Value = (String, Value)> {
    let text = |name: &'static str, values: &'static [&'static str]| {
        prop::sample::select(values).prop_map(move |value| (name.to_owned(), json!(value)))
    };
    let number = |name: &'static str| (0_i64..5).prop_map(move |it| (name.to_owned(), json!(it)));
    let flag = |name: &'static str| any::<bool>().prop_map(move |it| (name.to_owned(), json!(it)));
    let rules = ["self == oldSelf", "has(self.a)", "self.a > 1", "self +", "odd(self)", "true"];
    prop_oneof![
        6 => text("type", &["object", "object", "object", "array", "string", "integer", "number", "boolean", "null", "x"]),
        1 => text("format", &["date", "ipv4", "int32", "odd"]),
        1 => text("pattern", &["^a+$", "(", "a{1000}"]),
        1 => text("x-kubernetes-list-type", &["set", "map", "atomic", "odd"]),
        1 => text("x-kubernetes-map-type", &["atomic", "granular", "odd"]),
        1 => prop::sample::select(vec!["minimum", "maxItems", "minLength", "maxProperties", "multipleOf"])
            .prop_flat_map(number),
        2 => prop::sample::select(vec![
            "nullable", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string",
            "x-kubernetes-embedded-resource", "uniqueItems", "additionalProperties",
        ]).prop_flat_map(flag),
        1 => any_value().prop_map(|value| ("default".to_owned(), value)),
        1 => prop::collection::vec(any_value(), 0..3).prop_map(|list| ("enum".to_owned(), list.into())),
        1 => prop::collection::vec("[a-c]", 0..3).prop_map(|list| ("required".to_owned(), list.into())),
        1 => prop::collection::vec("[a-c]", 0..3)
            .prop_map(|list| ("x-kubernetes-list-map-keys".to_owned(), list.into())),
        1 => prop::sample::select(rules.to_vec())
            .prop_map(|rule| ("x-kubernetes-validations".to_owned(), json!([{"rule": rule}]))),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    let keywords = || prop::collection::vec(keyword(), 0..4);
    let object = |fields: Vec<(String, Value)>| Value::Object(fields.into_iter().collect());
    let leaf = keywords().prop_map(object);
    leaf.prop_recursive(4, 24, 3, move |inner| {
        let properties = prop::collection::btree_map("[a-c]|metadata|kind", inner.clone(), 0..3);
        let one = prop::option::weighted(0.3, inner.clone());
        let several = prop::option::weighted(0.2, prop::collection::vec(inner.clone(), 0..3));
        let named = prop::sample::select(vec!["items", "additionalProperties", "not"]);
        let listed = prop::sample::select(vec!["allOf", "anyOf", "oneOf"]);
        (keywords(), properties, named, one, listed, several).prop_map(
            move |(keywords, properties, named, one, listed, several)| {
                let mut schema = object(keywords);
                if !properties.is_empty() {
                    schema["properties"] = Value::Object(properties.into_iter().collect());
                }
                if let Some(one) = one {
                    schema[named] = one;
                }
                if let Some(several) = several {
                    schema[listed] = several.into();
                }
                schema
            },
        )
    })
}

fn definition(schema: &Value, status: bool) -> Value {
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "cars.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"plural": "cars", "kind": "Car"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}},
            }],
        },
    });
    if status {
        definition["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    }
    complete(&mut definition);
    definition
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn definitions_are_judged_without_a_panic(schema in schema(), status: bool, values in prop::collection::vec(any_value(), 1..4)) {
        let definition = definition(&schema, status);
        if !validate(&definition, None).is_empty() {
            return Ok(());
        }
        prop_assert_eq!(validate(&definition, Some(&definition)), []);
        let kinds = built_in::from_crd(&definition);
        let compiled = Schema::compile(kinds[0].schema.as_ref().expect("a schema"));
        let compiled = compiled.map_err(|error| TestCaseError::fail(format!("{schema}: {error}")))?;
        for value in values {
            let mut object = json!({
                "apiVersion": "example.com/v1", "kind": "Car", "metadata": {"name": "a"}, "spec": value,
            });
            compiled.prune(&mut object);
            compiled.apply_defaults(&mut object);
            let once = object.clone();
            prop_assert!(compiled.prune(&mut object).is_empty(), "{schema}: {once}");
            compiled.apply_defaults(&mut object);
            prop_assert_eq!(&object, &once, "{}", schema);
            let _ = compiled.validate(&object, None);
            let _ = compiled.validate(&object, Some(&once));
        }
    }

    #[test]
    fn malformed_definitions_do_no_harm(mut definition in any_value(), spec in any_value(), version in any_value()) {
        let shapes = [definition.clone(), json!({"spec": spec}), json!({"spec": {"versions": [version], "names": spec, "conversion": version}})];
        for mut shape in shapes {
            complete(&mut shape);
            let _ = validate(&shape, None);
            let _ = validate(&shape, Some(&definition));
        }
        complete(&mut definition);
    }
}
