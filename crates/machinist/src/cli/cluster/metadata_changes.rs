//! `key=value` and `key-`: changes of labels and annotations.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde_json::{Map, Value};

use super::usage_error;

/// What to set, and what to remove (none).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cli) struct MetadataChanges(BTreeMap<String, Option<String>>);

impl MetadataChanges {
    /// Splits words into those that name objects and those that are changes.
    ///
    /// # Errors
    /// There is no change, or a key is changed twice.
    pub(in crate::cli) fn split(words: &[String]) -> Result<(Vec<String>, Self)> {
        let (mut names, mut changes) = (Vec::new(), BTreeMap::new());
        for word in words {
            let change = match (word.split_once('='), word.strip_suffix('-')) {
                (Some((key, value)), _) => (key, Some(value.to_owned())),
                (None, Some(key)) => (key, None),
                (None, None) if changes.is_empty() => {
                    names.push(word.clone());
                    continue;
                }
                (None, None) => {
                    return Err(usage_error(format!("{word}: changes come after all names")));
                }
            };
            if change.0.is_empty() {
                return Err(usage_error(format!("{word}: the key is missing")));
            }
            if changes.insert(change.0.to_owned(), change.1).is_some() {
                return Err(usage_error(format!("{} is changed twice", change.0)));
            }
        }
        if changes.is_empty() {
            return Err(usage_error("say what to change: key=value sets, key- removes"));
        }
        Ok((names, Self(changes)))
    }

    /// The part of the metadata that has to change; none if all is as wanted.
    ///
    /// # Errors
    /// A key has another value, and may not be overwritten.
    pub(in crate::cli) fn patch(
        &self,
        now: Option<&Value>,
        overwrite: bool,
    ) -> Result<Option<Value>> {
        let mut patch = Map::new();
        for (key, wanted) in &self.0 {
            let now = now.and_then(|now| now.get(key)).and_then(Value::as_str);
            match (now, wanted) {
                (now, wanted) if now == wanted.as_deref() => {}
                (Some(now), Some(_)) if !overwrite => {
                    bail!("{key} already has the value {now:?}: --overwrite replaces it")
                }
                (_, wanted) => {
                    patch.insert(key.clone(), wanted.clone().into());
                }
            }
        }
        Ok((!patch.is_empty()).then_some(Value::Object(patch)))
    }

    /// Whether it only removes.
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
    fn words_are_names_or_changes() {
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
