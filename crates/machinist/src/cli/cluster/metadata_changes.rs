//! `key=value` and `key-`: changes of labels and annotations on the command line.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde_json::{Map, Value};

use super::usage_error;

/// Keys with their new values; none removes a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cli) struct MetadataChanges(BTreeMap<String, Option<String>>);

impl MetadataChanges {
    /// Splits arguments into those that name objects and those that are changes.
    ///
    /// # Errors
    /// There is no change, or a key is changed twice.
    pub(in crate::cli) fn split(arguments: &[String]) -> Result<(Vec<String>, Self)> {
        let (mut names, mut changes) = (Vec::new(), BTreeMap::new());
        for argument in arguments {
            let change = match (argument.split_once('='), argument.strip_suffix('-')) {
                (Some((key, value)), _) => (key, Some(value.to_owned())),
                (None, Some(key)) => (key, None),
                (None, None) if changes.is_empty() => {
                    names.push(argument.clone());
                    continue;
                }
                (None, None) => {
                    return Err(usage_error(format!("{argument}: write changes after all names")));
                }
            };
            if change.0.is_empty() {
                return Err(usage_error(format!("{argument}: the key is missing")));
            }
            if changes.insert(change.0.to_owned(), change.1).is_some() {
                return Err(usage_error(format!("{} is changed twice", change.0)));
            }
        }
        if changes.is_empty() {
            return Err(usage_error("add a change: key=value sets a key, key- removes it"));
        }
        Ok((names, Self(changes)))
    }

    /// The patch of the map; none if nothing has to change.
    ///
    /// # Errors
    /// A key has another value and `overwrite` is false.
    pub(in crate::cli) fn patch(
        &self,
        now: Option<&Value>,
        overwrite: bool,
    ) -> Result<Option<Value>> {
        let mut patch = Map::new();
        for (key, desired) in &self.0 {
            let now = now.and_then(|now| now.get(key)).and_then(Value::as_str);
            match (now, desired) {
                (now, desired) if now == desired.as_deref() => {}
                (Some(now), Some(_)) if !overwrite => {
                    bail!("{key} already has the value {now:?}: use --overwrite to replace it")
                }
                (_, desired) => {
                    patch.insert(key.clone(), desired.clone().into());
                }
            }
        }
        Ok((!patch.is_empty()).then_some(Value::Object(patch)))
    }

    /// Whether all changes are removals.
    pub(in crate::cli) fn only_removes(&self) -> bool {
        self.0.values().all(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn split(text: &str) -> Result<(Vec<String>, MetadataChanges)> {
        MetadataChanges::split(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_names_or_changes() {
        let (names, changes) = split("mcp worker a=1 b= c-").unwrap();
        assert_eq!(names, ["mcp", "worker"]);
        assert!(!changes.only_removes());
        assert!(split("mcp/worker c-").unwrap().1.only_removes());
        for bad in ["mcp worker", "mcp a=1 worker", "mcp a =1", "mcp a k=1 k=2", "mcp a -"] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn patches() {
        let changes = split("mcp/a x=1 gone-").unwrap().1;
        let patch = |now: Value, overwrite| changes.patch(Some(&now), overwrite).map_err(drop);
        assert_eq!(changes.patch(None, false).unwrap(), Some(json!({"x": "1"})));
        assert_eq!(patch(json!({"x": "1"}), false), Ok(None));
        assert_eq!(patch(json!({"gone": "1"}), false), Ok(Some(json!({"x": "1", "gone": null}))));
        assert_eq!(patch(json!({"x": "2"}), false), Err(()));
        assert_eq!(patch(json!({"x": "2"}), true), Ok(Some(json!({"x": "1"}))));
    }
}
