//! Compiles and runs the CEL rules of a schema (`x-kubernetes-validations`).

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::objects::OptionalValue;
use cel::{Context, ExecutionError, Value as Cel};
use serde_json::Value;
use std::sync::Arc;

use super::cel_env::{self, CEL_ENV};
use super::cel_value::{convert, convert_root};
use super::node::{AdditionalProperties, SchemaNode};
use super::validate::{old_field, old_items};
use super::{FieldError, SchemaError, child_path, display_path};
use super::{cel_library, rule_checks};

/// How many item combinations all rules of an object may visit together. Long texts count more.
const MAX_EVALUATION_STEPS: usize = 10_000_000;
/// How long a text is that counts twice.
const TEXT_BYTES_PER_STEP: usize = 1024;

/// A compiled rule.
#[derive(Debug)]
pub(super) struct ValidationRule {
    text: String,
    message: String,
    field_path: String,
    reason: String,
    optional_old_self: bool,
    uses_old_self: bool,
    /// Nesting depth of loops.
    loop_depth: u32,
    lists: ListSources,
    expression: IdedExpr,
    message_expression: Option<IdedExpr>,
}

impl ValidationRule {
    pub(super) fn compile(rule: &Value, path: &str) -> Result<Self, SchemaError> {
        let text = |key: &str| rule[key].as_str().unwrap_or_default().trim().to_owned();
        let source = text("rule");
        let expression = compile(&source, path)?;
        let message = text("messageExpression");
        let message_expression =
            if message.is_empty() { None } else { Some(compile(&message, path)?) };
        Ok(Self {
            message: text("message"),
            field_path: text("fieldPath").trim_start_matches('.').to_owned(),
            reason: text("reason"),
            optional_old_self: rule["optionalOldSelf"] == true,
            uses_old_self: expression.references().has_variable("oldSelf"),
            loop_depth: loop_depth(&expression),
            lists: ListSources::of(&mut expression.clone()),
            text: source,
            expression,
            message_expression,
        })
    }

    fn label(&self) -> &str {
        if self.message.is_empty() { &self.text } else { &self.message }
    }

    /// The message for an object that breaks the rule.
    fn error_message(&self, context: &Context<'_, '_>) -> String {
        let computed =
            self.message_expression.as_ref().and_then(|expression| {
                match Cel::resolve(expression, context).ok()? {
                    Cel::String(text) => Some(text.trim().to_owned()),
                    _ => None,
                }
            });
        match computed {
            Some(text) if !text.is_empty() && text.len() <= 5 << 10 && !text.contains('\n') => text,
            _ if self.message.is_empty() => format!("failed rule: {}", self.text),
            _ => self.message.clone(),
        }
    }

    fn error(&self, node: &SchemaNode, path: &str, context: &Context<'_, '_>) -> FieldError {
        let field = match self.field_path.as_str() {
            "" => path.to_owned(),
            inside => child_path(path, inside),
        };
        let field = display_path(&field);
        let sentence = self.error_message(context);
        match self.reason.as_str() {
            "FieldValueForbidden" => FieldError::forbidden(field, sentence),
            "FieldValueRequired" => FieldError::required(field, sentence),
            "FieldValueDuplicate" => FieldError::duplicate(field, node.type_name.as_str()),
            _ => FieldError::invalid(field, node.type_name.as_str(), sentence),
        }
    }
}

pub(super) fn compile(source: &str, path: &str) -> Result<IdedExpr, SchemaError> {
    let wrong =
        |why: String| SchemaError::Rule { path: path.to_owned(), rule: source.to_owned(), why };
    let compiled = CEL_ENV.compile(source).map_err(|error| wrong(error.to_string()))?;
    let mut expression = compiled.expression().clone();
    let mut unknown = None;
    rewrite(&mut expression, &mut unknown);
    let unknown = unknown.or_else(|| rule_checks::unknown_name(&mut expression, &mut Vec::new()));
    match unknown {
        Some(name) => Err(wrong(format!("undeclared reference to '{name}'"))),
        None => Ok(expression),
    }
}

/// Known functions. A call of any other would fail only at run time.
const KNOWN_FUNCTIONS: [&str; 44] = [
    "matches",
    "find",
    "findAll",
    "isURL",
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "string",
    "int",
    "uint",
    "double",
    "bytes",
    "bool",
    "dyn",
    "type",
    "timestamp",
    "duration",
    "hasValue",
    "value",
    "orValue",
    "or",
    "optMap",
    "optFlatMap",
    "charAt",
    "indexOf",
    "lastIndexOf",
    "join",
    "lowerAscii",
    "upperAscii",
    "trim",
    "replace",
    "split",
    "substring",
    "format",
    "reverse",
    "getFullYear",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getDate",
    "getMonth",
    "distinct",
    "sort",
];

