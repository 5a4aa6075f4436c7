use super::*;
use crate::api::names::annotation::{CURRENT_CONFIG, DESIRED_CONFIG, STATE};
use serde_json::{Value, json};

fn digest(letter: &str) -> String {
    letter.repeat(64)
}

fn request() -> UpgradeRequest {
    UpgradeRequest {
        id: "r2".to_owned(),
        sha256: digest("b"),
        size: 7,
        architecture: Some("amd64".to_owned()),
        allow_downgrade: false,
    }
}

fn report(sha256: &str, more: &Value) -> Value {
    let mut report = json!({
        "version": "0.1.0", "sha256": sha256, "since": "2026-01-01T10:00:00Z", "architecture": "amd64",
    });
    for (key, value) in more.as_object().unwrap() {
        report[key] = value.clone();
    }
    report
}

fn node(name: &str, report: Option<Value>, more: &Value) -> Node {
    let mut annotations = json!({CURRENT_CONFIG: "x", DESIRED_CONFIG: "x", STATE: "Done"});
    if let Some(report) = report {
        annotations[machinist::DAEMON] = json!(report.to_string());
    }
    for (key, value) in more.as_object().unwrap() {
        annotations[key] = value.clone();
    }
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": annotations},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap()
}

/// A machine that runs the old daemon.
fn old(name: &str) -> Node {
    node(name, Some(report(&digest("a"), &json!({}))), &json!({}))
}

fn done(name: &str) -> Node {
    node(name, Some(report(&digest("b"), &json!({}))), &json!({}))
}

fn asked(name: &str) -> Node {
    let text = serde_json::to_string(&request()).unwrap();
    node(name, Some(report(&digest("a"), &json!({}))), &json!({machinist::UPGRADE: text}))
}

fn failed(name: &str, id: &str) -> Node {
    let failed = json!({"failed": {"id": id, "reason": "it crashed"}});
    node(name, Some(report(&digest("a"), &failed)), &json!({}))
}

fn decide(nodes: &[Node], annotations: &Value, spec: &Value, now: &str) -> UpgradeDecision {
    let mut pool = json!({"metadata": {"name": "worker", "annotations": annotations}, "spec": {}});
    for (key, value) in spec.as_object().unwrap() {
        pool["spec"][key] = value.clone();
    }
    let pool: MachineConfigPool = serde_json::from_value(pool).unwrap();
    let policy = RolloutPolicy::from_annotations(&pool).unwrap();
    let max = crate::rollout::max_unavailable(&pool, nodes.len()).unwrap();
    let now: Time = serde_json::from_value(json!(now)).unwrap();
    let nodes: Vec<&Node> = nodes.iter().collect();
    decide_upgrade(&pool, &nodes, &request(), &policy, max, &now)
}

/// What it is, the machines, annotations and spec of the pool, and who is next.
type UpgradeDecisionCase<'a> = (&'a str, Vec<Node>, &'a Value, &'a Value, &'a [&'a str]);

const NOW: &str = "2026-01-01T12:00:00Z";

#[test]
fn machines_are_asked_a_few_at_a_time() {
    let none = json!({});
    let two = json!({"maxUnavailable": 2});
    let cases: [UpgradeDecisionCase<'_>; 9] = [
        ("one by one", vec![old("a"), old("b"), old("c")], &none, &none, &["a"]),
        ("two", vec![old("a"), old("b"), old("c")], &none, &two, &["a", "b"]),
        ("one works on it", vec![asked("a"), old("b")], &none, &none, &[]),
        ("one is done", vec![done("a"), old("b"), old("c")], &none, &none, &["b"]),
        ("all are done", vec![done("a"), done("b")], &none, &none, &[]),
        ("one has failed", vec![failed("a", "r2"), old("b")], &none, &two, &[]),
        ("one failed earlier", vec![failed("a", "r1"), old("b")], &none, &two, &["a", "b"]),
        (
            "one may fail",
            vec![failed("a", "r2"), old("b")],
            &json!({machinist::MAX_FAILURES: "1"}),
            &two,
            &["b"],
        ),
        (
            "a canary",
            vec![old("a"), old("b"), old("c")],
            &json!({machinist::CANARY: "1"}),
            &two,
            &["a"],
        ),
    ];
    for (what, nodes, annotations, spec, expected) in cases {
        let decision = decide(&nodes, annotations, spec, NOW);
        assert_eq!(decision.next, expected, "{what}: {decision:?}");
    }
    let over = |nodes: &[Node]| {
        let decision = decide(nodes, &none, &none, NOW);
        (decision.is_over(), decision.is_complete())
    };
    assert_eq!(over(&[done("a"), done("b")]), (true, true));
    assert_eq!(over(&[failed("a", "r2"), old("b")]), (true, false));
    assert_eq!(over(&[failed("a", "r2"), asked("b")]), (false, false));
    assert_eq!(over(&[done("a"), old("b")]), (false, false));
}

#[test]
fn windows_soak_time_and_pauses_hold_machines_back() {
    let soak = json!({machinist::CANARY: "1", machinist::CANARY_SOAK: "3h"});
    let window = json!({machinist::MAINTENANCE_WINDOW: "02:00-05:00 UTC"});
    let nodes = [done("a"), old("b")];
    let decision = decide(&nodes, &soak, &json!({}), NOW);
    assert_eq!(decision.next, [""; 0]);
    let wake = decision.wake.unwrap();
    assert_eq!(wake.0.to_string(), "2026-01-01T13:00:00Z");
    assert_eq!(decide(&nodes, &soak, &json!({}), "2026-01-01T13:00:00Z").next, ["b"]);
    let closed = decide(&nodes, &window, &json!({}), NOW);
    assert!(matches!(closed.halted, Some(UpgradeHalted::OutsideWindow { .. })), "{closed:?}");
    assert_eq!(decide(&nodes, &window, &json!({}), "2026-01-02T03:00:00Z").next, ["b"]);
    let paused = decide(&nodes, &json!({}), &json!({"paused": true}), NOW);
    assert_eq!((paused.halted, paused.next.len()), (Some(UpgradeHalted::Paused), 0));
    // A pool in which nobody waits is not said to wait.
    assert_eq!(decide(&[done("a")], &window, &json!({"paused": true}), NOW).halted, None);
}

#[test]
fn a_machine_that_cannot_be_asked_says_why() {
    let old_report = || Some(report(&digest("a"), &json!({})));
    let cannot = json!({"cannotUpgrade": "a package owns it: apt-get install machinist"});
    let not_ready: Node = {
        let mut node = old("a");
        node.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "Unknown".into();
        node
    };
    for (node, part) in [
        (node("a", None, &json!({})), "does not say which version"),
        (node("a", Some(report(&digest("a"), &cannot)), &json!({})), "apt-get install"),
        (
            node("a", Some(report(&digest("a"), &json!({"architecture": "arm64"}))), &json!({})),
            "it is arm64, and the binary is for amd64",
        ),
        (node("a", old_report(), &json!({machinist::HOLD: ""})), "machinist release a"),
        (node("a", old_report(), &json!({STATE: "Working"})), "not done with its config"),
        (not_ready, "not ready"),
        (failed("a", "r2"), "it crashed"),
    ] {
        let decision = decide(std::slice::from_ref(&node), &json!({}), &json!({}), NOW);
        let text = format!("{:?}", decision.machines["a"]);
        assert!(decision.next.is_empty() && text.contains(part), "{part}: {text}");
    }
}
