//! Label selectors: `a=b,c in (d,e),!f,g>5`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::names;
use crate::schema::FieldError;
use crate::status::ApiError;

/// A parsed label selector; every requirement must hold.
#[derive(Debug, Clone, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone)]
struct Requirement {
    key: String,
    operator: Operator,
    values: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

impl LabelSelector {
    /// Reads a selector; nothing selects everything.
    ///
    /// # Errors
    /// 400 in the words of an API server.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let mut parser = Parser { tokens: scan(text), position: 0 };
        let requirements = parser.parse().map_err(ApiError::bad_request)?;
        Ok(Self { requirements })
    }

    /// Whether the object's labels fit.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        self.requirements.iter().all(|requirement| {
            let label = labels.and_then(|labels| labels.get(&requirement.key));
            requirement.holds(label.and_then(Value::as_str))
        })
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Requirement {
    fn new(key: String, operator: Operator, values: BTreeSet<String>) -> Result<Self, String> {
        let mut wrong = Vec::new();
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
            for (index, value) in values.iter().enumerate() {
                if go_integer(value).is_none() {
                    wrong.push(FieldError::invalid(
                        format!("values[{index}]"),
                        value.as_str(),
                        "for 'Gt', 'Lt' operators, the value must be an integer",
                    ));
                }
            }
        }
        for (index, value) in values.iter().enumerate() {
            let errors = names::label_value(value);
            if !errors.is_empty() {
                let field = format!("values[{index}][{key}]");
                wrong.push(FieldError::invalid(field, value.as_str(), errors.join("; ")));
            }
        }
        match wrong.as_slice() {
            [] => Ok(Self { key, operator, values }),
            [one] => Err(one.to_string()),
            many => {
                let texts: Vec<String> = many.iter().map(ToString::to_string).collect();
                Err(format!("[{}]", texts.join(", ")))
            }
        }
    }

    fn holds(&self, label: Option<&str>) -> bool {
        match (self.operator, label) {
            (Operator::In, Some(value)) => self.values.contains(value),
            (Operator::NotIn, Some(value)) => !self.values.contains(value),
            (Operator::Exists, label) => label.is_some(),
            (Operator::DoesNotExist, label) => label.is_none(),
            (Operator::GreaterThan | Operator::LessThan, Some(value)) => self.compares(value),
            (Operator::NotIn, None) => true,
            (Operator::In | Operator::GreaterThan | Operator::LessThan, None) => false,
        }
    }

    fn compares(&self, value: &str) -> bool {
        let bound = self.values.first().and_then(|bound| go_integer(bound));
        match (go_integer(value), bound) {
            (Some(value), Some(bound)) if self.operator == Operator::GreaterThan => value > bound,
            (Some(value), Some(bound)) => value < bound,
            _ => false,
        }
    }
}

fn go_integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

fn scan(text: &str) -> Vec<(Token, String)> {
    let mut rest = text;
    let mut tokens = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = rest.chars().next().filter(|c| *c != '\0') else {
            tokens.push((Token::End, String::new()));
            return tokens;
        };
        let (token, literal, length) =
            if is_special(first) { special(rest) } else { identifier(rest) };
        tokens.push((token, literal));
        rest = &rest[length..];
    }
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

/// The longest operator at the start; each of its characters is one by itself too.
fn special(text: &str) -> (Token, String, usize) {
    let two = text.get(..2).and_then(operator).map(|token| (token, 2));
    let one = || text.get(..1).and_then(operator).map(|token| (token, 1));
    let (token, length) = two.or_else(one).unwrap_or((Token::End, 1));
    (token, text[..length].to_owned(), length)
}

fn operator(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::Close,
        "," => Token::Comma,
        "!" => Token::Not,
        "==" => Token::DoubleEquals,
        "=" => Token::Equals,
        ">" => Token::Greater,
        "<" => Token::Less,
        "!=" => Token::NotEquals,
        "(" => Token::Open,
        _ => return None,
    })
}

fn identifier(text: &str) -> (Token, String, usize) {
    let ends = |c: char| is_special(c) || matches!(c, ' ' | '\t' | '\r' | '\n' | '\0');
    let end = text.find(ends).unwrap_or(text.len());
    let word = &text[..end];
    let token = match word {
        "in" => Token::In,
        "notin" => Token::NotIn,
        _ => Token::Identifier,
    };
    (token, word.to_owned(), end)
}

