//! Properties of the pure modules for random inputs: no panics, and consistent results.
use crate::pure;

use std::sync::LazyLock;

use jiff::Timestamp;
use machinist_hub::json_path::JsonPath;
use machinist_hub::kind_registry::ResourceKind;
use machinist_hub::patch::{PatchKind, apply, strategic_rules};
use machinist_hub::schema::Schema;
use machinist_hub::selector::{FieldSelector, LabelSelector};
use machinist_hub::table::{IncludeObject, table};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Words that have a meaning somewhere, mixed with others.
fn word() -> impl Strategy<Value = String> {
    let known = [
        "metadata",
        "spec",
        "status",
        "labels",
        "finalizers",
        "ownerReferences",
        "conditions",
        "type",
        "uid",
        "name",
        "kind",
        "apiVersion",
        "items",
        "data",
        "$patch",
        "$retainKeys",
        "$setElementOrder/conditions",
        "$setElementOrder/finalizers",
        "delete",
        "replace",
        "$deleteFromPrimitiveList/finalizers",
        "op",
        "path",
        "from",
        "value",
        "add",
        "remove",
        "test",
        "copy",
        "move",
        "/metadata",
        "/metadata/labels/a",
        "/spec/-",
        "machineCount",
        "pool",
        "configVersion",
        "desired",
        "current",
        "node",
        "pinnedImageSets",
    ];
    prop_oneof![4 => proptest::sample::select(known.to_vec()).prop_map(str::to_owned), 1 => ".{0,6}"]
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(word(), inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Operations that are almost valid.
fn operations() -> impl Strategy<Value = Value> {
    let pointer = "(/(metadata|spec|labels|a|0|1|-|-1|~1|~0)){0,4}";
    let operation = (word(), pointer, pointer, json_value()).prop_map(
        |(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}),
    );
    proptest::collection::vec(operation, 0..4).prop_map(Value::from)
}

static SCHEMAS: LazyLock<Vec<(ResourceKind, Schema)>> = LazyLock::new(|| {
    pure::registry()
        .kinds()
        .filter_map(|kind| {
            let schema = kind.schema.as_ref()?;
            Some((ResourceKind::clone(kind), Schema::compile(schema).expect("it compiles")))
        })
        .collect()
});

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn patches_never_panic(target in json_value(), patch in json_value(), list in operations()) {
        let rules = strategic_rules("", "Node");
        for kind in [PatchKind::Json, PatchKind::Merge, PatchKind::Strategic, PatchKind::Apply] {
            let _ = apply(kind, &target, &patch, rules);
            let _ = apply(kind, &target, &list, rules);
        }
    }

    #[test]
    fn an_empty_patch_changes_nothing(target in json_value()) {
        let target = json!({"metadata": target});
        let rules = strategic_rules("", "Node");
        let kinds = [(PatchKind::Json, json!([])), (PatchKind::Merge, json!({})), (PatchKind::Strategic, json!({}))];
        for (kind, patch) in kinds {
            prop_assert_eq!(apply(kind, &target, &patch, rules), Ok(target.clone()));
        }
    }

    /// Applying a merge patch again changes nothing. The first application is excluded: a list that
    /// replaces an object keeps the nulls inside its items, as in kube-apiserver.
    #[test]
    fn merging_again_changes_nothing(target in json_value(), patch in json_value()) {
        let (target, patch) = (json!({"spec": target}), json!({"spec": patch}));
        let merged = |object| apply(PatchKind::Merge, &object, &patch, None).expect("objects merge");
        let twice = merged(merged(target));
        prop_assert_eq!(merged(twice.clone()), twice);
    }

    #[test]
    fn selectors_never_panic(text in "[a-c!=<>(), \\t/.inot\\\\é]{0,24}", object in json_value()) {
        let object = json!({"metadata": {"labels": object}});
        if let Ok(selector) = LabelSelector::parse(&text) {
            let _ = selector.matches(&object);
        }
        if let Ok(selector) = FieldSelector::parse(&text) {
            let _ = selector.matches(&object);
        }
    }

    #[test]
    fn paths_never_panic(text in "[a-c.\\[\\]?(@='\"\\\\*:0-9)<>!{}$-]{0,24}", object in json_value()) {
        if let Some(path) = JsonPath::parse(&text) {
            let _ = path.find(&object);
        }
    }

    #[test]
    fn tables_never_panic(object in json_value(), spec in json_value(), status in json_value()) {
        let object = json!({"metadata": object, "spec": spec, "status": status, "series": spec});
        for kind in pure::registry().kinds() {
            let objects = std::slice::from_ref(&object);
            let made = table(kind, objects, json!({}), IncludeObject::Metadata, Timestamp::UNIX_EPOCH);
            let columns = made["columnDefinitions"].as_array().map(Vec::len);
            prop_assert_eq!(made["rows"][0]["cells"].as_array().map(Vec::len), columns);
        }
    }

    /// What a schema accepts it accepts again, and pruning and defaulting are idempotent.
    #[test]
    fn schemas_are_stable(spec in json_value(), status in json_value(), old in json_value()) {
        for (kind, schema) in SCHEMAS.iter() {
            let mut object = json!({
                "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": "a"},
                "spec": spec, "status": status,
            });
            schema.prune(&mut object);
            schema.apply_defaults(&mut object);
            let mut again = object.clone();
            prop_assert_eq!(schema.prune(&mut again), Vec::<String>::new());
            schema.apply_defaults(&mut again);
            prop_assert_eq!(&again, &object);
            let before = json!({"metadata": {"name": "a"}, "spec": old, "status": status});
            let _ = schema.validate(&object, None);
            let _ = schema.validate(&object, Some(&before));
            let _ = schema.validate_status(&object, Some(&before));
        }
    }
}
