//! Decides how an object is deleted: removed now, or marked until its finalizers are done.
//!
//! Pure. Called by the delete handler and by the garbage collector, which deletes the dependents.

use serde_json::{Value, json};

use crate::definition;
use crate::kind_registry::ResourceKind;
use crate::object::{finalizers, is_deleting, set_metadata_field};
use crate::request::DeletionPropagation;

/// Holds an object until its dependents are deleted.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
/// Holds an object until its dependents no longer refer to it.
pub const ORPHAN_FINALIZER: &str = "orphan";
/// The namespaces that cannot be deleted.
const PROTECTED_NAMESPACES: &[&str] = &["default", "kube-system", "kube-public"];

/// The effect of a delete request.
#[derive(Debug, Clone, PartialEq)]
pub enum DeletionStep {
    /// Remove the object now.
    Remove,
    /// Mark the object; its finalizers decide when it is removed.
    MarkForDeletion(Value),
    /// The object is already marked and stays as it is.
    NoChange,
}

/// Decides the effect of a delete request.
#[must_use]
pub fn decide_deletion(
    kind: &ResourceKind,
    object: &Value,
    propagation: DeletionPropagation,
    now: &str,
) -> DeletionStep {
    if definition::is_definition(kind) && !is_deleting(object) {
        return DeletionStep::MarkForDeletion(definition::lifecycle::marked_for_deletion(
            object, now,
        ));
    }
    let mut names: Vec<&str> = finalizers(object);
    names.retain(|name| *name != FOREGROUND_FINALIZER && *name != ORPHAN_FINALIZER);
    match propagation {
        DeletionPropagation::Background => {}
        DeletionPropagation::Foreground => names.push(FOREGROUND_FINALIZER),
        DeletionPropagation::Orphan => names.push(ORPHAN_FINALIZER),
    }
    let held = is_namespace_with_finalizer(kind, object);
    if names.is_empty() && !held {
        return DeletionStep::Remove;
    }
    let mut new = object.clone();
    set_metadata_field(&mut new, "finalizers", (!names.is_empty()).then(|| json!(names)));
    if is_deleting(object) {
        return if new == *object {
            DeletionStep::NoChange
        } else {
            DeletionStep::MarkForDeletion(new)
        };
    }
    set_metadata_field(&mut new, "deletionTimestamp", Some(now.into()));
    if !is_namespace(kind) {
        set_metadata_field(&mut new, "deletionGracePeriodSeconds", Some(0.into()));
    }
    if let Some(generation) = object["metadata"]["generation"].as_i64() {
        set_metadata_field(&mut new, "generation", Some((generation + 1).into()));
    }
    if held {
        new["status"]["phase"] = "Terminating".into();
    }
    DeletionStep::MarkForDeletion(new)
}

/// Whether an updated object must be removed: it is marked and has no finalizer left.
#[must_use]
pub fn is_ready_for_removal(kind: &ResourceKind, object: &Value) -> bool {
    is_deleting(object)
        && finalizers(object).is_empty()
        && !is_namespace_with_finalizer(kind, object)
}

fn is_namespace(kind: &ResourceKind) -> bool {
    kind.built_in && kind.kind == "Namespace"
}

/// A namespace is removed only after its contents.
fn is_namespace_with_finalizer(kind: &ResourceKind, object: &Value) -> bool {
    is_namespace(kind) && object["spec"]["finalizers"].as_array().is_some_and(|l| !l.is_empty())
}

/// Whether the object cannot be deleted.
#[must_use]
pub fn is_protected(kind: &ResourceKind, name: &str) -> bool {
    is_namespace(kind) && PROTECTED_NAMESPACES.contains(&name)
}

/// Returns the UIDs of the object's owners.
#[must_use]
pub fn owner_uids(object: &Value) -> Vec<&str> {
    let references = object["metadata"]["ownerReferences"].as_array();
    references.into_iter().flatten().filter_map(|owner| owner["uid"].as_str()).collect()
}

/// Returns the object without one of its owner references.
#[must_use]
pub fn without_owner(object: &Value, uid: &str) -> Value {
    let mut new = object.clone();
    let references = object["metadata"]["ownerReferences"].as_array();
    let left: Vec<&Value> =
        references.into_iter().flatten().filter(|owner| owner["uid"] != uid).collect();
    set_metadata_field(&mut new, "ownerReferences", (!left.is_empty()).then(|| json!(left)));
    new
}

/// Returns the object without one of its finalizers.
#[must_use]
pub fn without_finalizer(object: &Value, name: &str) -> Value {
    let mut new = object.clone();
    let left: Vec<&str> = finalizers(object).into_iter().filter(|own| *own != name).collect();
    set_metadata_field(&mut new, "finalizers", (!left.is_empty()).then(|| json!(left)));
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> ResourceKind {
        ResourceKind {
            group: String::new(),
            version: "v1".into(),
            kind: name.into(),
            list_kind: String::new(),
            plural: String::new(),
            singular: String::new(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: false,
            status_subresource: true,
            schema: None,
            built_in: true,
            columns: Vec::new(),
            scale: None,
            selectable_fields: Vec::new(),
            defined: None,
        }
    }

    #[test]
    fn deletion_decisions() {
        let thing = kind("Thing");
        let plain = json!({"metadata": {"name": "a"}});
        let held = json!({"metadata": {"finalizers": ["f"], "generation": 1}});
        let marked = json!({"metadata": {
            "finalizers": ["f"], "generation": 2,
            "deletionTimestamp": "now", "deletionGracePeriodSeconds": 0
        }});
        assert_eq!(
            decide_deletion(&thing, &plain, DeletionPropagation::Background, "now"),
            DeletionStep::Remove
        );
        assert_eq!(
            decide_deletion(&thing, &held, DeletionPropagation::Background, "now"),
            DeletionStep::MarkForDeletion(marked.clone())
        );
        assert_eq!(
            decide_deletion(&thing, &marked, DeletionPropagation::Background, "later"),
            DeletionStep::NoChange
        );
        let DeletionStep::MarkForDeletion(foreground) =
            decide_deletion(&thing, &plain, DeletionPropagation::Foreground, "now")
        else {
            panic!("not marked")
        };
        assert_eq!(finalizers(&foreground), [FOREGROUND_FINALIZER]);
        assert!(!is_ready_for_removal(&thing, &foreground));
        assert!(is_ready_for_removal(
            &thing,
            &without_finalizer(&foreground, FOREGROUND_FINALIZER)
        ));
        assert!(!is_ready_for_removal(&thing, &plain));
    }

    #[test]
    fn a_namespace_waits_for_its_contents() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}});
        let DeletionStep::MarkForDeletion(marked) =
            decide_deletion(&kind("Namespace"), &object, DeletionPropagation::Background, "now")
        else {
            panic!("not marked")
        };
        assert_eq!(marked["status"]["phase"], "Terminating");
        assert!(!is_ready_for_removal(&kind("Namespace"), &marked));
        assert!(is_protected(&kind("Namespace"), "default"));
        assert!(!is_protected(&kind("Node"), "default"));
    }

    #[test]
    fn owner_references_are_removed_one_by_one() {
        let object = json!({"metadata": {"ownerReferences": [{"uid": "a"}, {"uid": "b"}]}});
        assert_eq!(owner_uids(&object), ["a", "b"]);
        let object = without_owner(&object, "a");
        assert_eq!(owner_uids(&object), ["b"]);
        assert_eq!(without_owner(&object, "b"), json!({"metadata": {}}));
    }
}
