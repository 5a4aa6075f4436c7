//! Label selectors: `a=b,c in (d,e),!f,g>5`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::name_validation;
use crate::schema::FieldError;
use crate::status::ApiError;

/// A parsed label selector. All requirements must match.
#[derive(Debug, Clone, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone)]
struct Requirement {
    key: String,
    operator: LabelOperator,
    values: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LabelOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LabelToken {
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
    /// Parses a selector. An empty one selects everything.
    ///
    /// # Errors
    /// 400 with the text of kube-apiserver.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let mut parser = LabelParser { tokens: scan(text), position: 0 };
        let requirements = parser.parse().map_err(ApiError::bad_request)?;
        Ok(Self { requirements })
    }

    /// A `LabelSelector` as in a spec. An empty one selects everything.
    ///
    /// # Errors
    /// The selector is malformed; the text says why.
    pub fn from_json(selector: &Value) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let values = BTreeSet::from([value.as_str().unwrap_or_default().to_owned()]);
            requirements.push(Requirement::new(key.clone(), LabelOperator::In, values)?);
        }
        for given in selector["matchExpressions"].as_array().into_iter().flatten() {
            let operator = match given["operator"].as_str() {
                Some("In") => LabelOperator::In,
                Some("NotIn") => LabelOperator::NotIn,
                Some("Exists") => LabelOperator::Exists,
                Some("DoesNotExist") => LabelOperator::DoesNotExist,
                other => return Err(format!("unknown operator {}", other.unwrap_or_default())),
            };
            let values = given["values"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(ToOwned::to_owned).collect();
            let key = given["key"].as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement::new(key, operator, values)?);
        }
        Ok(Self { requirements })
    }

    /// Whether the labels of an object match.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        self.requirements.iter().all(|requirement| {
            let label = labels.and_then(|labels| labels.get(&requirement.key));
            requirement.matches(label.and_then(Value::as_str))
        })
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Requirement {
    fn new(key: String, operator: LabelOperator, values: BTreeSet<String>) -> Result<Self, String> {
        let mut wrong = Vec::new();
        if matches!(operator, LabelOperator::GreaterThan | LabelOperator::LessThan) {
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
            let errors = name_validation::validate_label_value(value);
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

    fn matches(&self, label: Option<&str>) -> bool {
        match (self.operator, label) {
            (LabelOperator::In, Some(value)) => self.values.contains(value),
            (LabelOperator::NotIn, Some(value)) => !self.values.contains(value),
            (LabelOperator::Exists, label) => label.is_some(),
            (LabelOperator::DoesNotExist, label) => label.is_none(),
            (LabelOperator::GreaterThan | LabelOperator::LessThan, Some(value)) => {
                self.matches_number(value)
            }
            (LabelOperator::NotIn, None) => true,
            (LabelOperator::In | LabelOperator::GreaterThan | LabelOperator::LessThan, None) => {
                false
            }
        }
    }

    fn matches_number(&self, value: &str) -> bool {
        let bound = self.values.first().and_then(|bound| go_integer(bound));
        match (go_integer(value), bound) {
            (Some(value), Some(bound)) if self.operator == LabelOperator::GreaterThan => {
                value > bound
            }
            (Some(value), Some(bound)) => value < bound,
            _ => false,
        }
    }
}

fn go_integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

fn scan(text: &str) -> Vec<(LabelToken, String)> {
    let mut rest = text;
    let mut tokens = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = rest.chars().next().filter(|c| *c != '\0') else {
            tokens.push((LabelToken::End, String::new()));
            return tokens;
        };
        let (token, literal, length) =
            if is_special(first) { scan_operator(rest) } else { scan_identifier(rest) };
        tokens.push((token, literal));
        rest = &rest[length..];
    }
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

/// The longest operator at the start of the text.
fn scan_operator(text: &str) -> (LabelToken, String, usize) {
    let two = text.get(..2).and_then(operator).map(|token| (token, 2));
    let one = || text.get(..1).and_then(operator).map(|token| (token, 1));
    let (token, length) = two.or_else(one).unwrap_or((LabelToken::End, 1));
    (token, text[..length].to_owned(), length)
}

fn operator(text: &str) -> Option<LabelToken> {
    Some(match text {
        ")" => LabelToken::Close,
        "," => LabelToken::Comma,
        "!" => LabelToken::Not,
        "==" => LabelToken::DoubleEquals,
        "=" => LabelToken::Equals,
        ">" => LabelToken::Greater,
        "<" => LabelToken::Less,
        "!=" => LabelToken::NotEquals,
        "(" => LabelToken::Open,
        _ => return None,
    })
}

fn scan_identifier(text: &str) -> (LabelToken, String, usize) {
    let ends = |c: char| is_special(c) || matches!(c, ' ' | '\t' | '\r' | '\n' | '\0');
    let end = text.find(ends).unwrap_or(text.len());
    let word = &text[..end];
    let token = match word {
        "in" => LabelToken::In,
        "notin" => LabelToken::NotIn,
        _ => LabelToken::Identifier,
    };
    (token, word.to_owned(), end)
}

struct LabelParser {
    tokens: Vec<(LabelToken, String)>,
    position: usize,
}

impl LabelParser {
    /// The next token. `in` and `notin` are identifiers where no operator is expected.
    fn peek(&self) -> (LabelToken, String) {
        match self.tokens.get(self.position) {
            Some((LabelToken::In | LabelToken::NotIn, text)) => {
                (LabelToken::Identifier, text.clone())
            }
            Some(token) => token.clone(),
            None => (LabelToken::End, String::new()),
        }
    }

    fn next_token(&mut self) -> (LabelToken, String) {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn parse(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            let (token, text) = self.peek();
            match token {
                LabelToken::Identifier | LabelToken::Not => {}
                LabelToken::End => return Ok(requirements),
                _ => {
                    return Err(format!(
                        "found '{text}', expected: !, identifier, or 'end of string'"
                    ));
                }
            }
            let requirement = self.requirement();
            requirements
                .push(requirement.map_err(|why| format!("unable to parse requirement: {why}"))?);
            let (token, text) = self.next_token();
            match token {
                LabelToken::End => return Ok(requirements),
                LabelToken::Comma => {
                    let (next, text) = self.peek();
                    if next != LabelToken::Identifier && next != LabelToken::Not {
                        return Err(format!("found '{text}', expected: identifier after ','"));
                    }
                }
                _ => return Err(format!("found '{text}', expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut text) = self.next_token();
        let negated = token == LabelToken::Not;
        if negated {
            (token, text) = self.next_token();
        }
        if token != LabelToken::Identifier {
            return Err(format!("found '{text}', expected: identifier"));
        }
        let wrong = name_validation::validate_qualified_name(&text);
        if !wrong.is_empty() {
            return Err(FieldError::invalid("<nil>", text, wrong.join("; ")).to_string());
        }
        if negated {
            return Requirement::new(text, LabelOperator::DoesNotExist, BTreeSet::new());
        }
        if matches!(self.peek().0, LabelToken::End | LabelToken::Comma) {
            return Requirement::new(text, LabelOperator::Exists, BTreeSet::new());
        }
        let (operator, set) = self.operator()?;
        let values = if set { self.values()? } else { self.exact_value()? };
        Requirement::new(text, operator, values)
    }

    /// The operator, and whether a set follows.
    fn operator(&mut self) -> Result<(LabelOperator, bool), String> {
        let Some((token, text)) = self.tokens.get(self.position).cloned() else {
            return Err("found '', expected: in, notin, =, ==, !=, gt, lt".to_owned());
        };
        self.position += 1;
        Ok(match token {
            LabelToken::In => (LabelOperator::In, true),
            LabelToken::NotIn => (LabelOperator::NotIn, true),
            LabelToken::Equals | LabelToken::DoubleEquals => (LabelOperator::In, false),
            LabelToken::NotEquals => (LabelOperator::NotIn, false),
            LabelToken::Greater => (LabelOperator::GreaterThan, false),
            LabelToken::Less => (LabelOperator::LessThan, false),
            _ => return Err(format!("found '{text}', expected: in, notin, =, ==, !=, gt, lt")),
        })
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let (token, text) = self.next_token();
        if token != LabelToken::Open {
            return Err(format!("found '{text}' expected: '('"));
        }
        let (token, text) = self.peek();
        match token {
            LabelToken::Identifier | LabelToken::Comma => {
                let values = self.identifiers()?;
                if self.next_token().0 != LabelToken::Close {
                    return Err(format!("found '{text}', expected: ')'"));
                }
                Ok(values)
            }
            LabelToken::Close => {
                self.position += 1;
                Ok(BTreeSet::from([String::new()]))
            }
            _ => Err(format!("found '{text}', expected: ',', ')' or identifier")),
        }
    }

    fn identifiers(&mut self) -> Result<BTreeSet<String>, String> {
        let mut values = BTreeSet::new();
        loop {
            let (token, text) = self.next_token();
            match token {
                LabelToken::Identifier => {
                    values.insert(text);
                    match self.peek() {
                        (LabelToken::Comma, _) => {}
                        (LabelToken::Close, _) => return Ok(values),
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                LabelToken::Comma => {
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    match self.peek().0 {
                        LabelToken::Close => {
                            values.insert(String::new());
                            return Ok(values);
                        }
                        LabelToken::Comma => {
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
        if matches!(self.peek().0, LabelToken::End | LabelToken::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        match self.next_token() {
            (LabelToken::Identifier, text) => Ok(BTreeSet::from([text])),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }
}
