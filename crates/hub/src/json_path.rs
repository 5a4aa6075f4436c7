//! The JSONPath subset of printer columns, as kubectl reads it:
//! `.status.conditions[?(@.type=="Updated")].status`.
//!
//! Pure. Called by [`crate::table`] and by machinist's own tables.

use std::cmp::Ordering;

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    segments: Vec<JsonPathSegment>,
}

#[derive(Debug, Clone, PartialEq)]
enum JsonPathSegment {
    Field(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>, Option<i64>),
    Wildcard,
    RecursiveDescent,
    Filter(Box<JsonPathFilter>),
}

#[derive(Debug, Clone, PartialEq)]
struct JsonPathFilter {
    left: Operand,
    /// `None` tests only whether the left side exists.
    test: Option<(Comparison, Operand)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(JsonPath),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    LessOrEqual,
    GreaterOrEqual,
    Less,
    Greater,
}

impl JsonPath {
    /// Parses a path; `None` if it is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        let mut rest = text.strip_prefix(['$', '@']).unwrap_or(text);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            rest = parse_segment(rest, &mut steps)?;
        }
        Some(Self { segments: steps })
    }

    /// Returns the values at the path; `None` if the path does not fit the object.
    #[must_use]
    pub fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let mut here = vec![object];
        for step in &self.segments {
            match apply_segment(step, &here) {
                Some(next) => here = next,
                None => return Vec::new(),
            }
        }
        here
    }
}

/// Parses one step and returns the rest of the text.
fn parse_segment<'a>(text: &'a str, steps: &mut Vec<JsonPathSegment>) -> Option<&'a str> {
    if let Some(rest) = text.strip_prefix("..") {
        steps.push(JsonPathSegment::RecursiveDescent);
        return if rest.starts_with('[') { Some(rest) } else { parse_field(rest, steps) };
    }
    if let Some(rest) = text.strip_prefix('.') {
        return if rest.is_empty() { Some(rest) } else { parse_field(rest, steps) };
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, rest) = split_bracket(rest)?;
        steps.push(parse_subscript(inside)?);
        return Some(rest);
    }
    parse_field(text, steps)
}

fn parse_field<'a>(text: &'a str, steps: &mut Vec<JsonPathSegment>) -> Option<&'a str> {
    if let Some(rest) = text.strip_prefix('*') {
        steps.push(JsonPathSegment::Wildcard);
        return Some(rest);
    }
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.push(chars.next()?.1),
            '.' | '[' | ' ' | ']' | ')' | '=' | '!' | '<' | '>' => {
                if name.is_empty() {
                    return (c == '[').then_some(&text[at..]);
                }
                steps.push(JsonPathSegment::Field(name));
                return Some(&text[at..]);
            }
            c => name.push(c),
        }
    }
    steps.push(JsonPathSegment::Field(name));
    Some("")
}

/// Splits at the matching `]`.
fn split_bracket(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some((&text[..at], &text[at + 1..])),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn parse_subscript(text: &str) -> Option<JsonPathSegment> {
    let text = text.trim();
    if text == "*" {
        return Some(JsonPathSegment::Wildcard);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        return parse_filter(filter).map(|filter| JsonPathSegment::Filter(Box::new(filter)));
    }
    if let Some(Value::String(name)) = parse_literal(text) {
        return Some(JsonPathSegment::Field(name));
    }
    if text.contains(':') {
        let mut parts = text.split(':').map(|part| match part.trim() {
            "" => Some(None),
            number => number.parse().ok().map(Some),
        });
        let mut next = || parts.next().unwrap_or(Some(None));
        return Some(JsonPathSegment::Slice(next()?, next()?, next()?));
    }
    text.parse().ok().map(JsonPathSegment::Index)
}

fn parse_filter(text: &str) -> Option<JsonPathFilter> {
    const OPERATORS: [(&str, Comparison); 6] = [
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, _) => {
                let found = OPERATORS.iter().find(|(sign, _)| text[at..].starts_with(sign));
                if let Some((sign, comparison)) = found {
                    let right = parse_operand(&text[at + sign.len()..])?;
                    return Some(JsonPathFilter {
                        left: parse_operand(&text[..at])?,
                        test: Some((*comparison, right)),
                    });
                }
            }
        }
    }
    Some(JsonPathFilter { left: parse_operand(text)?, test: None })
}

