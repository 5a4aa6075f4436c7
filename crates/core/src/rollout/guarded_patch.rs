//! Patches of a Node with preconditions. Kubelet, daemon and others write to Nodes all the time, so
//! a precondition on the resource version might never hold. A patch tests only the fields that the
//! decision was based on.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

/// The fields that a decision was based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatchPreconditions<'a> {
    /// These annotations.
    pub annotations: &'a [&'a str],
    /// The labels, which decide a machine's pool.
    pub labels: bool,
}

/// Converts a merge patch of annotations, labels, taints and `unschedulable` into a JSON patch. The
/// API server refuses it if a precondition has changed, or the taints it replaces have.
#[must_use]
pub fn guarded_patch(node: &Node, patch: &Value, grounds: PatchPreconditions<'_>) -> Vec<Value> {
    let mut steps = Vec::new();
    if let Some(labels) = node.metadata.labels.as_ref().filter(|_| grounds.labels) {
        steps.push(json!({"op": "test", "path": "/metadata/labels", "value": labels}));
    }
    let seen = node.metadata.annotations.as_ref();
    for key in grounds.annotations {
        if let Some(value) = seen.and_then(|annotations| annotations.get(*key)) {
            let path = format!("/metadata/annotations/{}", escape_pointer(key));
            steps.push(json!({"op": "test", "path": path, "value": value}));
        }
    }
    let maps = [("annotations", seen), ("labels", node.metadata.labels.as_ref())];
    for (field, seen) in maps {
        let Some(entries) = patch["metadata"][field].as_object().filter(|map| !map.is_empty())
        else {
            continue;
        };
        if seen.is_none() {
            steps.push(json!({"op": "add", "path": format!("/metadata/{field}"), "value": {}}));
        }
        for (key, value) in entries {
            let path = format!("/metadata/{field}/{}", escape_pointer(key));
            if !value.is_null() {
                steps.push(json!({"op": "add", "path": path, "value": value}));
            } else if seen.is_some_and(|seen| seen.contains_key(key)) {
                steps.push(json!({"op": "remove", "path": path}));
            }
        }
    }
    steps.extend(spec_operations(node, &patch["spec"]));
    steps
}

fn spec_operations(node: &Node, patch: &Value) -> Vec<Value> {
    let mut steps = Vec::new();
    let Some(patch) = patch.as_object().filter(|patch| !patch.is_empty()) else { return steps };
    if node.spec.is_none() {
        steps.push(json!({"op": "add", "path": "/spec", "value": {}}));
    }
    if let Some(unschedulable) = patch.get("unschedulable") {
        let value = unschedulable == &json!(true);
        steps.push(json!({"op": "add", "path": "/spec/unschedulable", "value": value}));
    }
    if let Some(taints) = patch.get("taints") {
        let seen = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        if let Some(seen) = seen {
            steps.push(json!({"op": "test", "path": "/spec/taints", "value": seen}));
        }
        match (seen.is_some(), taints.is_null()) {
            (true, true) => steps.push(json!({"op": "remove", "path": "/spec/taints"})),
            (_, false) => steps.push(json!({"op": "add", "path": "/spec/taints", "value": taints})),
            (false, true) => {}
        }
    }
    steps
}

/// Escapes a key for a JSON pointer.
fn escape_pointer(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap_or_default()
    }

    #[test]
    fn a_patch_tests_only_its_preconditions() {
        let node = node(json!({
            "metadata": {
                "labels": {"role": "worker"},
                "annotations": {"x/desired": "old", "gone": "1"},
            },
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        }));
        let patch = json!({
            "metadata": {"annotations": {"x/desired": "new", "gone": null, "never": null}},
            "spec": {"taints": null},
        });
        assert_eq!(
            guarded_patch(
                &node,
                &patch,
                PatchPreconditions { annotations: &["x/desired", "absent"], labels: true }
            ),
            [
                json!({"op": "test", "path": "/metadata/labels", "value": {"role": "worker"}}),
                json!({"op": "test", "path": "/metadata/annotations/x~1desired", "value": "old"}),
                json!({"op": "remove", "path": "/metadata/annotations/gone"}),
                json!({"op": "add", "path": "/metadata/annotations/x~1desired", "value": "new"}),
                json!({"op": "test", "path": "/spec/taints", "value": [{"key": "a", "effect": "NoSchedule"}]}),
                json!({"op": "remove", "path": "/spec/taints"}),
            ]
        );
    }

    #[test]
    fn missing_maps_are_created() {
        let patch =
            json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"unschedulable": null}});
        assert_eq!(
            guarded_patch(
                &node(json!({})),
                &patch,
                PatchPreconditions { annotations: &[], labels: false }
            ),
            [
                json!({"op": "add", "path": "/metadata/annotations", "value": {}}),
                json!({"op": "add", "path": "/metadata/annotations/a", "value": "b"}),
                json!({"op": "add", "path": "/spec", "value": {}}),
                json!({"op": "add", "path": "/spec/unschedulable", "value": false}),
            ]
        );
    }
}
