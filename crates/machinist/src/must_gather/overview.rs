//! The overview: all pools, and the machines that are not done.

use std::fmt::Write as _;

use machinist_core::api::names::annotation;
use serde_json::Value;

/// The overview as text.
pub(super) fn overview(pools: &[Value], nodes: &[Value]) -> String {
    let mut page = String::from("Pools\n");
    for pool in pools {
        let count = |field: &str| pool["status"][field].as_i64().unwrap_or_default();
        let _ = writeln!(
            page,
            "  {}: {} machines, {} updated, {} degraded; wants {}, has {}",
            name(pool),
            count("machineCount"),
            count("updatedMachineCount"),
            count("degradedMachineCount"),
            text(&pool["spec"]["configuration"]["name"]),
            text(&pool["status"]["configuration"]["name"]),
        );
        for condition in pool["status"]["conditions"].as_array().into_iter().flatten() {
            let type_ = condition["type"].as_str().unwrap_or_default();
            if type_.contains("Degraded") && condition["status"] == "True" {
                let _ = writeln!(page, "    {type_}: {}", text(&condition["message"]));
            }
        }
    }
    page.push_str("Machines that are not done\n");
    for node in nodes {
        let note = |key: &str| text(&node["metadata"]["annotations"][key]);
        if note(annotation::STATE) != "Done" {
            let _ = writeln!(
                page,
                "  {}: {}; has {}, wants {}; {}",
                name(node),
                note(annotation::STATE),
                note(annotation::CURRENT_CONFIG),
                note(annotation::DESIRED_CONFIG),
                note(annotation::REASON),
            );
        }
    }
    page
}

fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

fn text(value: &Value) -> &str {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn degraded_pools_and_unfinished_machines_are_listed() {
        let pool = json!({"metadata": {"name": "worker"}, "spec": {"configuration": {"name": "rendered-worker-2"}},
        "status": {"machineCount": 2, "updatedMachineCount": 1, "conditions": [
            {"type": "Updated", "status": "False"},
            {"type": "NodeDegraded", "status": "True", "message": "node b: no space"},
        ]}});
        let node = |name: &str, state: &str| json!({"metadata": {"name": name, "annotations": {annotation::STATE: state, annotation::CURRENT_CONFIG: "rendered-worker-1"}}});
        assert_eq!(
            overview(&[pool], &[node("a", "Done"), node("b", "Degraded")]),
            "Pools\n  worker: 2 machines, 1 updated, 0 degraded; wants rendered-worker-2, has -\n    NodeDegraded: node b: no space\n\
             Machines that are not done\n  b: Degraded; has rendered-worker-1, wants -; -\n"
        );
    }
}
