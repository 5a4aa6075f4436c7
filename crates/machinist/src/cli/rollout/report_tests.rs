//! Reports of small snapshots.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::report::{MachineCounts, PoolReport, PoolState, SourceState, with_sources};
use super::text;
use crate::cli::cluster::snapshot::ClusterSnapshot;

const PREFIX: &str = "machineconfiguration.openshift.io";

fn now() -> Time {
    serde_json::from_value(json!("2026-11-15T10:10:00Z")).unwrap()
}

fn condition(type_: &str, status: &str, minute: u32, message: &str) -> Value {
    json!({
        "type": type_, "status": status, "message": message,
        "lastTransitionTime": format!("2026-11-15T10:{minute:02}:00Z"),
    })
}

/// A machine: name, current and desired config, state, and other annotations.
fn node(name: &str, current: &str, desired: &str, state: &str, more: &Value) -> Value {
    let mut annotations = json!({
        format!("{PREFIX}/currentConfig"): current,
        format!("{PREFIX}/desiredConfig"): desired,
        format!("{PREFIX}/state"): state,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        annotations[key] = value.clone();
    }
    json!({
        "metadata": {"name": name, "labels": {"role": "w"}, "annotations": annotations},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn machine(name: &str, conditions: &[Value]) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"node": {"name": name}, "pool": {"name": "worker"}, "configVersion": {"desired": "new"}},
        "status": {"conditions": conditions},
    })
}

fn snapshot(pool: &Value, nodes: &[Value], machines: &[Value]) -> ClusterSnapshot {
    let mut pool_object = json!({
        "metadata": {"name": "worker"},
        "spec": {"configuration": {"name": "new"}, "nodeSelector": {"matchLabels": {"role": "w"}}},
        "status": {"conditions": [condition("Updating", "True", 0, "")]},
    });
    json_patch(&mut pool_object, pool);
    ClusterSnapshot {
        pools: vec![serde_json::from_value(pool_object).unwrap()],
        nodes: nodes.iter().map(|node| serde_json::from_value(node.clone()).unwrap()).collect(),
        machine_config_nodes: machines
            .iter()
            .map(|one| serde_json::from_value(one.clone()).unwrap())
            .collect(),
        ..ClusterSnapshot::default()
    }
}

fn json_patch(into: &mut Value, patch: &Value) {
    match patch {
        Value::Object(fields) => {
            for (key, value) in fields {
                json_patch(&mut into[key], value);
            }
        }
        other => *into = other.clone(),
    }
}

/// The report of a pool whose sources have made what it has.
fn report_of(snapshot: &ClusterSnapshot) -> PoolReport {
    let pool = &snapshot.pools[0];
    with_sources(snapshot, pool, &snapshot.members(pool), SourceState::default(), &now())
}

#[test]
fn every_machine_is_counted_once_and_has_a_reason() {
    let none = json!({});
    let mut unready = node("h", "old", "old", "Done", &none);
    unready["status"]["conditions"] = json!([condition("Ready", "False", 7, "")]);
    let draining = json!({format!("{PREFIX}/desiredDrain"): "drain-new", "machinist.dev/drain-started": "2026-11-15T10:06:00Z"});
    let nodes = [
        node("a", "new", "new", "Done", &none),
        node("b", "new", "new", "Done", &none),
        node("c", "old", "new", "Working", &none),
        node("d", "old", "new", "Working", &draining),
        node("e", "old", "new", "Working", &json!({"machinist.dev/restart-pending": "new"})),
        node("f", "old", "new", "Degraded", &json!({format!("{PREFIX}/reason"): "disk full"})),
        node("g", "old", "old", "Done", &none),
        unready,
    ];
    let blocked = "Node Drain has not succeeded: pod x/y blocked by budget z for 4 m";
    let machines = [
        machine("a", &[condition("Updated", "True", 4, "")]),
        machine("c", &[condition("UpdateExecuted", "Unknown", 8, "")]),
        machine("d", &[condition("UpdateExecuted", "Unknown", 9, blocked)]),
        machine("f", &[condition("NodeDegraded", "True", 5, "disk full")]),
    ];
    let spec = json!({
        "metadata": {"annotations": {"machinist.dev/reboot": "deferred"}},
        "spec": {"maxUnavailable": 2},
    });
    let report = report_of(&snapshot(&spec, &nodes, &machines));
    let counts = MachineCounts {
        total: 8,
        updated: 2,
        working: 2,
        reboot_pending: 1,
        degraded: 1,
        held: 0,
        not_ready: 1,
        waiting: 1,
    };
    assert_eq!(report.machines, counts);
    let value = serde_json::to_value(&report).unwrap();
    let shown: Vec<(&str, &str, &str)> = value["pending"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (
                one["machine"].as_str().unwrap(),
                one["waiting"]["reason"].as_str().unwrap(),
                one["since"].as_str().map_or("", |time| &time[14..16]),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("c", "working", "08"),
            ("d", "draining", "06"),
            ("e", "restartPending", ""),
            ("f", "failing", "05"),
            ("g", "noCapacity", "00"),
            ("h", "notReady", "07"),
        ]
    );
    assert_eq!(value["pending"][1]["drain"], blocked);
    // An administrator must allow the reboot, so the end is unknown.
    assert!(report.estimate.is_none());
    let plain = anstream::adapter::strip_str(&text::render(&report, false, &now())).to_string();
    for line in [
        "worker → new",
        "  2 of 8 machines updated, 2 working, 1 waiting for a reboot, 1 failed, 1 not ready, 1 waiting;",
        "  f: failed on this config: disk full, for 5m",
        "  d: is being drained: Node Drain has not succeeded: pod x/y blocked by budget z for 4 m, for 4m",
        "  g: waits for ",
    ] {
        assert!(plain.contains(line), "{line}:\n{plain}");
    }
    assert!(!plain.contains('█') && text::render(&report, true, &now()).contains('█'));
}

