//! An object as text for people: metadata, spec, status, conditions and events.
//!
//! Long contents are shortened. Only the size of secrets is shown.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinist_core::go::yaml::to_go_yaml;
use machinist_core::ignition::contents;
use machinist_core::ignition::schema::Resource;
use machinist_core::secrets::is_secret_file;
use serde_json::{Map, Value};

use super::table::{TablePrinter, escape_control};
use crate::kubernetes::apply::LAST_APPLIED;

/// The longest text that is shown completely, and how much of a longer one is shown.
const MAX_TEXT: usize = 400;
const TRUNCATED_TEXT: usize = 40;
/// The largest file contents that are searched for secrets.
const MAX_CONTENTS: u64 = 4 << 20;

/// The text for an object and its events.
pub(in crate::cli) fn describe(object: &Value, events: &[Value]) -> String {
    let mut text = String::new();
    let at = |path: &str| object.pointer(path);
    let plain = |path: &str| at(path).and_then(Value::as_str).unwrap_or_default();
    let mut field = |name: &str, value: &str| {
        if !value.is_empty() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{:<14}{value}", format!("{name}:"));
        }
    };
    field("Name", plain("/metadata/name"));
    field("Namespace", plain("/metadata/namespace"));
    field("Kind", &format!("{} ({})", plain("/kind"), plain("/apiVersion")));
    field("Labels", &key_values(at("/metadata/labels")));
    field("Annotations", &key_values(at("/metadata/annotations")));
    field("Created", plain("/metadata/creationTimestamp"));
    field("Deleted", plain("/metadata/deletionTimestamp"));
    let generation = at("/metadata/generation").map(ToString::to_string).unwrap_or_default();
    field("Generation", &generation);
    field("Owners", &owners(at("/metadata/ownerReferences")));
    let finalizers = at("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
    field("Finalizers", &finalizers.filter_map(Value::as_str).collect::<Vec<_>>().join(", "));
    text.push_str(&body_yaml(object));
    text.push_str(&conditions(at("/status/conditions")));
    text.push_str(&event_table(events));
    text
}

/// `key=value` lines, indented from the second on.
fn key_values(map: Option<&Value>) -> String {
    let fields = map.and_then(Value::as_object).into_iter().flatten();
    let lines: Vec<String> = fields
        .filter(|(key, _)| *key != LAST_APPLIED)
        .map(|(key, value)| format!("{key}={}", truncate(value.as_str().unwrap_or_default())))
        .collect();
    lines.join(&format!("\n{:14}", ""))
}

fn owners(list: Option<&Value>) -> String {
    let text = |owner: &Value, field: &str| {
        owner.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let list = list.and_then(Value::as_array).into_iter().flatten();
    let names = list.map(|owner| format!("{}/{}", text(owner, "kind"), text(owner, "name")));
    names.collect::<Vec<_>>().join(", ")
}

/// Everything except the metadata and the conditions, as YAML.
fn body_yaml(object: &Value) -> String {
    let is_secret = object.get("kind").and_then(Value::as_str) == Some("Secret");
    let mut text = String::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        if matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        let mut value = if is_secret && matches!(key.as_str(), "data" | "stringData") {
            sizes(value)
        } else {
            redacted(key, value)
        };
        if let Some(status) = value.as_object_mut().filter(|_| key == "status") {
            status.remove("conditions");
        }
        if value.as_object().is_some_and(Map::is_empty) {
            continue;
        }
        let mut title = key.clone();
        if let Some(first) = title.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let body = to_go_yaml(&value);
        if value.is_object() || value.is_array() {
            let _ = writeln!(text, "{title}:\n{}", indented(body.trim_end()));
        } else {
            let _ = writeln!(text, "{:<14}{}", format!("{title}:"), body.trim_end());
        }
    }
    text
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// The sizes of the values of a Secret.
fn sizes(data: &Value) -> Value {
    let size = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        let bytes = STANDARD.decode(text).map_or(text.len(), |bytes| bytes.len());
        Value::from(format!("{bytes} bytes"))
    };
    let fields = data.as_object().into_iter().flatten();
    Value::Object(fields.map(|(key, value)| (key.clone(), size(value))).collect())
}

/// A value without secrets and without `managedFields`.
fn redacted(key: &str, value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let hidden = is_secret_entry(fields);
            let inner = fields.iter().map(|(key, value)| {
                let value = match key.as_str() {
                    "contents" if hidden => mask(value),
                    "managedFields" => Value::Null,
                    _ => redacted(key, value),
                };
                (key.clone(), value)
            });
            Value::Object(inner.filter(|(key, _)| key != "managedFields").collect())
        }
        Value::Array(items) => items.iter().map(|item| redacted(key, item)).collect(),
        Value::String(_) if names_a_secret(key) => mask(value),
        Value::String(text) => truncate(text).into(),
        other => other.clone(),
    }
}

