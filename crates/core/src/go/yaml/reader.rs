//! How go-yaml reads JSON text.
//!
//! The matched library does not parse JSON as JSON: it uses a YAML 1.1 parser. The result differs
//! only for characters that YAML forbids, for NEL, which is a line break even between quotes, and for
//! overlong keys.
//!
//! The JSON text is assumed to be what Go's `encoding/json` writes: compact, with `<`, `>`, `&`,
//! U+2028 and U+2029 as `\u` escapes, and every other character from U+0020 on unescaped.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

const NEL: char = '\u{85}';

/// The longest key, in characters of JSON text including quotes.
const MAX_KEY_CHARS: usize = 1024;

/// Why go-yaml cannot read the JSON text of a value. Go has no YAML to match then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoYamlError {
    /// A string contains a character that YAML forbids: U+007F, U+0080 to U+009F, U+FFFE or U+FFFF.
    Character(char),
    /// The JSON text of a key is longer than 1024 characters. Contains its length.
    LongKey(usize),
    /// A key contains NEL (U+0085), a line break in YAML. Keys must be one line.
    LineBreakInKey,
    /// A string contains a line (NEL breaks lines) that starts like a document marker, `---` or `...`
    /// and then whitespace.
    DocumentMarker,
}

impl fmt::Display for GoYamlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Character(c) => {
                write!(f, "U+{:04X} is not allowed in a YAML stream", u32::from(*c))
            }
            Self::LongKey(found) => {
                write!(f, "a key takes {found} characters of JSON, more than {MAX_KEY_CHARS}")
            }
            Self::LineBreakInKey => f.write_str("a key holds a line break (U+0085)"),
            Self::DocumentMarker => f.write_str("a line of a string is a YAML document marker"),
        }
    }
}

impl std::error::Error for GoYamlError {}

/// Whether and why go-yaml refuses the JSON text of `value`.
///
/// MCO reports an error for such a value. [`to_go_yaml`](super::to_go_yaml) writes it anyway, so a
/// caller that has to be as strict as MCO checks here first.
pub fn go_yaml_error(value: &Value) -> Option<GoYamlError> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
        Value::String(text) => text_error(text),
        Value::Array(items) => items.iter().find_map(go_yaml_error),
        Value::Object(map) => {
            map.iter().find_map(|(key, value)| key_error(key).or_else(|| go_yaml_error(value)))
        }
    }
}

fn key_error(key: &str) -> Option<GoYamlError> {
    text_error(key).or_else(|| {
        if key.contains(NEL) {
            return Some(GoYamlError::LineBreakInKey);
        }
        // An escape has at most six characters: short keys need no counting.
        if key.len() * 6 + 2 <= MAX_KEY_CHARS {
            return None;
        }
        let length = 2 + key.chars().map(json_width).sum::<usize>();
        (length > MAX_KEY_CHARS).then_some(GoYamlError::LongKey(length))
    })
}

/// The length of one character in Go's JSON text.
fn json_width(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => 6,
        _ => 1,
    }
}

fn text_error(text: &str) -> Option<GoYamlError> {
    // Every forbidden character is DEL or starts with one of two bytes.
    if !text.bytes().any(|b| matches!(b, 0x7f | 0xc2 | 0xef)) {
        return None;
    }
    let forbidden =
        |c: &char| matches!(c, '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}');
    if let Some(c) = text.chars().find(forbidden) {
        return Some(GoYamlError::Character(c));
    }
    // A marker starts after a break and ends with a space or the next break.
    let marked = |line: &str| {
        let tail = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
        tail.is_some_and(|tail| tail.starts_with([' ', NEL]))
    };
    text.match_indices(NEL)
        .any(|(at, nel)| marked(&text[at + nel.len()..]))
        .then_some(GoYamlError::DocumentMarker)
}

/// The string that go-yaml reads from a JSON string. Lines broken by NEL are folded: one break
/// becomes a space, n breaks become n-1 line feeds, and surrounding spaces are removed.
pub(super) fn as_read(text: &str) -> Cow<'_, str> {
    if !text.contains(NEL) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find([' ', NEL]) {
        out.push_str(&rest[..at]);
        let tail = rest[at..].trim_start_matches([' ', NEL]);
        let blanks = &rest[at..rest.len() - tail.len()];
        match blanks.chars().filter(|c| *c == NEL).count() {
            0 => out.push_str(blanks),
            1 => out.push(' '),
            breaks => out.extend(std::iter::repeat_n('\n', breaks - 1)),
        }
        rest = tail;
    }
    out.push_str(rest);
    Cow::Owned(out)
}