fn parse_operand(text: &str) -> Option<Operand> {
    let text = text.trim();
    if text.starts_with('@') || text.starts_with('$') || text.starts_with('.') {
        return JsonPath::parse(text).map(Operand::Path);
    }
    parse_literal(text).or_else(|| serde_json::from_str(text).ok()).map(Operand::Literal)
}

/// Parses a string in single or double quotes.
fn parse_literal(text: &str) -> Option<Value> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let inside = text.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut out = String::with_capacity(inside.len());
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next()? } else { c });
    }
    Some(Value::String(out))
}

fn apply_segment<'a>(step: &JsonPathSegment, here: &[&'a Value]) -> Option<Vec<&'a Value>> {
    let mut next = Vec::new();
    for value in here.iter().filter(|value| !value.is_null()) {
        match step {
            JsonPathSegment::Field(name) => next.extend(value.get(name)),
            JsonPathSegment::Wildcard => next.extend(children(value)),
            JsonPathSegment::RecursiveDescent => collect_descendants(value, &mut next),
            JsonPathSegment::Index(index) => {
                let items = value.as_array()?;
                let at = if *index < 0 { index + i64::try_from(items.len()).ok()? } else { *index };
                next.push(items.get(usize::try_from(at).ok()?)?);
            }
            JsonPathSegment::Slice(start, end, by) => next.extend(slice(value, *start, *end, *by)?),
            JsonPathSegment::Filter(filter) => {
                next.extend(value.as_array()?.iter().filter(|item| filter.matches(item)));
            }
        }
    }
    Some(next)
}

fn slice(
    value: &Value,
    start: Option<i64>,
    end: Option<i64>,
    by: Option<i64>,
) -> Option<impl Iterator<Item = &Value>> {
    let items = value.as_array()?;
    let size = i64::try_from(items.len()).ok()?;
    let absolute = |at: i64| if at < 0 { at + size } else { at };
    let start = usize::try_from(absolute(start.unwrap_or(0))).ok()?;
    let end = usize::try_from(absolute(end.unwrap_or(size))).ok()?;
    let by = usize::try_from(by.unwrap_or(1)).ok().filter(|by| *by > 0)?;
    Some(items.get(start..end)?.iter().step_by(by))
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    }
}

/// Returns the value and all objects and lists inside it.
fn collect_descendants<'a>(value: &'a Value, into: &mut Vec<&'a Value>) {
    let inside = children(value);
    if !inside.is_empty() {
        into.push(value);
        inside.into_iter().for_each(|child| collect_descendants(child, into));
    }
}

impl JsonPathFilter {
    fn matches(&self, item: &Value) -> bool {
        let left = self.left.find(item);
        let Some((comparison, right)) = &self.test else { return !left.is_empty() };
        let right = right.find(item);
        let ([left], [right]) = (left.as_slice(), right.as_slice()) else { return false };
        comparison.matches(left, right)
    }
}

impl Operand {
    fn find<'a>(&'a self, item: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Path(path) => path.find(item),
            Self::Literal(value) => vec![value],
        }
    }
}

impl Comparison {
    fn matches(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Value::Number(a), Value::Number(b)) => {
                a.as_f64().zip(b.as_f64()).and_then(|(a, b)| a.partial_cmp(&b))
            }
            _ => None,
        };
        let Some(order) = order else { return false };
        match self {
            Self::Equal => order == Ordering::Equal,
            Self::NotEqual => order != Ordering::Equal,
            Self::LessOrEqual => order != Ordering::Greater,
            Self::GreaterOrEqual => order != Ordering::Less,
            Self::Less => order == Ordering::Less,
            Self::Greater => order == Ordering::Greater,
        }
    }
}
