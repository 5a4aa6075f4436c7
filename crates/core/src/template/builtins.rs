//! Go's built-in functions where the engine's differ: `printf` with lists and maps, `index` of nil,
//! and escaping of several values.

use gotmpl::{FuncMap, Template, Value};

use super::functions::{FunctionResult, function};
use super::template_data;

/// Replaces the engine's functions.
pub(super) fn add_builtins(map: &mut FuncMap) {
    map.insert("printf".to_owned(), function("printf", printf));
    map.insert("index".to_owned(), function("index", index));
    map.insert("html".to_owned(), function("html", |all| escaped(all, gotmpl::html_escape)));
    map.insert("js".to_owned(), function("js", |all| escaped(all, gotmpl::js_escape)));
    map.insert("urlquery".to_owned(), function("urlquery", |all| escaped(all, gotmpl::url_encode)));
}

fn escaped(arguments: &[Value], escape: fn(&str) -> String) -> FunctionResult {
    if let [Value::Nil] = arguments {
        return Ok(escape("<no value>").into());
    }
    Ok(escape(&engine_builtin("print", arguments)?).into())
}

fn index(arguments: &[Value]) -> FunctionResult {
    let Some((collection, keys)) = arguments.split_first() else {
        return Err("wrong number of args for index: want at least 1 got 0".to_owned());
    };
    if matches!(collection, Value::Nil) {
        return Err("index of untyped nil".to_owned());
    }
    let mut found = collection.clone();
    for key in keys {
        found = found.index(key).map_err(|error| error.to_string())?;
    }
    Ok(found)
}

/// The engine formats single values; lists and maps are formatted here, as Go does.
fn printf(arguments: &[Value]) -> FunctionResult {
    let Some((Value::String(format), values)) = arguments.split_first() else {
        return Err("printf wants a format that is a string".to_owned());
    };
    let is_composite = |value: &Value| matches!(value, Value::List(_) | Value::Map(_));
    if !values.iter().any(is_composite) || format.contains(['*', '[']) {
        return Ok(engine_builtin("printf", arguments)?.into());
    }
    let mut values = values.iter();
    let (mut out, mut given) = (String::new(), Vec::new());
    for piece in split_format(format) {
        let takes_value = piece.starts_with('%') && !piece.ends_with('%');
        let value = if takes_value { values.next() } else { None };
        match value {
            Some(value) if is_composite(value) && !piece.ends_with('T') => {
                out.push_str("%s");
                given.push(composite(piece, value)?.into());
            }
            Some(value) => {
                out.push_str(piece);
                given.push(value.clone());
            }
            None => out.push_str(piece),
        }
    }
    given.extend(values.cloned());
    given.insert(0, out.into());
    Ok(engine_builtin("printf", &given)?.into())
}

/// Formats every value of a list or map with the same directive.
fn composite(directive: &str, value: &Value) -> Result<String, String> {
    let one = |value: &Value| composite(directive, value);
    match value {
        Value::List(items) => {
            let items: Result<Vec<String>, String> = items.iter().map(one).collect();
            Ok(format!("[{}]", items?.join(" ")))
        }
        Value::Map(entries) => {
            let entries: Result<Vec<String>, String> = entries
                .iter()
                .map(|(key, value)| Ok(format!("{}:{}", one(&key.clone().into())?, one(value)?)))
                .collect();
            Ok(format!("map[{}]", entries?.join(" ")))
        }
        // Inside a list or map, Go prints nil the same for every verb.
        Value::Nil => Ok("<nil>".to_owned()),
        single => engine_builtin("printf", &[directive.into(), single.clone()]),
    }
}

/// Splits a format into text and directives.
fn split_format(format: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        if at > 0 {
            pieces.push(&rest[..at]);
        }
        rest = &rest[at..];
        let flags = rest[1..].find(|c: char| !"+-# 0123456789.".contains(c));
        let verb =
            flags.and_then(|at| rest[at + 1..].chars().next().map(|c| at + 1 + c.len_utf8()));
        let (directive, after) = rest.split_at(verb.unwrap_or(rest.len()));
        pieces.push(directive);
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(rest);
    }
    pieces
}

/// Calls the engine's own function.
fn engine_builtin(name: &str, values: &[Value]) -> Result<String, String> {
    let arguments: String = (0..values.len()).map(|at| format!(" (index . {at})")).collect();
    Template::new(name)
        .parse(&format!("{{{{{name}{arguments}}}}}"))
        .and_then(|template| {
            template.execute_to_string(&template_data::list(values.iter().cloned()))
        })
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_split_at_its_directives() {
        for (format, expected) in [
            ("a%sb", vec!["a", "%s", "b"]),
            ("%-5.2f%%|", vec!["%-5.2f", "%%", "|"]),
            ("100%", vec!["100", "%"]),
            ("日%本d", vec!["日", "%本", "d"]),
            ("", vec![]),
        ] {
            assert_eq!(split_format(format), expected, "{format:?}");
        }
    }
}
