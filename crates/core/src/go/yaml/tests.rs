//! Recorded results of the Go library, and cases they do not cover.

use serde_json::{Value, json};

use super::{GoYamlError, go_yaml_error, to_go_yaml};

/// Checks lines of `{"value": …, "yaml": "…"}`.
fn check(table: &str) {
    for line in table.lines() {
        let row: Value = serde_json::from_str(line).expect("a row is JSON");
        let value = &row["value"];
        assert_eq!(row["yaml"].as_str(), Some(to_go_yaml(value).as_str()), "{value}");
        assert_eq!(go_yaml_error(value), None, "{value}");
    }
}

/// The specs of rendered configs, with the exact bytes that went into their names.
#[test]
fn rendered_specs() {
    check(include_str!("testdata/rendered.jsonl"));
}

/// Words, marks, blocks, characters, folds, keys, nesting and numbers.
#[test]
fn values() {
    check(include_str!("testdata/values.jsonl"));
}

/// Floats as such: without its feature `float_roundtrip`, `serde_json` misreads some in text.
#[test]
fn floats() {
    // Of two equally near shortest forms, the even one.
    assert_eq!(to_go_yaml(&json!(2_045_515_955_011_636.0 + 0.25)), "2.0455159550116362e+15\n");
    assert_eq!(to_go_yaml(&json!([-1e-5, 12.5, -0.001])), "- -1e-05\n- 12.5\n- -0.001\n");
    assert_eq!(to_go_yaml(&json!(f64::MIN_POSITIVE)), "2.2250738585072014e-308\n");
}

#[test]
fn forbidden_characters_are_errors() {
    let refused = |value: Value| go_yaml_error(&value);
    assert_eq!(refused(json!(["\u{7f}"])), Some(GoYamlError::Character('\u{7f}')));
    assert_eq!(refused(json!({"a\u{9f}": 1})), Some(GoYamlError::Character('\u{9f}')));
    assert_eq!(refused(json!({"a": "\u{ffff}"})), Some(GoYamlError::Character('\u{ffff}')));
    assert_eq!(refused(json!({"a\u{85}": 1})), Some(GoYamlError::LineBreakInKey));
    assert_eq!(refused(json!("a\u{85}... ")), Some(GoYamlError::DocumentMarker));
    assert_eq!(refused(json!("a\u{85}---\u{85}")), Some(GoYamlError::DocumentMarker));
    assert_eq!(refused(json!({"<".repeat(171): 1})), Some(GoYamlError::LongKey(1028)));
    assert_eq!(refused(json!({"k".repeat(1023): 1})), Some(GoYamlError::LongKey(1025)));
    assert_eq!(refused(json!({"é".repeat(1022): 1, "b": "a\u{85} ---"})), None);
}

/// Refused values are written with escapes, as if they had been read.
#[test]
fn refused_values_are_written_anyway() {
    assert_eq!(to_go_yaml(&json!("a\u{7f}\u{9f}\u{fffe}")), "\"a\\x7F\\x9F\\uFFFE\"\n");
    assert_eq!(to_go_yaml(&json!("a\u{85}--- b")), "a --- b\n");
}

/// Go returns one of three orders here; we always return the same one.
#[test]
fn keys_without_a_total_order_are_written_once_each() {
    let keys = ["2", "10", "1a", "02", "1-", "10a", "9", "11"];
    let map: Value = keys.iter().map(|key| ((*key).to_owned(), json!(1))).collect();
    let yaml = to_go_yaml(&map);
    assert_eq!(yaml.lines().count(), keys.len());
    assert_eq!(yaml, to_go_yaml(&map));
}

#[test]
fn many_keys_are_sorted_as_numbers() {
    let map: Value = (0..300).rev().map(|n| (format!("k{n}"), json!(n))).collect();
    let expected: String = (0..300).map(|n| format!("k{n}: {n}\n")).collect();
    assert_eq!(to_go_yaml(&map), expected);
}
