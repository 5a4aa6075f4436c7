//! How an object goes: at once, or marked until its finalizers have let it go.
//!
//! Pure. Dependents are the business of the collector: it acts on what is decided here.

use serde_json::{Value, json};

use crate::object::{finalizers, is_deleting, set_meta};
use crate::registry::Kind;
use crate::request::Propagation;

/// The finalizer that holds an object until what it owns is gone.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer that holds an object until what it owns has forgotten it.
pub const ORPHAN: &str = "orphan";
/// The namespaces that stay.
const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];

/// What a delete does.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The object goes now.
    Remove,
    /// It is marked and waits for its finalizers.
    Mark(Value),
    /// It was marked before, and nothing is new.
    Nothing,
}

/// Decides on a delete.
#[must_use]
pub fn delete(kind: &Kind, object: &Value, propagation: Propagation, now: &str) -> Step {
    let mut names: Vec<&str> = finalizers(object);
    names.retain(|name| *name != FOREGROUND && *name != ORPHAN);
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => names.push(FOREGROUND),
        Propagation::Orphan => names.push(ORPHAN),
    }
    let held = is_held_by_contents(kind, object);
    if names.is_empty() && !held {
        return Step::Remove;
    }
    let mut new = object.clone();
    set_meta(&mut new, "finalizers", (!names.is_empty()).then(|| json!(names)));
    if is_deleting(object) {
        return if new == *object { Step::Nothing } else { Step::Mark(new) };
    }
    set_meta(&mut new, "deletionTimestamp", Some(now.into()));
    if !is_namespace(kind) {
        set_meta(&mut new, "deletionGracePeriodSeconds", Some(0.into()));
    }
    if let Some(generation) = object["metadata"]["generation"].as_i64() {
        set_meta(&mut new, "generation", Some((generation + 1).into()));
    }
    if held {
        new["status"]["phase"] = "Terminating".into();
    }
    Step::Mark(new)
}

/// Whether an updated object goes now: it was marked, and its last finalizer is gone.
#[must_use]
pub fn is_released(kind: &Kind, object: &Value) -> bool {
    is_deleting(object) && finalizers(object).is_empty() && !is_held_by_contents(kind, object)
}

fn is_namespace(kind: &Kind) -> bool {
    kind.built_in && kind.kind == "Namespace"
}

/// A namespace waits for what is in it.
fn is_held_by_contents(kind: &Kind, object: &Value) -> bool {
    is_namespace(kind) && object["spec"]["finalizers"].as_array().is_some_and(|l| !l.is_empty())
}

/// Whether the object may never go.
#[must_use]
pub fn is_immortal(kind: &Kind, name: &str) -> bool {
    is_namespace(kind) && IMMORTAL.contains(&name)
}

/// The uids of the owners of an object.
#[must_use]
pub fn owners(object: &Value) -> Vec<&str> {
    let references = object["metadata"]["ownerReferences"].as_array();
    references.into_iter().flatten().filter_map(|owner| owner["uid"].as_str()).collect()
}

/// The object without one of its owners.
#[must_use]
pub fn without_owner(object: &Value, uid: &str) -> Value {
    let mut new = object.clone();
    let references = object["metadata"]["ownerReferences"].as_array();
    let left: Vec<&Value> =
        references.into_iter().flatten().filter(|owner| owner["uid"] != uid).collect();
    set_meta(&mut new, "ownerReferences", (!left.is_empty()).then(|| json!(left)));
    new
}

/// The object without one of its finalizers.
#[must_use]
pub fn without_finalizer(object: &Value, name: &str) -> Value {
    let mut new = object.clone();
    let left: Vec<&str> = finalizers(object).into_iter().filter(|own| *own != name).collect();
    set_meta(&mut new, "finalizers", (!left.is_empty()).then(|| json!(left)));
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> Kind {
        Kind {
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
        }
    }

    #[test]
    fn deletes() {
        let thing = kind("Thing");
        let plain = json!({"metadata": {"name": "a"}});
        let held = json!({"metadata": {"finalizers": ["f"], "generation": 1}});
        let marked = json!({"metadata": {
            "finalizers": ["f"], "generation": 2,
            "deletionTimestamp": "now", "deletionGracePeriodSeconds": 0
        }});
        assert_eq!(delete(&thing, &plain, Propagation::Background, "now"), Step::Remove);
        assert_eq!(
            delete(&thing, &held, Propagation::Background, "now"),
            Step::Mark(marked.clone())
        );
        assert_eq!(delete(&thing, &marked, Propagation::Background, "later"), Step::Nothing);
        let Step::Mark(foreground) = delete(&thing, &plain, Propagation::Foreground, "now") else {
            panic!("not marked")
        };
        assert_eq!(finalizers(&foreground), [FOREGROUND]);
        assert!(!is_released(&thing, &foreground));
        assert!(is_released(&thing, &without_finalizer(&foreground, FOREGROUND)));
        assert!(!is_released(&thing, &plain));
    }

    #[test]
    fn a_namespace_waits_for_its_contents() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}});
        let Step::Mark(marked) =
            delete(&kind("Namespace"), &object, Propagation::Background, "now")
        else {
            panic!("not marked")
        };
        assert_eq!(marked["status"]["phase"], "Terminating");
        assert!(!is_released(&kind("Namespace"), &marked));
        assert!(is_immortal(&kind("Namespace"), "default"));
        assert!(!is_immortal(&kind("Node"), "default"));
    }

    #[test]
    fn owners_go_one_by_one() {
        let object = json!({"metadata": {"ownerReferences": [{"uid": "a"}, {"uid": "b"}]}});
        assert_eq!(owners(&object), ["a", "b"]);
        let object = without_owner(&object, "a");
        assert_eq!(owners(&object), ["b"]);
        assert_eq!(without_owner(&object, "b"), json!({"metadata": {}}));
    }
}
