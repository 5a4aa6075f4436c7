//! What the rollout writes to a Node besides its config: the taint that keeps pods off machines
//! that are about to be updated, the end of the taint of machines that are new, and the control plane label.

use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::{Value, json};

use crate::api::ControllerConfig;
use crate::api::names::annotation::machinist;
use crate::api::names::{annotation, label};

use crate::node::{NodeView, RolloutTarget};

/// The taint of machines that still have to be updated, so that pods prefer other machines.
pub const UPDATE_IN_PROGRESS_TAINT: &str = "UpdateInProgress";

/// The taints of new machines that no pod shall run on before they have their config. Whoever makes the machine sets
/// one; the second name is one that the cluster autoscaler expects to go away.
pub const STARTUP_TAINTS: [&str; 2] = [
    "machinist.dev/unconfigured",
    "startup-taint.cluster-autoscaler.kubernetes.io/machinist-unconfigured",
];

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
    let is_configured = view.is_updated_to(goal);
    if let Some(taints) = taints(node, Some(will_change), is_configured) {
        patch["spec"]["taints"] = taints;
    }
    let labels = node.metadata.labels.as_ref();
    let has = |key| labels.is_some_and(|labels| labels.contains_key(key));
    if has(label::NODE_ROLE_MASTER) && !has(label::NODE_ROLE_CONTROL_PLANE) {
        patch["metadata"]["labels"] = json!({label::NODE_ROLE_CONTROL_PLANE: ""});
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}

/// The patch that lets pods run on a new machine, once it has the config of its pool. Also for a pool that is paused.
#[must_use]
pub fn startup_taint_patch<'a>(node: &Node, goal: impl Into<RolloutTarget<'a>>) -> Option<Value> {
    let taints = taints(node, None, NodeView(node).is_updated_to(goal))?;
    Some(json!({"spec": {"taints": taints}}))
}

/// The control plane topology for the annotation of machines: the only machine of a cluster cannot
/// move its pods elsewhere.
#[must_use]
pub fn control_plane_topology(config: &ControllerConfig) -> Option<String> {
    config.spec.infra.as_ref()?.status.as_ref()?.control_plane_topology.clone()
}

/// The patch that gives a machine its config and removes the taint. It withdraws a drain that the
/// machine still waits for, and requests an uncordon if it has the config already.
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
    if NodeView(node).awaits_drain() {
        // The drain is for a config that it no longer gets. Without the last request, a repeated request
        // to uncordon is a new one.
        annotations[annotation::LAST_APPLIED_DRAIN] = Value::Null;
        annotations[annotation::DESIRED_DRAIN] = match NodeView(node).current_config() {
            current if current == config => json!(format!("uncordon-{config}")),
            _ => Value::Null,
        };
    }
    let mut patch = json!({"metadata": {"annotations": annotations}});
    if let Some(taints) = taints(node, Some(false), false) {
        patch["spec"]["taints"] = taints;
    }
    patch
}

/// The patch that withdraws the drain of a machine that is to stay on its config, and uncordons it.
#[must_use]
pub fn withdraw_patch(node: &Node) -> Value {
    target_patch(node, NodeView(node).current_config())
}

