//! Conflicts: fields that an applier wants to change and that others own.
//!
//! Pure; made by [`super::update`], answered by the router as 409.

use serde_json::{Value, json};

use super::field_set::FieldSet;
use super::managed_fields::{ManagerId, Operation};
use crate::object_limits::{MAX_FINDINGS, shorten};
use crate::schema::quote;

/// Fields of other managers that an apply would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts {
    managers: Vec<ManagerConflict>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ManagerConflict {
    manager: ManagerId,
    fields: FieldSet,
}

impl Conflicts {
    pub(super) fn new(fields: impl IntoIterator<Item = (ManagerId, FieldSet)>) -> Self {
        let mut managers: Vec<ManagerConflict> = fields
            .into_iter()
            .map(|(manager, fields)| ManagerConflict { manager, fields })
            .collect();
        managers.sort_by_key(|conflict| conflict.manager.sort_key());
        Self { managers }
    }

    /// The conflicts in other fields than these.
    pub(super) fn outside(&self, fields: &FieldSet) -> Self {
        let managers = self.managers.iter().filter_map(|conflict| {
            let fields = conflict.fields.difference(fields);
            let manager = conflict.manager.clone();
            (!fields.is_empty()).then_some(ManagerConflict { manager, fields })
        });
        Self { managers: managers.collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.managers.is_empty()
    }

    /// The message for people.
    #[must_use]
    pub fn message(&self) -> String {
        let all: Vec<(String, Vec<String>, usize)> = self
            .managers
            .iter()
            .map(|conflict| {
                let (shown, count) = paths(&conflict.fields);
                (describe(&conflict.manager), shown, count)
            })
            .collect();
        let total: usize = all.iter().map(|(_, _, count)| count).sum();
        if let ([(manager, paths, _)], 1) = (all.as_slice(), total) {
            let path = paths.first().map(String::as_str).unwrap_or_default();
            return format!("Apply failed with 1 conflict: conflict with {manager}: {path}");
        }
        let mut lines = Vec::new();
        for (manager, paths, count) in &all {
            lines.push(format!("conflicts with {manager}:"));
            lines.extend(paths.iter().map(|path| format!("- {path}")));
            if *count > paths.len() {
                lines.push(format!("- and {} more", count - paths.len()));
            }
        }
        format!("Apply failed with {total} conflicts: {}", lines.join("\n"))
    }

    /// The causes of the `Status`.
    #[must_use]
    pub fn causes(&self) -> Vec<Value> {
        let causes = self.managers.iter().flat_map(|conflict| {
            let message = format!("conflict with {}", describe(&conflict.manager));
            paths(&conflict.fields).0.into_iter().map(move |path| {
                json!({"reason": "FieldManagerConflict", "message": message, "field": path})
            })
        });
        causes.take(MAX_FINDINGS).collect()
    }
}

/// The first paths of a set, and how many it has.
fn paths(fields: &FieldSet) -> (Vec<String>, usize) {
    let (mut shown, mut count) = (Vec::new(), 0);
    fields.for_each_path(&mut |path| {
        count += 1;
        if shown.len() < MAX_FINDINGS {
            let text: String = path.iter().map(ToString::to_string).collect();
            shown.push(shorten(&text));
        }
    });
    (shown, count)
}

fn describe(manager: &ManagerId) -> String {
    let mut text = quote(&manager.manager);
    if !manager.subresource.is_empty() {
        text = format!("{text} with subresource {}", quote(&manager.subresource));
    }
    match manager.operation {
        Operation::Apply => text,
        Operation::Update => format!("{text} using {}", manager.api_version),
    }
}
