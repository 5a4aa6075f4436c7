//! The conditions of `machinist wait`: `condition=Updated`, `delete`, `create`, `jsonpath={.spec.paused}=true`.

use machinist_hub::json_path::JsonPath;
use serde_json::Value;

/// A condition of an object.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cli) enum WaitCondition {
    /// A status condition has a status.
    Condition {
        /// The type of the condition.
        kind: String,
        /// The awaited status.
        status: String,
    },
    /// The object does not exist.
    Deleted,
    /// The object exists.
    Created,
    /// A field exists, or has a value.
    Field {
        /// The path as written.
        text: String,
        /// The parsed path.
        path: JsonPath,
        /// The awaited value; none accepts any value.
        value: Option<String>,
    },
}

impl WaitCondition {
    /// Parses a condition, for clap.
    pub(in crate::cli) fn parse(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("delete") {
            return Ok(Self::Deleted);
        }
        if text.eq_ignore_ascii_case("create") {
            return Ok(Self::Created);
        }
        if let Some(condition) = text.strip_prefix("condition=") {
            let (kind, status) = condition.split_once('=').unwrap_or((condition, "True"));
            if kind.is_empty() || status.is_empty() {
                return Err("write condition=TYPE or condition=TYPE=STATUS".to_owned());
            }
            return Ok(Self::Condition { kind: kind.to_owned(), status: status.to_owned() });
        }
        match text.strip_prefix("jsonpath=") {
            Some(field) => Self::parse_field(field),
            None => {
                Err("write condition=TYPE[=STATUS], jsonpath={.PATH}[=VALUE], create or delete"
                    .to_owned())
            }
        }
    }

    fn parse_field(field: &str) -> Result<Self, String> {
        let bad = || "write jsonpath={.PATH} or jsonpath={.PATH}=VALUE".to_owned();
        // Quotes that the shell did not remove.
        let field = field.replace("'{", "{").replace("}'", "}");
        // A filter in the path may contain an equals sign.
        let (path, rest) = match field.rfind('}') {
            Some(at) => field.split_at(at + 1),
            None => field.split_at(field.find('=').unwrap_or(field.len())),
        };
        let value = match rest.strip_prefix('=') {
            Some("") => return Err(bad()),
            Some(value) => Some(value.trim_matches(['"', '\'']).to_owned()),
            None if rest.is_empty() => None,
            None => return Err(bad()),
        };
        let inner = path.trim_start_matches('{').trim_end_matches('}');
        if inner.is_empty() {
            return Err(bad());
        }
        let dotted =
            if inner.starts_with(['.', '[', '$']) { inner.to_owned() } else { format!(".{inner}") };
        let path = JsonPath::parse(&dotted).ok_or_else(bad)?;
        Ok(Self::Field { text: format!("{{{dotted}}}"), path, value })
    }

    /// The condition as text for messages.
    pub(in crate::cli) fn text(&self) -> String {
        match self {
            Self::Condition { kind, status } => format!("condition {kind} to be {status}"),
            Self::Deleted => "it to be deleted".to_owned(),
            Self::Created => "it to be created".to_owned(),
            Self::Field { text, value: Some(value), .. } => format!("{text} to be {value}"),
            Self::Field { text, value: None, .. } => format!("{text} to have a value"),
        }
    }

    /// Checks an object; the error describes its current state.
    pub(in crate::cli) fn check(&self, object: Option<&Value>) -> Result<(), String> {
        let Some(object) = object else {
            let is_met = *self == Self::Deleted;
            return if is_met { Ok(()) } else { Err("it does not exist".to_owned()) };
        };
        match self {
            Self::Created => Ok(()),
            Self::Deleted => Err(exists_message(object)),
            Self::Condition { kind, status } => check_condition(object, kind, status),
            Self::Field { path, value, .. } => match (path.find(object).as_slice(), value) {
                ([], _) => Err("it has no value".to_owned()),
                ([found], Some(value)) if display_value(found) != *value => {
                    Err(format!("it is {}", display_value(found)))
                }
                ([_], _) => Ok(()),
                (several, _) => Err(format!("it has {} values", several.len())),
            },
        }
    }
}

fn exists_message(object: &Value) -> String {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    let names: Vec<&str> = finalizers.into_iter().flatten().filter_map(Value::as_str).collect();
    if names.is_empty() {
        "it still exists".to_owned()
    } else {
        format!("it still exists, because of the finalizers {}", names.join(", "))
    }
}

fn display_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Checks a status condition. One of an older generation does not count.
fn check_condition(object: &Value, kind: &str, status: &str) -> Result<(), String> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let text = |value: &Value, field: &str| {
        value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|condition| text(condition, "type").eq_ignore_ascii_case(kind));
    let Some(condition) = found else {
        return Err("it does not have this condition yet".to_owned());
    };
    let observed = condition.get("observedGeneration");
    let observed = observed.or_else(|| object.pointer("/status/observedGeneration"));
    let observed = observed.and_then(Value::as_i64);
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
    if let (Some(observed), Some(generation)) = (observed, generation)
        && observed < generation
    {
        return Err(format!(
            "the condition is of generation {observed}, the object of generation {generation}"
        ));
    }
    if text(condition, "status").eq_ignore_ascii_case(status) {
        return Ok(());
    }
    let mut now = format!("it is {}", text(condition, "status"));
    let why = [text(condition, "reason"), text(condition, "message")];
    let why: Vec<&str> = why.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
    if !why.is_empty() {
        now.push_str(&format!(" ({})", why.join(": ")));
    }
    Err(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_are_parsed_and_checked() {
        let pool = json!({
            "metadata": {"generation": 3, "finalizers": ["a/b"]},
            "spec": {"paused": true, "list": [1, 2], "conditions": [{"type": "A", "v": "x"}]},
            "status": {"observedGeneration": 3, "conditions": [
                {"type": "Updated", "status": "True"},
                {"type": "Degraded", "status": "False", "reason": "R", "message": "m"},
                {"type": "Old", "status": "True", "observedGeneration": 2},
            ]},
        });
        let met = Ok(());
        let no = |text: &str| Err(text.to_owned());
        for (goal, expected) in [
            ("condition=Updated", met.clone()),
            ("condition=updated=true", met.clone()),
            ("condition=Degraded", no("it is False (R: m)")),
            ("condition=Degraded=False", met.clone()),
            ("condition=None", no("it does not have this condition yet")),
            ("condition=Old", no("the condition is of generation 2, the object of generation 3")),
            ("create", met.clone()),
            ("delete", no("it still exists, because of the finalizers a/b")),
            ("jsonpath={.spec.paused}=true", met.clone()),
            ("jsonpath='{.spec.paused}'=true", met.clone()),
            ("jsonpath=.spec.paused=false", no("it is true")),
            ("jsonpath={.spec.paused}", met.clone()),
            ("jsonpath={.spec.conditions[?(@.type==\"A\")].v}=x", met.clone()),
            ("jsonpath={.spec.nothing}", no("it has no value")),
            ("jsonpath={.spec.list[*]}=1", no("it has 2 values")),
        ] {
            assert_eq!(WaitCondition::parse(goal).unwrap().check(Some(&pool)), expected, "{goal}");
        }
        assert_eq!(WaitCondition::Deleted.check(None), met);
        assert!(WaitCondition::Created.check(None).is_err());
        for bad in
            ["", "condition=", "condition=A=", "jsonpath=", "jsonpath={.a}=", "jsonpath={}", "x"]
        {
            assert!(WaitCondition::parse(bad).is_err(), "{bad}");
        }
    }
}