/// The patch that makes a machine compare itself with a config and to change nothing, or, without a
/// config, that it is no longer observed. `None` if nothing has to change.
#[must_use]
pub fn observe_patch(node: &Node, config: Option<&str>) -> Option<Value> {
    let view = NodeView(node);
    let mut patch = json!({});
    if view.annotation(machinist::OBSERVED_CONFIG) != config {
        patch["metadata"]["annotations"][machinist::OBSERVED_CONFIG] = json!(config);
    }
    if config.is_none() && view.annotation(machinist::OBSERVATION).is_some() {
        patch["metadata"]["annotations"][machinist::OBSERVATION] = Value::Null;
    }
    if let Some(taints) = config.and_then(|_| taints(node, Some(false), false)) {
        patch["spec"]["taints"] = taints;
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}

/// The desired taints, if they differ from the present ones. `for_update` says whether the machine has the taint of an
/// update, `None` that this stays as it is.
fn taints(node: &Node, for_update: Option<bool>, is_configured: bool) -> Option<Value> {
    let present = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let is_update =
        |taint: &Taint| taint.key == UPDATE_IN_PROGRESS_TAINT && taint.effect == "PreferNoSchedule";
    let had_update = present.iter().any(is_update);
    let wants_update = for_update.unwrap_or(had_update);
    let stays = |taint: &Taint| match () {
        () if is_update(taint) => wants_update,
        () => !is_configured || !STARTUP_TAINTS.contains(&taint.key.as_str()),
    };
    let mut taints: Vec<Taint> = present.iter().filter(|taint| stays(taint)).cloned().collect();
    if wants_update && !had_update {
        taints.push(Taint {
            key: UPDATE_IN_PROGRESS_TAINT.to_owned(),
            effect: "PreferNoSchedule".to_owned(),
            ..Taint::default()
        });
    }
    if taints == present {
        return None;
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
    fn a_new_machine_loses_its_startup_taint_when_it_has_its_config() {
        let with = |state: &str, current: &str| {
            let startup = STARTUP_TAINTS.map(|key| json!({"key": key, "effect": "NoSchedule"}));
            let mut taints = vec![json!({"key": "x", "effect": "NoExecute"})];
            taints.extend(startup);
            node(&json!({
                "metadata": {"name": "a", "annotations": {
                    annotation::CURRENT_CONFIG: current, annotation::DESIRED_CONFIG: "new",
                    annotation::STATE: state,
                }},
                "spec": {"taints": taints},
            }))
        };
        let freed = json!({"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}});
        for (state, current, expected) in [
            ("Done", "new", Some(freed)),
            ("Done", "old", None),
            ("Working", "new", None),
            ("Degraded", "new", None),
        ] {
            let new = with(state, current);
            assert_eq!(startup_taint_patch(&new, "new"), expected, "{state} {current}");
            assert_eq!(housekeeping_patch(&new, "new"), expected, "{state} {current}");
        }
        // One that is updated keeps it, and gets the other.
        let patch = housekeeping_patch(&with("Done", "new"), "newer").unwrap_or_default();
        assert_eq!(patch["spec"]["taints"].as_array().map(Vec::len), Some(4));
    }

    #[test]
    fn an_observed_machine_gets_the_config_to_compare_and_loses_the_taint() {
        let old = machine("old", &[UPDATE_IN_PROGRESS_TAINT]);
        let patch = observe_patch(&old, Some("new")).unwrap_or_default();
        let annotations = &patch["metadata"]["annotations"];
        assert_eq!(annotations, &json!({machinist::OBSERVED_CONFIG: "new"}));
        assert!(patch["spec"].as_object().is_some_and(|spec| spec["taints"].is_null()));
        assert_eq!(observe_patch(&machine("old", &[]), None), None);
        let observed = json!({machinist::OBSERVED_CONFIG: "new", machinist::OBSERVATION: "x"});
        let observed = node(&json!({"metadata": {"name": "a", "annotations": observed}}));
        assert_eq!(observe_patch(&observed, Some("new")), None);
        let end = observe_patch(&observed, None).unwrap_or_default();
        let gone = json!({machinist::OBSERVED_CONFIG: null, machinist::OBSERVATION: null});
        assert_eq!(end["metadata"]["annotations"], gone);
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

    #[test]
    fn a_machine_that_waits_for_a_drain_is_uncordoned_if_its_config_returns() {
        let waiting = |applied: &str, restart: &str| {
            node(&json!({"metadata": {"name": "a", "annotations": {
                annotation::CURRENT_CONFIG: "old", annotation::DESIRED_CONFIG: "new",
                annotation::DESIRED_DRAIN: "drain-new", annotation::LAST_APPLIED_DRAIN: applied,
                annotation::machinist::REBOOT_PENDING: restart,
            }}}))
        };
        let drain = |node: &Node, goal: &str| {
            let patch = target_patch(node, goal);
            let annotations = patch["metadata"]["annotations"].as_object().cloned();
            annotations.and_then(|all| all.get(annotation::DESIRED_DRAIN).cloned())
        };
        let node = waiting("uncordon-old", "");
        assert_eq!(drain(&node, "old"), Some(json!("uncordon-old")));
        let patch = target_patch(&node, "old");
        assert!(patch["metadata"]["annotations"][annotation::LAST_APPLIED_DRAIN].is_null());
        assert_eq!(drain(&node, "newer"), Some(Value::Null));
        // It is drained and may be writing, or has written and waits for its reboot.
        assert_eq!(drain(&waiting("drain-new", ""), "old"), None);
        assert_eq!(drain(&waiting("uncordon-old", "new"), "old"), None);
    }
}
