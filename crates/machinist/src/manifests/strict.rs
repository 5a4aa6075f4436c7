//! YAML and JSON into plain values: duplicate keys are errors, nesting and aliases are bounded,
//! and scalars mean what they mean to Kubernetes' own YAML reader (`0644` is octal, `yes` is true).
//! Errors contain line and column but no text of the file, which may be secret.

use std::fmt;

use anyhow::{Result, anyhow};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::source::ManifestText;

/// All documents of a file.
pub(super) fn parse(text: &ManifestText) -> Result<Vec<Value>> {
    let is_json = text.file.extension().is_some_and(|ending| ending == "json");
    let looks_like_json = text.text.trim_start().starts_with(['{', '[']);
    if !is_json && !looks_like_json {
        return parse_yaml(&text.text);
    }
    let json = parse_json(&text.text);
    // Text that looks like JSON may be YAML in flow style.
    if json.is_err() && !is_json { parse_yaml(&text.text).or(json) } else { json }
}

fn parse_json(text: &str) -> Result<Vec<Value>> {
    serde_json::Deserializer::from_str(text)
        .into_iter::<StrictValue<false>>()
        .map(|value| {
            value.map(|strict| strict.0).map_err(|error| anyhow!("not valid JSON: {error}"))
        })
        .collect()
}

fn parse_yaml(text: &str) -> Result<Vec<Value>> {
    let mut options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    // Manifests hardly use aliases; a "billion laughs" document is nothing but aliases.
    options.alias_limits.max_total_replayed_events = 50_000;
    let values: Vec<StrictValue<true>> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| {
            let place = error.location().map_or_else(String::new, |location| {
                format!("line {}, column {}: ", location.line(), location.column())
            });
            anyhow!("{place}not valid YAML: {}", one_line(&error.without_snippet().to_string()))
        })?;
    Ok(values.into_iter().map(|strict| strict.0).collect())
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// A value without duplicate keys. A whole number that YAML writes as a float becomes an integer, as in
/// the conversion from YAML to JSON of Kubernetes' clients.
struct StrictValue<const YAML: bool>(Value);

impl<'de, const YAML: bool> Deserialize<'de> for StrictValue<YAML> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor::<YAML>).map(StrictValue)
    }
}

struct StrictVisitor<const YAML: bool>;

impl<'de, const YAML: bool> Visitor<'de> for StrictVisitor<YAML> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Value, E> {
        i64::try_from(value).map(Value::from).map_err(|_| E::custom("number out of range"))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Value, E> {
        u64::try_from(value).map(Value::from).map_err(|_| E::custom("number out of range"))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53: beyond, floats skip whole numbers
        if YAML && value.fract() == 0.0 && value.abs() <= EXACT {
            #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
            return Ok(Value::from(value as i64));
        }
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        StrictValue::<YAML>::deserialize(deserializer).map(|strict| strict.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = access.next_element::<StrictValue<YAML>>()? {
            values.push(value.0);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(de::Error::custom(format!("the key {key:?} stands here twice")));
            }
            let value = access.next_value::<StrictValue<YAML>>()?;
            map.insert(key, value.0);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::PathBuf;

    fn parse_text(file: &str, text: &str) -> Result<Vec<Value>> {
        parse(&ManifestText { file: PathBuf::from(file), text: text.to_owned() })
    }

    #[test]
    fn scalars_are_read_as_kubernetes_does() {
        for (text, expected) in [
            ("mode: 0644", json!({"mode": 420})),
            ("mode: 420", json!({"mode": 420})),
            ("mode: 0o644", json!({"mode": 420})),
            ("a: yes", json!({"a": true})),
            ("a: off", json!({"a": false})),
            ("a: ~", json!({"a": null})),
            ("a: 1.0", json!({"a": 1})),
            ("a: 1.5", json!({"a": 1.5})),
            ("a: 2020-01-02", json!({"a": "2020-01-02"})),
            ("a: \"0644\"", json!({"a": "0644"})),
            ("a: |\n  x\n  y\n", json!({"a": "x\ny\n"})),
        ] {
            assert_eq!(parse_text("a.yaml", text).unwrap(), [expected], "{text:?}");
        }
    }

    #[test]
    fn many_documents_are_read() {
        assert_eq!(parse_text("a.yaml", "a: 1\n---\nb: 2\n").unwrap().len(), 2);
        assert_eq!(parse_text("a.json", "{\"a\": 1}\n{\"b\": 2}").unwrap().len(), 2);
        assert_eq!(parse_text("a.yaml", "{a: 1}").unwrap(), [json!({"a": 1})]);
    }

    #[test]
    fn hostile_documents_are_refused() {
        let laughs: String = (1..10).fold("a0: &a0 [x]\n".to_owned(), |text, level| {
            let below = level - 1;
            let aliases = format!("*a{below}, ").repeat(10);
            format!("{text}a{level}: &a{level} [{aliases}]\n")
        });
        let deep_json = "[".repeat(100_000);
        let deep_yaml = format!("a: {}", "[".repeat(100_000));
        for (file, text) in [
            ("a.yaml", "a: 1\na: 2"),
            ("a.json", "{\"a\": 1, \"a\": 2}"),
            ("a.yaml", laughs.as_str()),
            ("a.json", deep_json.as_str()),
            ("a.yaml", deep_yaml.as_str()),
            ("a.json", "{"),
            ("a.yaml", "a: [1"),
        ] {
            let error = parse_text(file, text).unwrap_err().to_string();
            assert!(error.len() < 400, "{error}");
        }
    }

    #[test]
    fn errors_do_not_quote_the_file() {
        let error = parse_text("a.yaml", "passwordHash: [$6$secret").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
