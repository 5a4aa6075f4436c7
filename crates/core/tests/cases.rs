//! Recorded cases with the results of the Machine Config Operator (MCO): the same name, the same
//! spec, and an error where MCO fails.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use machinist_core::api::{ControllerConfig, MachineConfig, MachineConfigPool};
use machinist_core::diff::diff;
use machinist_core::disruption::{DisruptionRules, disruption, with_system_policy};
use machinist_core::ignition::{IgnitionVersion, convert};
use machinist_core::reconcile_check::{ValidationOverrides, check_reconcilable};
use machinist_core::render::render;
use machinist_core::rollout::{RolloutPolicy, decide_rollout, max_unavailable, pool_status};
use serde_json::{Value, json};

fn cases(name: &str) -> Vec<Value> {
    let path = format!("{}/../../tests/cases/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn typed<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

/// Lists every failure, not only the first.
fn report(failures: &[String], total: usize) {
    let count = failures.len();
    assert!(failures.is_empty(), "{count} of {total} differ:\n{}", failures.join("\n"));
}

#[test]
fn rendering_gives_the_same_names_and_specs() {
    let cases = cases("render");
    let mut failures = Vec::new();
    for case in &cases {
        let id = &case["id"];
        let pool: MachineConfigPool = typed(&case["pool"]);
        let configs: Vec<MachineConfig> = typed(&case["machineConfigs"]);
        let controller_config: ControllerConfig = typed(&case["controllerConfig"]);
        let expect = &case["expect"];
        match (render(&pool, &configs, Some(&controller_config)), expect["name"].as_str()) {
            (Ok(rendered), Some(name)) => {
                let spec = serde_json::to_value(&rendered.spec).unwrap();
                if spec != expect["spec"] {
                    failures.push(format!("{id}: spec\n  {spec}\n  {}", expect["spec"]));
                } else if rendered.name != name {
                    failures.push(format!("{id}: name {} expected {name}", rendered.name));
                }
            }
            (Ok(_), None) => failures.push(format!("{id}: expected {}", expect["error"])),
            (Err(error), Some(_)) => failures.push(format!("{id}: unexpected: {error}")),
            (Err(_), None) => {}
        }
    }
    report(&failures, cases.len());
}

#[test]
fn conversion_gives_the_same_configs() {
    let cases = cases("convert");
    let mut failures = Vec::new();
    for case in &cases {
        let (id, expect) = (&case["id"], &case["expect"]);
        let target = IgnitionVersion::parse(case["target"].as_str().unwrap()).unwrap();
        match (convert::convert(&case["config"], &target), expect.get("config")) {
            (Ok(converted), Some(config)) => {
                let found = serde_json::to_value(&converted).unwrap();
                if found != *config {
                    failures.push(format!("{id}:\n  {found}\n  {config}"));
                }
            }
            (Ok(_), None) => failures.push(format!("{id}: expected {}", expect["error"])),
            (Err(error), Some(_)) => failures.push(format!("{id}: unexpected: {error}")),
            (Err(_), None) => {}
        }
    }
    report(&failures, cases.len());
}

#[test]
fn running_machines_refuse_the_same_changes() {
    let cases = cases("reconcile");
    let mut failures = Vec::new();
    for case in &cases {
        let (id, expect) = (&case["id"], &case["expect"]);
        let (old, new): (MachineConfig, MachineConfig) = (typed(&case["old"]), typed(&case["new"]));
        let found = check_reconcilable(&old, &new, ValidationOverrides::default());
        let expected = expect["error"].as_str();
        match (found, expected) {
            (Err(refusal), Some(expected)) => {
                let reason = |text: &str| text.rsplit("\": ").next().unwrap_or_default().to_owned();
                let (found, expected) = (reason(&refusal.to_string()), reason(expected));
                if !expected.contains("parse") && found != expected {
                    failures.push(format!("{id}: {found:?} expected {expected:?}"));
                }
            }
            (Ok(_), Some(expected)) => failures.push(format!("{id}: expected {expected}")),
            (Err(refusal), None) => failures.push(format!("{id}: unexpected: {refusal}")),
            (Ok(_), None) => {}
        }
    }
    report(&failures, cases.len());
}

#[test]
fn changes_require_the_same_actions() {
    let cases = cases("disruption");
    let mut failures = Vec::new();
    for case in &cases {
        let (id, expect) = (&case["id"], &case["expect"]);
        let (old, new): (MachineConfig, MachineConfig) = (typed(&case["old"]), typed(&case["new"]));
        let change = match (
            check_reconcilable(&old, &new, ValidationOverrides::default()),
            expect.get("error"),
        ) {
            (Ok(change), None) => change,
            (Err(_), Some(_)) => continue,
            (found, _) => {
                failures.push(format!("{id}: {:?} expected {}", found.err(), expect["error"]));
                continue;
            }
        };
        let flags = diff(&old, &new, &change).flags;
        let policy = with_system_policy(&typed(&case["policy"]));
        let found = disruption(&change, flags, &DisruptionRules::of_policy(&policy));
        let set = |actions: &Value| -> BTreeSet<String> {
            let actions = actions.as_array().into_iter().flatten();
            actions.map(ToString::to_string).collect()
        };
        let found_actions = serde_json::to_value(&found.actions).unwrap();
        let flags = serde_json::to_value(flags).unwrap();
        let sorted = |names: &Value| -> BTreeSet<String> { typed(names) };
        let equal = set(&found_actions) == set(&expect["actions"])
            && found.files.iter().cloned().collect::<BTreeSet<_>>() == sorted(&expect["files"])
            && found.units.iter().cloned().collect::<BTreeSet<_>>() == sorted(&expect["units"])
            && flags == expect["diff"];
        if !equal {
            failures.push(format!("{id}: {found:?} {flags}\n  expected {expect}"));
        }
    }
    report(&failures, cases.len());
}

#[test]
fn rollouts_decide_the_same() {
    let cases = cases("rollout");
    let mut failures = Vec::new();
    for case in &cases {
        let (id, expect) = (&case["id"], &case["expect"]);
        let mut pool = case["pool"].clone();
        pool["kind"] = "MachineConfigPool".into();
        pool["apiVersion"] = "machineconfiguration.openshift.io/v1".into();
        let pool: MachineConfigPool = typed(&pool);
        let nodes: Vec<Node> = typed(&case["nodes"]);
        let nodes: Vec<&Node> = nodes.iter().collect();
        let now = typed(&Value::from("2026-11-15T00:00:00Z"));
        let status = pool_status(&pool, &nodes, &[], None, &now);
        let mut problems = Vec::new();
        let found = serde_json::to_value(&status).unwrap();
        for (field, expected) in expect["status"].as_object().unwrap() {
            let found = match field.as_str() {
                "configuration" => found["configuration"]["name"].clone(),
                "conditions" => {
                    let conditions = found["conditions"].as_array().unwrap().iter();
                    let entry = |c: &Value| {
                        let shown = json!({"message": c["message"], "status": c["status"]});
                        (c["type"].as_str().unwrap().to_owned(), shown)
                    };
                    Value::Object(conditions.map(entry).collect())
                }
                field => found[field].clone(),
            };
            if found != *expected {
                problems.push(format!("{field}: {found} expected {expected}"));
            }
        }
        match (max_unavailable(&pool, nodes.len()), expect.get("error")) {
            (Ok(max), None) => {
                let next = decide_rollout(&pool, &nodes, &RolloutPolicy::default(), max, &now).next;
                if expect["maxUnavailable"] != max || expect["next"] != json!(next) {
                    problems.push(format!("max {max}, next {next:?} expected {}", expect["next"]));
                }
            }
            (Err(_), Some(_)) => {}
            (found, _) => problems.push(format!("{found:?} expected {}", expect["error"])),
        }
        if !problems.is_empty() {
            failures.push(format!("{id}: {}", problems.join("; ")));
        }
    }
    report(&failures, cases.len());
}
