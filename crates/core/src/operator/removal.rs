//! What has to end before the components are removed: a machine that nobody uncordons would stay out of service.

use serde_json::Value;

use crate::api::names::annotation::{DESIRED_DRAIN, LAST_APPLIED_DRAIN, machinist::DRAIN_STARTED};

/// The machines in a list of Nodes that the controller has cordoned or has to drain or uncordon. Their metadata is
/// enough.
#[must_use]
pub fn machines_in_drain(nodes: &Value) -> Vec<String> {
    let all = nodes["items"].as_array().into_iter().flatten();
    let is_in_drain = |node: &&Value| {
        let annotations = &node["metadata"]["annotations"];
        let text = |key: &str| annotations[key].as_str().unwrap_or_default();
        !text(DRAIN_STARTED).is_empty() || text(DESIRED_DRAIN) != text(LAST_APPLIED_DRAIN)
    };
    let name = |node: &Value| node["metadata"]["name"].as_str().map(str::to_owned);
    all.filter(is_in_drain).filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_machine_is_in_its_drain_until_it_is_uncordoned() {
        for (annotations, expected) in [
            (json!(null), false),
            (json!({DESIRED_DRAIN: "uncordon-a", LAST_APPLIED_DRAIN: "uncordon-a"}), false),
            (json!({DESIRED_DRAIN: "drain-a"}), true),
            (json!({DESIRED_DRAIN: "drain-a", DRAIN_STARTED: "2026-01-01T00:00:00Z"}), true),
            (
                json!({DESIRED_DRAIN: "drain-a", LAST_APPLIED_DRAIN: "drain-a", DRAIN_STARTED: "2026-01-01T00:00:00Z"}),
                true,
            ),
            (json!({DESIRED_DRAIN: "uncordon-a", LAST_APPLIED_DRAIN: "drain-a"}), true),
        ] {
            let nodes =
                json!({"items": [{"metadata": {"name": "n1", "annotations": annotations}}]});
            let found = machines_in_drain(&nodes);
            assert_eq!(found == ["n1"], expected, "{annotations}");
        }
        assert!(machines_in_drain(&json!({})).is_empty());
    }
}
