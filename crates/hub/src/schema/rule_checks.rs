//! What can be said of a rule without an object: whether it compiles, which names and fields it uses.
//!
//! Called when a rule is compiled, and by the validation of definitions for its errors.

use cel::common::ast::{Expr, IdedExpr};
use serde_json::Value;

use super::SchemaError;
use super::validation_rules::{compile, subexpressions};

/// What a rule of a new schema is found to be.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CheckedRule {
    /// Why the rule cannot be compiled.
    pub rule_error: Option<String>,
    /// Why the expression of its message cannot be compiled.
    pub message_error: Option<String>,
    /// Whether it compares with the old value.
    pub uses_old_self: bool,
    /// The fields that it reads: `self.a.b` is `[a, b]`, with names as in CEL.
    pub fields: Vec<Vec<String>>,
}

/// Compiles a rule for its errors.
#[must_use]
pub fn check_rule(rule: &Value) -> CheckedRule {
    let why = |error: SchemaError| match error {
        SchemaError::Rule { why, .. } => format!("compilation failed: {why}"),
        other => other.to_string(),
    };
    let text = |key: &str| rule[key].as_str().unwrap_or_default().trim().to_owned();
    let mut fields = Vec::new();
    let (rule_error, uses_old_self) = match compile(&text("rule"), "") {
        Ok(mut expression) => {
            let uses_old_self = expression.references().has_variable("oldSelf");
            let not_bool = "cel expression must evaluate to a bool".to_owned();
            let error = is_number(&expression).then_some(not_bool);
            collect_fields(&mut expression, &mut fields);
            (error, uses_old_self)
        }
        Err(error) => (Some(why(error)), false),
    };
    let message = text("messageExpression");
    let message_error =
        if message.is_empty() { None } else { compile(&message, "").err().map(why) };
    CheckedRule { rule_error, message_error, uses_old_self, fields }
}

/// Whether an expression is surely a number or a text.
fn is_number(expression: &IdedExpr) -> bool {
    const OPERATORS: [&str; 7] = ["_+_", "_-_", "_*_", "_/_", "_%_", "-_", "size"];
    matches!(&expression.expr, Expr::Call(call) if OPERATORS.contains(&call.func_name.as_str()))
}

fn collect_fields(expression: &mut IdedExpr, fields: &mut Vec<Vec<String>>) {
    match field_path(expression) {
        Some(path) if !path.is_empty() => fields.push(path),
        _ => {
            for part in subexpressions(expression) {
                collect_fields(part, fields);
            }
        }
    }
}

fn field_path(expression: &IdedExpr) -> Option<Vec<String>> {
    match &expression.expr {
        Expr::Ident(name) if name == "self" => Some(Vec::new()),
        Expr::Select(select) => {
            let mut path = field_path(&select.operand)?;
            path.push(select.field.clone());
            Some(path)
        }
        _ => None,
    }
}

/// What a rule may name besides the variables of its loops: the values, namespaces of functions, and types.
const KNOWN_NAMES: [&str; 20] = [
    "self",
    "oldSelf",
    "optional",
    "sets",
    "format",
    "ip",
    "lists",
    "strings",
    "cel",
    "bool",
    "bytes",
    "double",
    "duration",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "timestamp",
    "uint",
];

/// The first name that nothing has.
pub(super) fn unknown_name(expression: &mut IdedExpr, bound: &mut Vec<String>) -> Option<String> {
    match &mut expression.expr {
        Expr::Ident(name) => {
            let is_known = name.starts_with(|c: char| !c.is_ascii_alphabetic() && c != '_')
                || KNOWN_NAMES.contains(&name.as_str())
                || bound.contains(name);
            (!is_known).then(|| name.clone())
        }
        Expr::Comprehension(comprehension) => {
            let outside = unknown_name(&mut comprehension.iter_range, bound)
                .or_else(|| unknown_name(&mut comprehension.accu_init, bound));
            if outside.is_some() {
                return outside;
            }
            let before = bound.len();
            bound.push(comprehension.iter_var.clone());
            bound.push(comprehension.accu_var.clone());
            bound.extend(comprehension.iter_var2.clone());
            let inside = unknown_name(&mut comprehension.loop_cond, bound)
                .or_else(|| unknown_name(&mut comprehension.loop_step, bound))
                .or_else(|| unknown_name(&mut comprehension.result, bound));
            bound.truncate(before);
            inside
        }
        _ => subexpressions(expression).into_iter().find_map(|part| unknown_name(part, bound)),
    }
}