struct Parser {
    tokens: Vec<(Token, String)>,
    position: usize,
}

impl Parser {
    /// The next token; `in` and `notin` are words wherever no operator is expected.
    fn look(&self) -> (Token, String) {
        match self.tokens.get(self.position) {
            Some((Token::In | Token::NotIn, text)) => (Token::Identifier, text.clone()),
            Some(token) => token.clone(),
            None => (Token::End, String::new()),
        }
    }

    fn take(&mut self) -> (Token, String) {
        let token = self.look();
        self.position += 1;
        token
    }

    fn parse(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            let (token, text) = self.look();
            match token {
                Token::Identifier | Token::Not => {}
                Token::End => return Ok(requirements),
                _ => {
                    return Err(format!(
                        "found '{text}', expected: !, identifier, or 'end of string'"
                    ));
                }
            }
            let requirement = self.requirement();
            requirements
                .push(requirement.map_err(|why| format!("unable to parse requirement: {why}"))?);
            let (token, text) = self.take();
            match token {
                Token::End => return Ok(requirements),
                Token::Comma => {
                    let (next, text) = self.look();
                    if next != Token::Identifier && next != Token::Not {
                        return Err(format!("found '{text}', expected: identifier after ','"));
                    }
                }
                _ => return Err(format!("found '{text}', expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut text) = self.take();
        let negated = token == Token::Not;
        if negated {
            (token, text) = self.take();
        }
        if token != Token::Identifier {
            return Err(format!("found '{text}', expected: identifier"));
        }
        let wrong = names::qualified_name(&text);
        if !wrong.is_empty() {
            return Err(FieldError::invalid("<nil>", text, wrong.join("; ")).to_string());
        }
        if negated {
            return Requirement::new(text, Operator::DoesNotExist, BTreeSet::new());
        }
        if matches!(self.look().0, Token::End | Token::Comma) {
            return Requirement::new(text, Operator::Exists, BTreeSet::new());
        }
        let (operator, set) = self.operator()?;
        let values = if set { self.values()? } else { self.exact_value()? };
        Requirement::new(text, operator, values)
    }

    /// The operator, and whether a set follows.
    fn operator(&mut self) -> Result<(Operator, bool), String> {
        let Some((token, text)) = self.tokens.get(self.position).cloned() else {
            return Err("found '', expected: in, notin, =, ==, !=, gt, lt".to_owned());
        };
        self.position += 1;
        Ok(match token {
            Token::In => (Operator::In, true),
            Token::NotIn => (Operator::NotIn, true),
            Token::Equals | Token::DoubleEquals => (Operator::In, false),
            Token::NotEquals => (Operator::NotIn, false),
            Token::Greater => (Operator::GreaterThan, false),
            Token::Less => (Operator::LessThan, false),
            _ => return Err(format!("found '{text}', expected: in, notin, =, ==, !=, gt, lt")),
        })
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let (token, text) = self.take();
        if token != Token::Open {
            return Err(format!("found '{text}' expected: '('"));
        }
        let (token, text) = self.look();
        match token {
            Token::Identifier | Token::Comma => {
                let values = self.identifiers()?;
                if self.take().0 != Token::Close {
                    return Err(format!("found '{text}', expected: ')'"));
                }
                Ok(values)
            }
            Token::Close => {
                self.position += 1;
                Ok(BTreeSet::from([String::new()]))
            }
            _ => Err(format!("found '{text}', expected: ',', ')' or identifier")),
        }
    }

    fn identifiers(&mut self) -> Result<BTreeSet<String>, String> {
        let mut values = BTreeSet::new();
        loop {
            let (token, text) = self.take();
            match token {
                Token::Identifier => {
                    values.insert(text);
                    match self.look() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                Token::Comma => {
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    match self.look().0 {
                        Token::Close => {
                            values.insert(String::new());
                            return Ok(values);
                        }
                        Token::Comma => {
                            self.position += 1;
                            values.insert(String::new());
                        }
                        _ => {}
                    }
                }
                _ => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
    }

    fn exact_value(&mut self) -> Result<BTreeSet<String>, String> {
        if matches!(self.look().0, Token::End | Token::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        match self.take() {
            (Token::Identifier, text) => Ok(BTreeSet::from([text])),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }
}
