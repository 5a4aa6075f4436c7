//! Looks for what would keep a plan from being performed or undone, before anything is written. Called by
//! `transaction`; `core::apply` decides what an obstacle is.
//!
//! A path that cannot be changed is a reason to refuse a change, never a reason to stop half-way: whatever
//! can be seen here would otherwise be met by the undo too.

use std::collections::HashMap;

use machinist_core::apply::{
    ApplyPlan, DiskStep, Obstacle, ObstructedPath, PathFacts, find_obstacle, own_file_obstacle,
};

use super::root::{HostRoot, split};
use super::service_state;

/// The paths of a plan that cannot be changed.
pub(super) fn obstructed_paths(root: &HostRoot, plan: &ApplyPlan) -> Vec<ObstructedPath> {
    let mut directories: HashMap<&str, (&str, PathFacts)> = HashMap::new();
    let own = service_state::own_binary(root.path());
    let mut found = Vec::new();
    for step in &plan.steps {
        let directory = *directories
            .entry(split(&step.path).0)
            .or_insert_with(|| root.nearest_directory(&step.path));
        let own = own_file_obstacle(step, &own);
        let obstacle = own.or_else(|| find_obstacle(step, root.facts(&step.path), directory));
        if let Some(obstacle) = obstacle {
            found.push(ObstructedPath { path: step.path.clone(), obstacle });
        }
    }
    found
}

/// What kept a step from being undone: an obstacle that can be seen, otherwise the error itself.
pub(super) fn obstacle_of(
    root: &HostRoot,
    step: &DiskStep,
    error: &dyn std::fmt::Display,
) -> Obstacle {
    let directory = root.nearest_directory(&step.path);
    find_obstacle(step, root.facts(&step.path), directory)
        .unwrap_or_else(|| Obstacle::Failed { problem: error.to_string() })
}
