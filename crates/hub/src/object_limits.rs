//! The limits that every object keeps: its depth, its size, and how much an error about it repeats.
//!
//! Cloning, comparing, encoding and dropping a JSON value recurse once per level, so a value that is
//! too deep overflows the stack wherever it goes. The check itself therefore must not recurse, and
//! it must run before the value is used. Pure; called by the decoders, the patches and startup.

use std::io::{self, Write};

use serde_json::{Value, map};

/// The deepest object, in nested lists and objects. serde_json reads up to 127 levels, and a list
/// or a watch event puts an object two levels deeper.
pub const MAX_DEPTH: usize = 100;

/// The deepest object that is written: what is deeper cannot be read back. Defaults may add a few
/// levels to what a client sent.
pub const MAX_STORED_DEPTH: usize = 120;

/// The largest object, and the largest request body.
pub const MAX_OBJECT_BYTES: usize = 3 * 1024 * 1024;

/// The longest field name. Kubernetes' own keys are below 320 bytes; errors and paths repeat them.
pub const MAX_KEY_BYTES: usize = 4096;

/// How many findings about one object an error or a warning lists. Without this limit a body of a
/// few megabytes produces gigabytes of text.
pub const MAX_FINDINGS: usize = 100;

/// How much of a field path a finding shows. A path may contain keys of megabytes.
const MAX_PATH_BYTES: usize = 256;
/// How much of a value an error repeats. An object of usual size is shown whole.
const MAX_SHOWN_VALUE_BYTES: usize = 16 << 10;

/// A value is nested too deep.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("nested deeper than {limit} levels below {path:?}: flatten it")]
pub struct TooDeep {
    /// The limit in this place.
    pub limit: usize,
    /// The first fields on the way down.
    pub path: String,
}

/// The size of a value that keeps the depth limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Nested lists and objects; 0 for a scalar.
    pub depth: usize,
    /// Number of values in it, itself included.
    pub values: usize,
}

enum Level<'a> {
    List(std::slice::Iter<'a, Value>),
    Object(&'a str, map::Iter<'a>),
}

/// Measures a value without recursion. It stops at the first place that is too deep.
///
/// # Errors
/// The value has more than `limit` levels.
pub fn measure(value: &Value, limit: usize) -> Result<Measured, TooDeep> {
    let mut measured = Measured { depth: 0, values: 1 };
    let mut levels: Vec<Level<'_>> = Vec::new();
    let mut next = Some(value);
    loop {
        match next {
            Some(Value::Array(items)) => levels.push(Level::List(items.iter())),
            Some(Value::Object(fields)) => levels.push(Level::Object("", fields.iter())),
            _ => {}
        }
        if levels.len() > limit {
            return Err(TooDeep { limit, path: path_of(&levels) });
        }
        measured.depth = measured.depth.max(levels.len());
        next = loop {
            let Some(level) = levels.last_mut() else { return Ok(measured) };
            let inside = match level {
                Level::List(items) => items.next(),
                Level::Object(key, fields) => fields.next().map(|(name, value)| {
                    *key = name;
                    value
                }),
            };
            match inside {
                Some(value) => break Some(value),
                None => levels.pop(),
            };
        };
        measured.values += 1;
    }
}

fn path_of(levels: &[Level<'_>]) -> String {
    const SHOWN: usize = 5;
    let keys = levels.iter().filter_map(|level| match level {
        Level::Object(key, _) if !key.is_empty() => Some(*key),
        _ => None,
    });
    shorten(&keys.take(SHOWN).collect::<Vec<_>>().join("."))
}

/// Cuts a field path to what an error shows.
#[must_use]
pub fn shorten(path: &str) -> String {
    shorten_to(path, MAX_PATH_BYTES)
}

/// Cuts a value that the client sent to what an error shows of it.
#[must_use]
pub fn shorten_value(text: &str) -> String {
    shorten_to(text, MAX_SHOWN_VALUE_BYTES)
}

fn shorten_to(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let end = (0..=max_bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}...", &text[..end])
}

/// The length of a value's JSON text, without building the text. The value must not be too deep.
#[must_use]
pub fn encoded_bytes(value: &Value) -> usize {
    struct Counter(usize);
    impl Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    match serde_json::to_writer(&mut counter, value) {
        Ok(()) => counter.0,
        Err(_) => usize::MAX, // keys are strings and the writer does not fail
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Drops a value of any depth without recursion.
    fn drop_deep(value: Value) {
        let mut left = vec![value];
        while let Some(value) = left.pop() {
            match value {
                Value::Array(items) => left.extend(items),
                Value::Object(fields) => left.extend(fields.into_iter().map(|(_, value)| value)),
                _ => {}
            }
        }
    }

    fn nested(depth: usize) -> Value {
        let wrap = |inner: Value, level: usize| {
            if level.is_multiple_of(2) { json!([inner]) } else { json!({"a": inner}) }
        };
        (0..depth).fold(Value::Null, |inner, level| {
            let mut outer = wrap(Value::Null, level);
            match &mut outer {
                Value::Array(items) => items[0] = inner,
                other => other["a"] = inner,
            }
            outer
        })
    }

    #[test]
    fn depth_and_number_of_values() {
        for (value, depth, values) in [
            (json!(1), 0, 1),
            (json!({}), 1, 1),
            (json!({"a": [1, 2, {}]}), 3, 5),
            (json!([[], [[]], 1]), 3, 5),
        ] {
            assert_eq!(measure(&value, MAX_DEPTH), Ok(Measured { depth, values }), "{value}");
        }
        assert!(measure(&nested(MAX_DEPTH), MAX_DEPTH).is_ok());
        assert!(measure(&nested(MAX_DEPTH + 1), MAX_DEPTH).is_err());
    }

    #[test]
    fn any_depth_is_measured_and_dropped_without_recursion() {
        let deep = nested(1_000_000);
        let error = measure(&deep, MAX_DEPTH).unwrap_err();
        assert_eq!(
            error.to_string(),
            "nested deeper than 100 levels below \"a.a.a.a.a\": flatten it"
        );
        drop_deep(deep);
    }

    #[test]
    fn the_text_is_counted_and_paths_are_cut() {
        let value = json!({"a": [1, "é", null]});
        assert_eq!(encoded_bytes(&value), value.to_string().len());
        assert_eq!(shorten("a.b"), "a.b");
        assert!(shorten(&"é".repeat(1000)).len() < 300);
    }
}
