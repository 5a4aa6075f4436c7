//! Dropping what the schema does not know.

use serde_json::Value;

use super::node::{Additional, Node};

const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The fields that metadata can have.
const METADATA: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Prunes a whole object: its type and metadata stay, whatever the schema says.
pub(super) fn prune(root: &Node, object: &mut Value) -> Vec<String> {
    let mut unknown = Unknown::default();
    let level = Level { embedded: true };
    if root.preserve {
        skip(root, object, level, &mut unknown);
    } else {
        at(root, object, level, &mut unknown);
    }
    unknown.found.sort_unstable();
    unknown.in_metadata.sort_unstable();
    unknown.found.extend(unknown.in_metadata);
    unknown.found
}

/// What was dropped, and where the walk is.
#[derive(Default)]
struct Unknown {
    path: String,
    found: Vec<String>,
    /// An API server looks at metadata after all else.
    in_metadata: Vec<String>,
}

#[derive(Clone, Copy)]
struct Level {
    embedded: bool,
}

impl Unknown {
    fn record(&mut self, name: &str) {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.found.push(format!("{}{dot}{name}", self.path));
    }

    /// Runs with a step added to the path.
    fn within(&mut self, step: &str, run: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if !step.starts_with('[') && length > 0 {
            self.path.push('.');
        }
        self.path.push_str(step);
        run(self);
        self.path.truncate(length);
    }
}

fn walk(node: Option<&Node>, value: &mut Value, unknown: &mut Unknown) {
    let Some(node) = node else { return drop_all(value, unknown) };
    let level = Level { embedded: node.embedded };
    if node.preserve {
        skip(node, value, level, unknown);
    } else {
        at(node, value, level, unknown);
    }
}

/// Nothing is known here: no field may stay.
fn drop_all(value: &mut Value, unknown: &mut Unknown) {
    match value {
        Value::Object(fields) => {
            fields.keys().for_each(|name| unknown.record(name));
            fields.clear();
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                unknown.within(&format!("[{index}]"), |unknown| drop_all(item, unknown));
            }
        }
        _ => {}
    }
}

/// Metadata has the fields that all objects have.
fn metadata(name: &str, value: &mut Value, unknown: &mut Unknown) {
    if let (true, Value::Object(fields)) = (name == "metadata", value) {
        fields.retain(|field, _| {
            let known = METADATA.contains(&field.as_str());
            if !known {
                unknown.in_metadata.push(format!("{}.{field}", unknown.path));
            }
            known
        });
    }
}

fn at(node: &Node, value: &mut Value, level: Level, unknown: &mut Unknown) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            if level.embedded && META.contains(&name.as_str()) {
                unknown.within(name, |unknown| metadata(name, value, unknown));
                return true;
            }
            let part = match (node.properties.get(name), &node.additional) {
                (Some(part), _) => Some(part),
                (None, Additional::Fitting(part)) => Some(part.as_ref()),
                (None, Additional::Any(_)) => None,
                (None, Additional::Unset) => {
                    unknown.record(name);
                    return false;
                }
            };
            unknown.within(name, |unknown| walk(part, value, unknown));
            true
        }),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                let part = node.items.as_deref();
                unknown.within(&format!("[{index}]"), |unknown| walk(part, item, unknown));
            }
        }
        _ => {}
    }
}

/// Unknown fields stay here, but what is known is pruned inside.
fn skip(node: &Node, value: &mut Value, level: Level, unknown: &mut Unknown) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if level.embedded && META.contains(&name.as_str()) {
                    unknown.within(name, |unknown| metadata(name, value, unknown));
                    continue;
                }
                if let Some(part) = node.field(name) {
                    unknown.within(name, |unknown| walk(Some(part), value, unknown));
                }
            }
        }
        Value::Array(items) => {
            let Some(part) = node.items.as_deref() else { return };
            for (index, item) in items.iter_mut().enumerate() {
                let level = Level { embedded: part.embedded };
                unknown.within(&format!("[{index}]"), |unknown| skip(part, item, level, unknown));
            }
        }
        _ => {}
    }
}