/// Redirects `matches` to ours and finds unknown functions.
fn rewrite(expression: &mut IdedExpr, unknown: &mut Option<String>) {
    if let Expr::Call(call) = &mut expression.expr {
        let word = call.func_name.starts_with(|c: char| c.is_ascii_alphabetic());
        let name = call.func_name.as_str();
        if word && !KNOWN_FUNCTIONS.contains(&name) && !cel_library::FUNCTIONS.contains(&name) {
            *unknown = Some(call.func_name.clone());
        }
        if call.func_name == "matches" {
            call.func_name = cel_env::MATCHES_FUNCTION.to_owned();
        }
    }
    for part in subexpressions(expression) {
        rewrite(part, unknown);
    }
}

pub(super) fn subexpressions(expression: &mut IdedExpr) -> Vec<&mut IdedExpr> {
    match &mut expression.expr {
        Expr::Call(call) => call.target.as_deref_mut().into_iter().chain(&mut call.args).collect(),
        Expr::Comprehension(loop_) => vec![
            &mut loop_.iter_range,
            &mut loop_.accu_init,
            &mut loop_.loop_cond,
            &mut loop_.loop_step,
            &mut loop_.result,
        ],
        Expr::List(list) => list.elements.iter_mut().collect(),
        Expr::Map(map) => map
            .entries
            .iter_mut()
            .flat_map(|entry| match &mut entry.expr {
                EntryExpr::MapEntry(entry) => vec![&mut entry.key, &mut entry.value],
                EntryExpr::StructField(field) => vec![&mut field.value],
            })
            .collect(),
        Expr::Select(select) => vec![select.operand.as_mut()],
        _ => Vec::new(),
    }
}

fn loop_depth(expression: &IdedExpr) -> u32 {
    let mut copy = expression.clone();
    let own = u32::from(matches!(copy.expr, Expr::Comprehension(_)));
    own + subexpressions(&mut copy).into_iter().map(|part| loop_depth(part)).max().unwrap_or(0)
}

/// Functions that make lists from texts.
const LIST_FUNCTIONS: [&str; 2] = ["split", "findAll"];

/// Where the lists of a rule come from, besides the object.
#[derive(Debug, Default, Clone, Copy)]
struct ListSources {
    /// The length of the longest list that is written in the rule.
    longest_literal: usize,
    /// Whether a text becomes a list, which has at most as many items as the text has bytes.
    has_texts: bool,
}

impl ListSources {
    fn of(expression: &mut IdedExpr) -> Self {
        let mut found = match &expression.expr {
            Expr::List(list) => Self { longest_literal: list.elements.len(), has_texts: false },
            Expr::Call(call) => {
                let has_texts = LIST_FUNCTIONS.contains(&call.func_name.as_str());
                Self { longest_literal: 0, has_texts }
            }
            _ => Self::default(),
        };
        for part in subexpressions(expression) {
            let inside = Self::of(part);
            found.longest_literal = found.longest_literal.max(inside.longest_literal);
            found.has_texts |= inside.has_texts;
        }
        found
    }

    /// How many items a loop of the rule visits at most.
    fn widest(self, widest_in_object: usize, longest_text: usize) -> usize {
        let from_texts = if self.has_texts { longest_text } else { 0 };
        widest_in_object.max(self.longest_literal).max(from_texts)
    }
}

/// Runs all rules on an object.
pub(super) fn validate(root: &SchemaNode, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut budget = RuleBudget { left: Some(MAX_EVALUATION_STEPS) };
    walk(root, RuleScope { new, old, path: "", root: true }, &mut budget, &mut errors);
    errors
}

/// What the rules of an object may still cost; `None` after a rule that costs more.
struct RuleBudget {
    left: Option<usize>,
}

impl RuleBudget {
    fn take(&mut self, steps: usize) -> bool {
        self.left = self.left.and_then(|left| left.checked_sub(steps));
        self.left.is_some()
    }
}

#[derive(Clone, Copy)]
struct RuleScope<'a> {
    new: &'a Value,
    old: Option<&'a Value>,
    path: &'a str,
    root: bool,
}