fn mask(value: &Value) -> Value {
    let size = value.as_str().map_or_else(|| value.to_string().len(), str::len);
    format!("(not shown: {size} characters)").into()
}

fn names_a_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["password", "pullsecret", "token", "privatekey"].iter().any(|part| key.contains(part))
}

/// Whether an entry of an Ignition config is a file with a secret in it.
fn is_secret_entry(fields: &Map<String, Value>) -> bool {
    let (Some(path), Some(inner)) =
        (fields.get("path").and_then(Value::as_str), fields.get("contents"))
    else {
        return false;
    };
    let text = |field: &str| inner.get(field).and_then(Value::as_str).map(str::to_owned);
    let resource = Resource {
        source: text("source"),
        compression: text("compression"),
        ..Resource::default()
    };
    let bytes = contents::decode(&resource, MAX_CONTENTS).ok();
    let mode = fields.get("mode").and_then(Value::as_i64);
    is_secret_file(path, mode, &bytes.unwrap_or_else(|| inner.to_string().into_bytes()))
}

fn truncate(text: &str) -> String {
    let count = text.chars().count();
    if count <= MAX_TEXT {
        return escape_control(text);
    }
    let start: String = text.chars().take(TRUNCATED_TEXT).collect();
    format!("{}… ({count} characters)", escape_control(&start))
}

fn conditions(list: Option<&Value>) -> String {
    let list = list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let fields = ["type", "status", "lastTransitionTime", "reason", "message"];
    table("Conditions", ["TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"], fields, list)
}

fn event_table(list: &[Value]) -> String {
    let fields = ["type", "reason", "lastTimestamp", "count", "message"];
    table("Events", ["TYPE", "REASON", "LAST", "COUNT", "MESSAGE"], fields, list)
}

fn table(title: &str, heads: [&str; 5], fields: [&str; 5], list: &[Value]) -> String {
    if list.is_empty() {
        return String::new();
    }
    let cell = |item: &Value, field: &str| match item.get(field) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) if text.is_empty() => "-".to_owned(),
        Some(Value::String(text)) => truncate(&text.replace('\n', " ")),
        Some(other) => other.to_string(),
    };
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(list.iter().map(|item| fields.map(|field| cell(item, field)).to_vec()));
    format!("{title}:\n{}\n", indented(TablePrinter::default().align(&rows).trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_sections_are_shown() {
        let object = json!({
            "apiVersion": "g/v1", "kind": "Pool",
            "metadata": {
                "name": "worker", "labels": {"a": "1", "b": "2"}, "generation": 4,
                "annotations": {LAST_APPLIED: "{}"},
                "ownerReferences": [{"kind": "K", "name": "n"}], "finalizers": ["f"],
            },
            "spec": {"paused": true, "long": "x".repeat(1000)},
            "status": {"conditions": [{"type": "Updated", "status": "True", "message": "all\nwell"}]},
        });
        let events = [json!({"type": "Normal", "reason": "Done", "count": 2, "message": "m"})];
        let text = describe(&object, &events);
        assert_eq!(
            text,
            format!(
                "Name:         worker\n\
                 Kind:         Pool (g/v1)\n\
                 Labels:       a=1\n\
                 \x20             b=2\n\
                 Generation:   4\n\
                 Owners:       K/n\n\
                 Finalizers:   f\n\
                 Spec:\n\
                 \x20 long: {}… (1000 characters)\n\
                 \x20 paused: true\n\
                 Conditions:\n\
                 \x20 TYPE      STATUS   SINCE   REASON   MESSAGE\n\
                 \x20 Updated   True     -       -        all well\n\
                 Events:\n\
                 \x20 TYPE     REASON   LAST   COUNT   MESSAGE\n\
                 \x20 Normal   Done     -      2       m\n",
                "x".repeat(TRUNCATED_TEXT)
            )
        );
    }

    #[test]
    fn secrets_are_not_shown() {
        let secret = json!({
            "kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"},
            "type": "Opaque", "data": {"key": "aHVudGVyMg=="},
        });
        let text = describe(&secret, &[]);
        assert!(text.contains("  key: 7 bytes") && text.contains("Type:         Opaque"), "{text}");
        assert!(!text.contains("aHVu"));

        let config = json!({"kind": "MachineConfig", "spec": {"config": {
            "passwd": {"users": [{"name": "core", "passwordHash": "hunter1"}]},
            "storage": {"files": [
                {"path": "/etc/private", "mode": 384, "contents": {"source": "data:,hunter2"}},
                {"path": "/etc/motd", "mode": 420, "contents": {"source": "data:,hello"}},
            ]},
        }}});
        let text = describe(&config, &[]);
        assert!(!text.contains("hunter") && text.contains("data:,hello"), "{text}");
        assert!(text.contains("passwordHash: '(not shown: 7 characters)'"), "{text}");
    }
}