#[test]
fn the_end_is_estimated_once_a_machine_has_finished() {
    let none = json!({});
    let mut nodes = vec![node("a", "new", "new", "Done", &none)];
    nodes.push(node("b", "old", "new", "Working", &none));
    nodes.push(node("c", "old", "old", "Done", &none));
    assert!(report_of(&snapshot(&none, &nodes, &[])).estimate.is_none());
    // The first took four minutes, and two are left, one after the other.
    let machines = [machine("a", &[condition("Uncordoned", "True", 4, "")])];
    let estimate = report_of(&snapshot(&none, &nodes, &machines)).estimate.unwrap();
    assert_eq!(estimate.seconds, 480);
    assert_eq!(serde_json::to_value(&estimate.end).unwrap(), "2026-11-15T10:18:00Z");
}

#[test]
fn states_and_when_a_watch_ends() {
    let none = json!({});
    let done = node("a", "new", "new", "Done", &none);
    let old = node("a", "old", "old", "Done", &none);
    let updated = json!({"status": {
        "configuration": {"name": "new"}, "conditions": [condition("Updated", "True", 0, "")],
    }});
    let bad = json!({"metadata": {"annotations": {"machinist.dev/bad-configs": "new"}}});
    let soon = json!({"metadata": {"annotations": {
        "machinist.dev/maintenance-window": "Mon 02:00-03:00 UTC",
    }}});
    let wrong = json!({"spec": {"maxUnavailable": "abc"}});
    for (pool, node, expected, settled) in [
        (&updated, &done, PoolState::Updated, true),
        // The machines are updated, and the status of the pool does not confirm it yet.
        (&none, &done, PoolState::Updating, false),
        (&none, &old, PoolState::Updating, false),
        (&json!({"spec": {"paused": true}}), &old, PoolState::Paused, false),
        (&soon, &old, PoolState::Halted, false),
        (&bad, &old, PoolState::Invalid, true),
        (&wrong, &old, PoolState::Invalid, true),
        (&json!({"spec": {"configuration": {"name": null}}}), &old, PoolState::Empty, true),
    ] {
        let report = report_of(&snapshot(pool, std::slice::from_ref(node), &[]));
        assert_eq!((report.state, report.is_settled()), (expected, settled), "{pool}");
    }
    // Nothing more happens before an administrator acts.
    let drift = json!({
        "machinist.dev/drifted": r#"[{"path":"/etc/motd","kind":"content","by":"vim (pid 812)"}]"#,
    });
    let drifted = node("a", "new", "new", "Degraded", &drift);
    let failed = |on: &str| {
        let on = json!({"machinist.dev/failed-config": on});
        node("b", "old", "new", "Degraded", &on)
    };
    let healing = json!({"machinist.dev/heal": "now"});
    let held = node("c", "old", "old", "Done", &json!({"machinist.dev/hold": "why"}));
    for (nodes, expected) in [
        (vec![drifted.clone()], PoolState::Stuck),
        (vec![drifted.clone(), done.clone()], PoolState::Stuck),
        (vec![held.clone(), done.clone()], PoolState::Stuck),
        // One failed, and the other one waits for it.
        (vec![failed("new"), old.clone()], PoolState::Stuck),
        // The verdict is about an earlier config, or its remedy is under way.
        (vec![failed("old")], PoolState::Updating),
        (vec![drifted, node("d", "new", "new", "Degraded", &healing)], PoolState::Updating),
        // One goes on.
        (vec![held, old], PoolState::Updating),
    ] {
        let report = report_of(&snapshot(&none, &nodes, &[]));
        assert_eq!(report.state, expected, "{nodes:?}");
        assert_eq!(report.is_settled(), expected == PoolState::Stuck);
    }
    // MachineConfigs count, too: a change that is not rendered yet, or cannot be rendered.
    let snapshot = snapshot(&updated, &[done], &[]);
    for (sources, expected) in [
        (SourceState { is_ahead: true, problem: None }, PoolState::Rendering),
        (SourceState { is_ahead: false, problem: Some("bad".to_owned()) }, PoolState::Invalid),
    ] {
        let pool = &snapshot.pools[0];
        let report = with_sources(&snapshot, pool, &snapshot.members(pool), sources, &now());
        assert_eq!(report.state, expected);
    }
}
