//! Renders one template.
//!
//! The engine is the crate `gotmpl`; `tests/oracle_templates.rs` compares it with Go's own. Where it
//! is more lenient than Go, `syntax` checks first; where its functions differ, `builtins` replaces
//! them. Its data has maps only, so Go's structs are maps for which a missing key is an error. Maps
//! that are maps in Go too get the keys that the template names, with an empty value.

use std::collections::BTreeMap;
use std::sync::Arc;

use gotmpl::parse::{Expr, ListNode, Node, PipeNode};
use gotmpl::{MissingKey, Template, Value};

use super::error::TemplateError;
use super::functions::TemplateFunctions;
use super::syntax;
use super::template_data::MAPS;

/// Renders a template. A missing field is an error.
pub(super) fn render(
    file: &str,
    text: &str,
    data: &Value,
    functions: &TemplateFunctions,
) -> Result<String, TemplateError> {
    let template = parse(file, text, functions, MissingKey::Error)?;
    execute(file, &template, &with_named_keys(&template, data))
}

/// Renders a template with plain data, in which a missing key has no value.
pub(super) fn render_plain(
    text: &str,
    data: &Value,
    functions: &TemplateFunctions,
) -> Result<String, TemplateError> {
    const NAME: &str = "t";
    execute(NAME, &parse(NAME, text, functions, MissingKey::Invalid)?, data)
}

fn parse(
    file: &str,
    text: &str,
    functions: &TemplateFunctions,
    missing_key: MissingKey,
) -> Result<Template, TemplateError> {
    let wrong = |message: String| TemplateError::Parse { file: file.to_owned(), message };
    syntax::check(text).map_err(wrong)?;
    let template = functions.add_to(Template::new(file).missing_key(missing_key)).parse(text);
    template.map_err(|error| wrong(error.to_string()))
}

fn execute(file: &str, template: &Template, data: &Value) -> Result<String, TemplateError> {
    template.execute_to_string(data).map_err(|error| TemplateError::Execute {
        file: file.to_owned(),
        message: error.to_string(),
    })
}

/// Adds the map keys that the template names to the data.
fn with_named_keys(template: &Template, data: &Value) -> Value {
    let mut named = Vec::new();
    for name in template.templates() {
        if let Some(tree) = template.lookup(name) {
            collect(tree, &mut named);
        }
    }
    let Value::Map(fields) = data else { return data.clone() };
    let mut fields = BTreeMap::clone(fields);
    for (map, key) in named {
        if let Some(Value::Map(entries)) = fields.get_mut(map.as_str()) {
            Arc::make_mut(entries).entry(key.as_str().into()).or_insert(Value::Nil);
        }
    }
    fields.into()
}

/// The map keys that a part of a template names: `.Images.foo`, `$.Images.foo`.
fn collect(list: &ListNode, named: &mut Vec<(String, String)>) {
    for node in &list.nodes {
        match node {
            Node::List(list) => collect(list, named),
            Node::Define(define) => collect(&define.body, named),
            Node::Action(action) => collect_pipe(&action.pipe, named),
            Node::Template(call) => call.pipe.iter().for_each(|pipe| collect_pipe(pipe, named)),
            Node::If(branch) | Node::Range(branch) | Node::With(branch) => {
                collect_pipe(&branch.pipe, named);
                collect(&branch.body, named);
                branch.else_body.iter().for_each(|list| collect(list, named));
            }
            Node::Text(_) | Node::Break(_) | Node::Continue(_) => {}
        }
    }
}

fn collect_pipe(pipe: &PipeNode, named: &mut Vec<(String, String)>) {
    for argument in pipe.commands.iter().flat_map(|command| &command.args) {
        collect_expression(argument, named);
    }
}

fn collect_expression(expression: &Expr, named: &mut Vec<(String, String)>) {
    match expression {
        Expr::Field(_, fields) | Expr::Variable(_, _, fields) => {
            if let [map, key, ..] = fields.as_slice()
                && MAPS.contains(&map.as_str())
            {
                named.push((map.to_string(), key.to_string()));
            }
        }
        Expr::Pipe(_, pipe) => collect_pipe(pipe, named),
        Expr::Chain(_, inner, _) => collect_expression(inner, named),
        _ => {}
    }
}
