//! The status of a definition: what is stored in which version, its conditions, and its deletion.

use serde_json::{Value, json};

use super::storage_version;
use crate::object::{finalizers, set_metadata_field};

/// Holds a definition until its objects are deleted.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A condition without its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition<'a> {
    /// `Established`, `NamesAccepted`, `Terminating` …
    pub type_: &'a str,
    /// Whether it holds.
    pub holds: bool,
    /// The reason as a word.
    pub reason: &'a str,
    /// The reason as a sentence.
    pub message: &'a str,
}

/// Sets the status of a new definition, whatever the client sent.
pub fn on_create(definition: &mut Value) {
    let stored: Vec<&str> = storage_version(definition).into_iter().collect();
    definition["status"] = json!({
        "acceptedNames": {"kind": "", "plural": ""},
        "conditions": null,
        "storedVersions": stored,
    });
    if definition["status"]["storedVersions"] == json!([]) {
        definition["status"]["storedVersions"] = Value::Null;
    }
}

/// Keeps the status of a changed definition and records a new storage version.
pub fn on_update(old: &Value, new: &mut Value) {
    new["status"] = old.get("status").cloned().unwrap_or_else(|| json!({}));
    let Some(version) = storage_version(new).map(str::to_owned) else { return };
    let status = &mut new["status"];
    match status.get_mut("storedVersions").and_then(Value::as_array_mut) {
        Some(stored) if stored.iter().any(|known| *known == version.as_str()) => {}
        Some(stored) => stored.push(version.into()),
        None => status["storedVersions"] = json!([version]),
    }
}

/// Marks a definition for deletion: its objects go first.
#[must_use]
pub fn marked_for_deletion(definition: &Value, now: &str) -> Value {
    let mut new = definition.clone();
    set_metadata_field(&mut new, "deletionTimestamp", Some(now.into()));
    let mut held = finalizers(definition);
    if !held.contains(&CLEANUP_FINALIZER) {
        held.push(CLEANUP_FINALIZER);
    }
    set_metadata_field(&mut new, "finalizers", Some(json!(held)));
    let pending = Condition {
        type_: "Terminating",
        holds: true,
        reason: "InstanceDeletionPending",
        message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    };
    set_condition(&mut new, pending, now);
    new
}

/// Whether a condition holds.
#[must_use]
pub fn condition_holds(definition: &Value, type_: &str) -> bool {
    find(definition, type_).is_some_and(|condition| condition["status"] == "True")
}

fn find<'a>(definition: &'a Value, type_: &str) -> Option<&'a Value> {
    let conditions = definition["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == type_)
}

/// Sets a condition. Its time changes with its status.
pub fn set_condition(definition: &mut Value, condition: Condition<'_>, now: &str) {
    let status = if condition.holds { "True" } else { "False" };
    let since = find(definition, condition.type_)
        .filter(|old| old["status"] == status && old["lastTransitionTime"].is_string())
        .map_or_else(|| now.into(), |old| old["lastTransitionTime"].clone());
    let new = json!({
        "type": condition.type_, "status": status, "lastTransitionTime": since,
        "reason": condition.reason, "message": condition.message,
    });
    if !definition["status"]["conditions"].is_array() {
        definition["status"]["conditions"] = json!([]);
    }
    let Some(all) = definition["status"]["conditions"].as_array_mut() else { return };
    match all.iter_mut().find(|old| old["type"] == condition.type_) {
        Some(old) => *old = new,
        None => all.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> Value {
        json!({
            "metadata": {"name": "a"},
            "spec": {"versions": [{"name": "v1", "storage": true}, {"name": "v2", "storage": false}]},
            "status": {"made": "up"},
        })
    }

    #[test]
    fn the_storage_versions_are_recorded() {
        let mut created = definition();
        on_create(&mut created);
        assert_eq!(created["status"]["storedVersions"], json!(["v1"]));
        let mut changed = created.clone();
        changed["status"] = json!({});
        changed["spec"]["versions"] = json!([{"name": "v2", "storage": true}]);
        on_update(&created, &mut changed);
        assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    }

    #[test]
    fn a_condition_keeps_its_time_while_it_holds() {
        let mut object = definition();
        let condition = Condition { type_: "A", holds: true, reason: "R", message: "m" };
        set_condition(&mut object, condition, "1");
        set_condition(&mut object, Condition { reason: "S", ..condition }, "2");
        assert_eq!(object["status"]["conditions"][0]["lastTransitionTime"], "1");
        assert_eq!(object["status"]["conditions"][0]["reason"], "S");
        set_condition(&mut object, Condition { holds: false, ..condition }, "3");
        assert_eq!(object["status"]["conditions"][0]["lastTransitionTime"], "3");
        assert!(!condition_holds(&object, "A"));
    }

    #[test]
    fn a_deletion_waits_for_the_objects() {
        let marked = marked_for_deletion(&definition(), "now");
        assert_eq!(finalizers(&marked), [CLEANUP_FINALIZER]);
        assert!(condition_holds(&marked, "Terminating"));
        assert_eq!(marked["metadata"]["deletionTimestamp"], "now");
    }
}