fn walk(
    node: &SchemaNode,
    place: RuleScope<'_>,
    budget: &mut RuleBudget,
    errors: &mut Vec<FieldError>,
) {
    if place.new.is_null() || !node.has_rules || budget.left.is_none() {
        return;
    }
    evaluate_rules(node, place, budget, errors);
    for part in &node.all_of {
        walk(part, place, budget, errors);
    }
    match place.new {
        Value::Object(fields) => {
            for (name, value) in fields {
                let old = old_field(place.old, name);
                let (part, path) = match (node.properties.get(name), &node.additional) {
                    (Some(part), _) => (part, child_path(place.path, name)),
                    (None, AdditionalProperties::Schema(part)) => {
                        (part.as_ref(), format!("{}[{name}]", place.path))
                    }
                    (None, _) => continue,
                };
                let place = RuleScope { new: value, old, path: &path, root: false };
                walk(part, place, budget, errors);
            }
        }
        Value::Array(items) => {
            let Some(part) = node.items.as_deref().filter(|part| part.has_rules) else { return };
            let before = old_items(node, place.old);
            for (index, item) in items.iter().enumerate() {
                let old = node.item_key(item).and_then(|key| before.get(&key).copied());
                let path = format!("{}[{index}]", place.path);
                let place = RuleScope { new: item, old, path: &path, root: false };
                walk(part, place, budget, errors);
            }
        }
        _ => {}
    }
}

/// Runs the rules of one part of an object.
fn evaluate_rules(
    node: &SchemaNode,
    place: RuleScope<'_>,
    budget: &mut RuleBudget,
    errors: &mut Vec<FieldError>,
) {
    if node.rules.is_empty() {
        return;
    }
    let old = place.old.filter(|old| !old.is_null());
    let bind = |value: &Value| {
        if place.root { convert_root(node, value) } else { convert(node, value) }
    };
    let mut context = Context::with_env(Arc::clone(&CEL_ENV));
    context.add_variable_from_value("self", bind(place.new));
    let unchanged = old == Some(place.new);
    let old_self = old.map(bind);
    let widest = max_collection_len(place.new).max(old.map_or(0, max_collection_len));
    let longest = max_text_len(place.new).max(old.map_or(0, max_text_len));
    for rule in &node.rules {
        if rule.uses_old_self && old_self.is_none() && !rule.optional_old_self {
            continue;
        }
        if rule.optional_old_self {
            let optional = old_self.clone().map_or_else(OptionalValue::none, OptionalValue::of);
            context.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(optional)));
        } else if let Some(old_self) = &old_self {
            context.add_variable_from_value("oldSelf", old_self.clone());
        }
        let invalid = |detail: String| {
            FieldError::invalid(display_path(place.path), node.type_name.as_str(), detail)
        };
        let widest = rule.lists.widest(widest, longest);
        let visits = widest.saturating_pow(rule.loop_depth).max(1);
        if !budget.take(visits.saturating_mul(1 + longest / TEXT_BYTES_PER_STEP)) {
            errors.push(invalid(
                "validation failed due to running out of cost budget, no further validation \
                 rules will be run"
                    .into(),
            ));
            return;
        }
        match Cel::resolve(&rule.expression, &context) {
            Ok(Cel::Bool(true)) => {}
            // An unchanged part may keep violating a rule that it violated before.
            Ok(_) if unchanged && !rule.uses_old_self => {}
            Ok(_) => errors.push(rule.error(node, place.path, &context)),
            Err(error) => errors.push(invalid(evaluation_error(&error, rule))),
        }
    }
}

/// The length of the longest list or map anywhere in a value.
fn max_collection_len(value: &Value) -> usize {
    match value {
        Value::Array(items) => {
            items.iter().map(max_collection_len).max().unwrap_or(0).max(items.len())
        }
        Value::Object(fields) => {
            fields.values().map(max_collection_len).max().unwrap_or(0).max(fields.len())
        }
        _ => 0,
    }
}

/// The length of the longest text anywhere in a value.
fn max_text_len(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(max_text_len).max().unwrap_or(0),
        Value::Object(fields) => fields.values().map(max_text_len).max().unwrap_or(0),
        _ => 0,
    }
}

/// Returns why a rule could not be evaluated.
fn evaluation_error(error: &ExecutionError, rule: &ValidationRule) -> String {
    let what = match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => {
            format!("index out of bounds: {index}")
        }
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::NoSuchOverload(_) => {
            return format!(
                "'no such overload': call arguments did not match a supported operator, function \
                 or macro signature for rule: {}",
                rule.label()
            );
        }
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    format!("{what} evaluating rule: {}", rule.label())
}
