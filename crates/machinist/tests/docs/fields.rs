//! `docs/reference/fields.md`, generated from the CRDs.

use crate::docs::assert_up_to_date;
use machinist_core::api::crds::crds;
use serde_json::Value;
use std::fmt::Write as _;

const HEAD: &str = "# Fields\n\n\
    Generated from the CRDs by `make reference`; `deploy/crds` has them in full, `machinist crds` prints them.\n\
    `[]` is a list, `{}` a map, `*` a required field. `kubectl explain` works on a hub and on a cluster alike.\n";

/// Rows for the fields of a schema, and for those below.
fn rows(schema: &Value, path: &str, page: &mut String) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let fields = schema["properties"].as_object().cloned().unwrap_or_default();
    for (name, field) in &fields {
        let is_top = path.is_empty();
        if is_top && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            continue;
        }
        let here = if is_top { name.clone() } else { format!("{path}.{name}") };
        let star = if required.contains(&Value::from(name.as_str())) { "*" } else { "" };
        let (kind, inner, suffix) = kind(field);
        let about = about(field);
        let _ = writeln!(page, "| `{here}`{star} | {kind} | {about} |");
        rows(inner, &format!("{here}{suffix}"), page);
    }
}

/// The type of a field, the schema of its items, and the suffix of their path.
fn kind(field: &Value) -> (String, &Value, &'static str) {
    let plain = |schema: &Value| match schema["type"].as_str() {
        _ if schema["x-kubernetes-int-or-string"] == true => "number or text".to_owned(),
        Some("string") => schema["format"].as_str().unwrap_or("text").to_owned(),
        Some("integer" | "number") => "number".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some(other) => other.to_owned(),
        None => "anything".to_owned(),
    };
    if field["type"] == "array" {
        let items = &field["items"];
        return (format!("list of {}", plain(items)), items, "[]");
    }
    let values = &field["additionalProperties"];
    if values.is_object() {
        return (format!("map of {}", plain(values)), values, "{}");
    }
    (plain(field), field, "")
}

/// What a field is for, its choices and its default.
fn about(field: &Value) -> String {
    let mut about = field["description"].as_str().unwrap_or_default().to_owned();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Some(choices) = field["enum"].as_array() {
        let choices: Vec<String> = choices
            .iter()
            .filter(|one| !one.is_null())
            .map(|one| format!("`{}`", text(one)))
            .collect();
        let _ = write!(about, " One of {}.", choices.join(", "));
    }
    if let Some(default) = field.get("default") {
        let _ = write!(about, " Default `{}`.", text(default));
    }
    let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
    // Rustdoc links and code marks are removed, and angle brackets are escaped.
    about.replace('|', "\\|").replace('<', "&lt;").replace("[`", "`").replace("`]", "`")
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for crd in crds() {
        let crd = serde_json::to_value(crd).unwrap();
        let names = &crd["spec"]["names"];
        let version = &crd["spec"]["versions"][0];
        let (kind, group) =
            (names["kind"].as_str().unwrap(), crd["spec"]["group"].as_str().unwrap());
        let _ = write!(page, "\n## {kind}\n\n`{group}/{}`", version["name"].as_str().unwrap());
        let short: Vec<&str> = names["shortNames"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if !short.is_empty() {
            let _ = write!(page, ", short {}", short.join(", "));
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        let _ = write!(page, "\n\n| field | type | what it is |\n|---|---|---|\n");
        rows(schema, "", &mut page);
    }
    page
}

#[test]
fn fields_page_is_up_to_date() {
    assert_up_to_date("docs/reference/fields.md", &page());
}
