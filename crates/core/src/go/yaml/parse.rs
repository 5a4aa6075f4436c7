//! Parses YAML like Go's libraries: YAML 1.1 scalars (`0644` is octal, `yes` is true), whole floats
//! are integers, and the last of two equal keys wins.

use serde_json::{Number, Value};

/// Why a text is not YAML. Never quotes the document, which may contain secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not valid YAML{place}: {reason}")]
pub struct YamlError {
    place: String,
    reason: String,
}

/// Marks the end of a text that does not end with a line break.
const END_MARKER: char = '\u{e000}';

/// Parses one document. An empty text is `null`.
pub fn parse(text: &str) -> Result<Value, YamlError> {
    let mut value = read(text)?;
    // Go's parser adds no line break to a block scalar that ends with the text.
    let last_line = text.rsplit('\n').next().unwrap_or_default();
    if last_line.starts_with(' ')
        && !last_line.trim().is_empty()
        && !text.contains(END_MARKER)
        && let Ok(marked) = read(&format!("{text}{END_MARKER}"))
    {
        strip_break(&mut value, &marked);
    }
    Ok(value)
}

fn strip_break(value: &mut Value, marked: &Value) {
    match (value, marked) {
        (Value::String(text), Value::String(marked)) if marked.ends_with("\u{e000}\n") => {
            text.pop();
        }
        (Value::Array(items), Value::Array(marked)) => {
            items.iter_mut().zip(marked).for_each(|(item, marked)| strip_break(item, marked));
        }
        (Value::Object(fields), Value::Object(marked)) => {
            for (name, value) in fields {
                if let Some(marked) = marked.get(name) {
                    strip_break(value, marked);
                }
            }
        }
        _ => {}
    }
}

fn read(text: &str) -> Result<Value, YamlError> {
    let mut options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
    };
    // Real documents have few aliases; a "billion laughs" attack consists of them.
    options.alias_limits.max_total_replayed_events = 50_000;
    let read: Result<Value, _> = serde_saphyr::from_str_with_options(text, options);
    let mut value = read.map_err(|error| YamlError {
        place: error.location().map_or_else(String::new, |at| {
            format!(" at line {}, column {}", at.line(), at.column())
        }),
        reason: error
            .without_snippet()
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned(),
    })?;
    whole_numbers(&mut value);
    Ok(value)
}

/// Converts whole floats to integers, as Go's conversion to JSON does.
fn whole_numbers(value: &mut Value) {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53: beyond, floats skip whole numbers
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() <= EXACT {
                #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
                let whole = float as i64;
                *number = Number::from(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scalars_are_parsed_like_go() {
        for (text, expected) in [
            ("mode: 0644", json!({"mode": 420})),
            ("a: 1\na: 2", json!({"a": 2})),
            ("a: yes", json!({"a": true})),
            ("a: 1.0", json!({"a": 1})),
            ("a: |\n  x\n", json!({"a": "x\n"})),
            ("a: |\n  x\n  y", json!({"a": "x\ny"})),
            ("a: |\n  x\n  ", json!({"a": "x\n"})),
            ("a:\n- b: |\n    x", json!({"a": [{"b": "x"}]})),
            ("a:\n  mode: 0644", json!({"a": {"mode": 420}})),
            ("{\"a\": [1]}", json!({"a": [1]})),
        ] {
            assert_eq!(parse(text).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn an_error_names_the_line_and_quotes_nothing() {
        let error = parse("passwordHash: [$6$secret").unwrap_err().to_string();
        assert!(error.contains("line 1") && !error.contains("secret"), "{error}");
    }
}
