//! What the rollout writes to a Node besides its config: the taint that keeps pods off machines
//! that are about to be updated, and the control plane label.

use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::{Value, json};

use crate::api::ControllerConfig;
use crate::api::names::{annotation, label};

use crate::node::{NodeView, RolloutTarget};

/// The taint of machines that still have to be updated, so that pods prefer other machines.
pub const UPDATE_IN_PROGRESS_TAINT: &str = "UpdateInProgress";

/// The merge patch for a machine of a pool that is not paused. `None` if nothing has to change.
#[must_use]
pub fn housekeeping_patch<'a>(node: &Node, goal: impl Into<RolloutTarget<'a>>) -> Option<Value> {
    let goal = goal.into();
    let view = NodeView(node);
    let has_image = |key| view.annotation(key).is_some();
    let will_change = match goal.image {
        Some(_) => view.needs_target(goal),
        None => {
            let leaves_image =
                has_image(annotation::DESIRED_IMAGE) && has_image(annotation::CURRENT_IMAGE);
            view.desired_config() != goal.config || leaves_image
        }
    };
    let mut patch = json!({});
    if let Some(taints) = taints(node, will_change) {
        patch["spec"]["taints"] = taints;
    }
    let labels = node.metadata.labels.as_ref();
    let has = |key| labels.is_some_and(|labels| labels.contains_key(key));
    if has(label::NODE_ROLE_MASTER) && !has(label::NODE_ROLE_CONTROL_PLANE) {
        patch["metadata"]["labels"] = json!({label::NODE_ROLE_CONTROL_PLANE: ""});
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}

/// The control plane topology for the annotation of machines: the only machine of a cluster cannot
/// move its pods elsewhere.
#[must_use]
pub fn control_plane_topology(config: &ControllerConfig) -> Option<String> {
    config.spec.infra.as_ref()?.status.as_ref()?.control_plane_topology.clone()
}

/// The patch that gives a machine its config and removes the taint.
#[must_use]
pub fn target_patch<'a>(node: &Node, goal: impl Into<RolloutTarget<'a>>) -> Value {
    let goal = goal.into();
    let config = goal.image.map_or(goal.config, |image| image.config);
    let mut annotations = json!({annotation::DESIRED_CONFIG: config});
    match goal.image {
        Some(image) => annotations[annotation::DESIRED_IMAGE] = image.pull_spec.into(),
        None if NodeView(node).has_desired_image() => {
            annotations[annotation::DESIRED_IMAGE] = Value::Null;
        }
        None => {}
    }
    let mut patch = json!({"metadata": {"annotations": annotations}});
    if let Some(taints) = taints(node, false) {
        patch["spec"]["taints"] = taints;
    }
    patch
}

/// The desired taints, if they differ from the present ones.
fn taints(node: &Node, is_wanted: bool) -> Option<Value> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let is_ours =
        |taint: &Taint| taint.key == UPDATE_IN_PROGRESS_TAINT && taint.effect == "PreferNoSchedule";
    if taints.iter().any(is_ours) == is_wanted {
        return None;
    }
    let mut taints: Vec<Taint> = taints.into_iter().filter(|taint| !is_ours(taint)).collect();
    if is_wanted {
        taints.push(Taint {
            key: UPDATE_IN_PROGRESS_TAINT.to_owned(),
            effect: "PreferNoSchedule".to_owned(),
            ..Taint::default()
        });
    }
    if taints.is_empty() { Some(Value::Null) } else { serde_json::to_value(taints).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: &Value) -> Node {
        serde_json::from_value(value.clone()).unwrap_or_default()
    }

    fn machine(desired: &str, taints: &[&str]) -> Node {
        let taint = |key: &&str| json!({"key": key, "effect": "PreferNoSchedule"});
        node(&json!({
            "metadata": {"name": "a", "annotations": {annotation::DESIRED_CONFIG: desired}},
            "spec": {"taints": taints.iter().map(taint).collect::<Vec<_>>()},
        }))
    }

    #[test]
    fn machines_to_be_updated_have_the_taint() {
        let keys = |patch: Option<Value>| {
            patch.map(|patch| match &patch["spec"]["taints"] {
                Value::Array(taints) => {
                    taints.iter().filter_map(|t| t["key"].as_str().map(str::to_owned)).collect()
                }
                _ => Vec::new(),
            })
        };
        let taint = UPDATE_IN_PROGRESS_TAINT;
        assert_eq!(
            keys(housekeeping_patch(&machine("old", &["x"]), "new")),
            Some(vec!["x".into(), taint.into()])
        );
        assert_eq!(keys(housekeeping_patch(&machine("old", &[taint]), "new")), None);
        assert_eq!(
            keys(housekeeping_patch(&machine("new", &["x", taint]), "new")),
            Some(vec!["x".into()])
        );
        assert_eq!(keys(housekeeping_patch(&machine("new", &[taint]), "new")), Some(vec![]));
        assert_eq!(keys(housekeeping_patch(&machine("new", &[]), "new")), None);
    }

    #[test]
    fn control_plane_machines_get_their_label() {
        let master = node(&json!({"metadata": {
            "labels": {label::NODE_ROLE_MASTER: ""},
            "annotations": {annotation::DESIRED_CONFIG: "new"},
        }}));
        let patch = housekeeping_patch(&master, "new").unwrap_or_default();
        assert_eq!(patch, json!({"metadata": {"labels": {label::NODE_ROLE_CONTROL_PLANE: ""}}}));
    }

    #[test]
    fn a_machine_that_gets_its_config_loses_the_taint_in_the_same_write() {
        let patch = target_patch(&machine("old", &[UPDATE_IN_PROGRESS_TAINT]), "new");
        assert_eq!(patch["metadata"]["annotations"][annotation::DESIRED_CONFIG], "new");
        assert!(patch["spec"].as_object().is_some_and(|spec| spec["taints"].is_null()));
    }
}
