//! The emitter: writes a value in block style and tracks the column.

use serde_json::{Map, Number, Value};

use super::float::go_float;
use super::order::sort_by_key;
use super::reader::as_read;
use super::scalar::{ScalarLayout, ScalarStyle, choose_layout};

/// One level of indentation, and the digit for it in a block header.
pub(super) const INDENT_STEP: usize = 2;

/// Lines are folded at the first space beyond this column.
pub(super) const FOLD_WIDTH: usize = 80;

/// Longer keys, in bytes, are written with `? `.
const MAX_SIMPLE_KEY_BYTES: usize = 128;

/// The output and the state of the current line.
#[derive(Debug)]
pub(super) struct YamlEmitter {
    pub(super) out: String,
    /// Characters on the current line.
    pub(super) column: usize,
    /// The column at which lines of the current collection start; `None` outside of any.
    indent: Option<usize>,
    /// Whether the last output separates what follows, so that no space is needed.
    pub(super) spaced: bool,
    /// Whether the line contains only indentation and the indicators `-`, `?` and `:`.
    pub(super) fresh: bool,
}

/// The position of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum YamlPosition {
    Root,
    Item,
    MappingValue,
}

impl YamlEmitter {
    /// Writes a whole document.
    pub(super) fn document(value: &Value) -> String {
        let mut emitter =
            Self { out: String::new(), column: 0, indent: None, spaced: true, fresh: true };
        emitter.node(value, YamlPosition::Root);
        emitter.start_line(0);
        emitter.out
    }

    fn node(&mut self, value: &Value, place: YamlPosition) {
        match value {
            Value::Null => self.word("null"),
            Value::Bool(true) => self.word("true"),
            Value::Bool(false) => self.word("false"),
            Value::Number(number) => self.number(number),
            Value::String(text) => {
                let text = as_read(text);
                self.scalar(&text, choose_layout(&text), true);
            }
            Value::Array(items) if items.is_empty() => self.word("[]"),
            Value::Array(items) => self.sequence(items, place),
            Value::Object(map) if map.is_empty() => self.word("{}"),
            Value::Object(map) => self.mapping(map),
        }
    }

    fn sequence(&mut self, items: &[Value], place: YamlPosition) {
        let outer = self.indent;
        // A list below its key stays at the key's column; after an indicator it is indented.
        if place != YamlPosition::MappingValue || self.fresh {
            self.indent = Some(outer.map_or(0, |indent| indent + INDENT_STEP));
        }
        for item in items {
            self.start_line(self.indent.unwrap_or(0));
            self.mark("-", true);
            self.node(item, YamlPosition::Item);
        }
        self.indent = outer;
    }

    fn mapping(&mut self, map: &Map<String, Value>) {
        let outer = self.indent;
        let indent = outer.map_or(0, |indent| indent + INDENT_STEP);
        self.indent = Some(indent);
        let mut entries: Vec<(&str, &Value)> = map.iter().map(|(k, v)| (k.as_str(), v)).collect();
        sort_by_key(&mut entries);
        for (key, value) in entries {
            self.start_line(indent);
            self.key(key, indent);
            self.node(value, YamlPosition::MappingValue);
        }
        self.indent = outer;
    }

    fn key(&mut self, key: &str, indent: usize) {
        let key = as_read(key);
        let look = choose_layout(&key);
        if !look.multiline && key.len() <= MAX_SIMPLE_KEY_BYTES {
            self.scalar(&key, look, false);
            self.mark(":", false);
        } else {
            self.mark("?", true);
            self.scalar(&key, look, true);
            self.start_line(indent);
            self.mark(":", true);
        }
    }

    fn number(&mut self, number: &Number) {
        let text = number.to_string();
        if number.is_f64() { self.word(&go_float(&text)) } else { self.word(&text) }
    }

    /// Writes a string. A simple key must not be `foldable`.
    fn scalar(&mut self, text: &str, look: ScalarLayout, foldable: bool) {
        let indent = self.indent.map_or(INDENT_STEP, |indent| indent + INDENT_STEP);
        let fold = foldable.then_some(indent);
        match look.style {
            ScalarStyle::Plain if fold.is_none() || self.column + text.len() <= FOLD_WIDTH => {
                self.word(text);
            }
            ScalarStyle::Plain => {
                self.set_off();
                self.words(text, fold, false);
                self.spaced = false;
                self.fresh = false;
            }
            ScalarStyle::Single => {
                self.word("'");
                self.single_quoted(text, fold, look);
                self.word_end("'");
            }
            ScalarStyle::Double => {
                self.word("\"");
                self.double_quoted(text, fold);
                self.word_end("\"");
            }
            ScalarStyle::Literal => self.literal(text, indent, look),
        }
    }

    /// Starts a new line and indents it, unless the current line is still fresh.
    pub(super) fn start_line(&mut self, indent: usize) {
        let used_up = self.column > indent || (self.column == indent && !self.spaced);
        if !self.fresh || used_up {
            self.out.push('\n');
            self.column = 0;
        }
        self.pad_to(indent);
        self.spaced = true;
        self.fresh = true;
    }

    /// Pads the line with spaces up to `column`.
    pub(super) fn pad_to(&mut self, column: usize) {
        const SPACES: &str = "                                                                ";
        while self.column < column {
            let some = (column - self.column).min(SPACES.len());
            self.out.push_str(&SPACES[..some]);
            self.column += some;
        }
    }

    /// Writes a space if one is needed before what follows.
    pub(super) fn set_off(&mut self) {
        if !self.spaced {
            self.out.push(' ');
            self.column += 1;
        }
    }

    /// Writes a token. The line is no longer fresh afterwards.
    pub(super) fn word(&mut self, word: &str) {
        self.set_off();
        self.word_end(word);
    }

    /// As [`word`](Self::word), without a space before it.
    pub(super) fn word_end(&mut self, word: &str) {
        self.put(word);
        self.spaced = false;
        self.fresh = false;
    }

    /// Writes text of one line and counts its characters.
    pub(super) fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    /// Writes the indicator `-`, `?` or `:`. One that `opens` keeps the line fresh: a collection may
    /// follow on it. Otherwise it is the colon after a simple key.
    fn mark(&mut self, mark: &str, opens: bool) {
        if opens {
            self.set_off();
        }
        self.put(mark);
        self.spaced = false;
        self.fresh &= opens;
    }
}
