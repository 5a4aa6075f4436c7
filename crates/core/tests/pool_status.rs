//! What machines report gets into the status of their pool, within limits.
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use machinist_core::api::names::annotation::{REASON, STATE};
use machinist_core::api::{MachineConfigNode, MachineConfigPool, find_condition};
use machinist_core::rollout::pool_status;
use serde_json::json;

/// A dozen hostile machines filled the status, until the API server refused it.
#[test]
fn a_machine_does_not_push_out_what_others_report() {
    let names: Vec<String> = (0..12).map(|n| format!("a{n}")).chain(["z".to_owned()]).collect();
    let reason = |name: &str| match name {
        "z" => "disk full".to_owned(),
        _ => "x".repeat(250_000),
    };
    let node = |name: &String| -> Node {
        let annotations = json!({STATE: "Degraded", REASON: reason(name)});
        let labels = json!({"node-role.kubernetes.io/worker": ""});
        let metadata = json!({"name": name, "annotations": annotations, "labels": labels});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    };
    let report = |name: &String| -> MachineConfigNode {
        let condition = json!({"type": "NodeDegraded", "status": "True", "reason": "R", "message": reason(name),
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let spec = json!({"node": {"name": name}, "pool": {"name": "worker"}, "configVersion": {"desired": "x"}});
        let status = json!({"conditions": [condition]});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec, "status": status}))
            .unwrap()
    };
    let (nodes, reports): (Vec<Node>, Vec<MachineConfigNode>) =
        names.iter().map(|name| (node(name), report(name))).unzip();
    let pool = json!({"metadata": {"name": "worker"}, "spec": {"configuration": {"name": "x"}}});
    let pool: MachineConfigPool = serde_json::from_value(pool).unwrap();
    let now = Time(Timestamp::UNIX_EPOCH);
    let (nodes, reports): (Vec<&Node>, Vec<&MachineConfigNode>) =
        (nodes.iter().collect(), reports.iter().collect());
    let status = pool_status(&pool, &nodes, &reports, None, &now);
    assert_eq!(status.degraded_machine_count, Some(13));
    let found = find_condition(status.conditions.as_deref().unwrap_or_default(), "NodeDegraded");
    let message = found.and_then(|condition| condition.message.as_deref()).unwrap();
    assert!(message.len() <= 32 << 10, "{}", message.len());
    assert!(message.contains("Node a0 is reporting: \"xxx"), "{message:.100}");
    assert!(message.contains("Node z is reporting: \"disk full\""), "{message:.100}");
}
