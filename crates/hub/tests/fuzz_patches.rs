//! Every sequence of patches keeps the limits of objects: those of the regression corpus and random
//! ones.
use machinist_hub::robustness::{apply_sequence, patch_sequence};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn the_patch_corpus_keeps_the_limits() {
    let dir = format!("{}/../../tests/cases/fuzz/patch", env!("CARGO_MANIFEST_DIR"));
    let mut found = 0;
    for entry in std::fs::read_dir(&dir).unwrap() {
        patch_sequence(&std::fs::read(entry.unwrap().path()).unwrap());
        found += 1;
    }
    assert!(found >= 4, "{dir} is empty");
}

#[test]
fn the_apply_corpus_keeps_the_invariants() {
    let dir = format!("{}/../../tests/cases/fuzz/apply", env!("CARGO_MANIFEST_DIR"));
    let mut found = 0;
    for entry in std::fs::read_dir(&dir).unwrap() {
        apply_sequence(&std::fs::read(entry.unwrap().path()).unwrap());
        found += 1;
    }
    assert!(found >= 2, "{dir} is empty");
}

fn pointer() -> impl Strategy<Value = String> {
    let step =
        prop::sample::select(vec!["x", "y", "a", "0", "-", "metadata", "spec", "finalizers"]);
    prop_oneof![
        6 => prop::collection::vec(step.clone(), 1..4).prop_map(|steps| format!("/{}", steps.join("/"))),
        2 => (step, 1..110usize).prop_map(|(first, depth)| format!("/{first}{}", "/a".repeat(depth))),
        1 => Just(String::new()),
    ]
}

/// A value of up to 110 levels.
fn nested_value() -> impl Strategy<Value = Value> {
    (0..110usize, any::<bool>()).prop_map(|(depth, lists)| {
        (0..depth)
            .fold(json!("x"), |inner, _| if lists { json!([inner]) } else { json!({"a": inner}) })
    })
}

fn operations() -> impl Strategy<Value = Vec<Value>> {
    let operation = prop_oneof![
        (pointer(), nested_value())
            .prop_map(|(path, value)| json!({"op": "add", "path": path, "value": value})),
        (pointer(), nested_value())
            .prop_map(|(path, value)| json!({"op": "replace", "path": path, "value": value})),
        (pointer(), pointer())
            .prop_map(|(from, path)| json!({"op": "move", "from": from, "path": path})),
        (pointer(), pointer())
            .prop_map(|(from, path)| json!({"op": "copy", "from": from, "path": path})),
        pointer().prop_map(|path| json!({"op": "remove", "path": path})),
    ];
    // The same operations again and again: that is how nesting and copying explode.
    (prop::collection::vec(operation, 1..4), 1..200usize)
        .prop_map(|(once, times)| once.iter().cycle().take(once.len() * times).cloned().collect())
}

fn merge_patch() -> impl Strategy<Value = Value> {
    let field = prop::sample::select(vec![
        "x",
        "spec",
        "metadata",
        "status",
        "$patch",
        "$retainKeys",
        "$setElementOrder/finalizers",
    ]);
    (field, nested_value()).prop_map(|(field, value)| json!({field: value}))
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => operations().prop_map(|patch| format!("json {}", Value::from(patch))),
        1 => merge_patch().prop_map(|patch| format!("merge {patch}")),
        1 => merge_patch().prop_map(|patch| format!("strategic {patch}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn random_patch_sequences_keep_the_limits(lines in prop::collection::vec(line(), 1..12)) {
        patch_sequence(lines.join("\n").as_bytes());
    }
}
