//! `wait`, and the waiting of `delete`.

use super::{POOLS, machinist, machinist_fails};
use machinist_e2e::command::ExitOutput;
use machinist_e2e::{ApiServer, wait_for};
use serde_json::{Value, json};
use std::thread;

pub fn run_checks(home: &ApiServer) {
    condition(home);
    value_and_creation(home);
    times_out(home);
    finalizers(home);
}

fn pool(name: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name}, "spec": {"paused": false},
    })
}

fn patch(home: &ApiServer, path: &str, patch: &Value) {
    let answer = home.patch(path, "merge-patch+json", patch);
    assert_eq!(answer.code, 200, "{}", answer.body);
}

/// Runs our program while something else happens; it must not be at its end before.
fn run_during(home: &ApiServer, arguments: &[&str], happens: impl FnOnce()) -> ExitOutput {
    thread::scope(|scope| {
        let waiting = scope.spawn(|| home.machinist(arguments).unwrap());
        happens();
        waiting.join().unwrap()
    })
}

/// Conditions of a node: no controller of ours writes them.
fn condition(home: &ApiServer) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "waited-for"}});
    home.post("/api/v1/nodes", &node);
    let set = |value: &str| {
        let condition = json!({"type": "Ready", "status": value, "reason": "R", "message": "m"});
        let status = json!({"status": {"conditions": [condition]}});
        patch(home, "/api/v1/nodes/waited-for/status", &status);
    };
    set("False");
    let arguments = ["wait", "node/waited-for", "--for=condition=Ready", "--timeout=60s"];
    let answer = run_during(home, &arguments, || set("True"));
    assert_eq!(
        (answer.code, answer.stdout.as_str()),
        (0, "node/waited-for condition met\n"),
        "{answer:?}"
    );
}

fn value_and_creation(home: &ApiServer) {
    let arguments = ["wait", "mcp", "late", "--for=jsonpath={.spec.paused}=true", "--timeout=60s"];
    let answer = run_during(home, &arguments, || {
        home.post(POOLS, &pool("late"));
        patch(home, &format!("{POOLS}/late"), &json!({"spec": {"paused": true}}));
    });
    assert!(answer.succeeded(), "{answer:?}");
    assert!(
        machinist(home, &["wait", "mcp/late", "--for=create"]).ends_with("late condition met\n")
    );
    let arguments = ["wait", "mcp/late", "--for=delete", "--timeout=60s"];
    let answer = run_during(home, &arguments, || {
        home.delete(&format!("{POOLS}/late"), &Value::Null);
    });
    assert!(answer.succeeded() && answer.stdout.ends_with("late deleted\n"), "{answer:?}");
}

fn times_out(home: &ApiServer) {
    home.post(POOLS, &pool("waited-for"));
    for (object, goal, timeout, expected) in [
        (
            "node",
            "condition=Odd",
            "200ms",
            "condition Odd to be True: there is no such condition yet",
        ),
        ("node", "condition=Ready=False", "0", "condition Ready to be False: it is True (R: m)"),
        ("mcp", "jsonpath={.spec.paused}=true", "200ms", "{.spec.paused} to be true: it is false"),
        ("mcp", "delete", "200ms", "it to be deleted: it is still there"),
    ] {
        let (object, goal) = (format!("{object}/waited-for"), format!("--for={goal}"));
        let said = machinist_fails(home, &["wait", &object, &goal, "--timeout", timeout], 1);
        assert!(said.contains(&format!("timed out waiting for {expected}")), "{said}");
    }
    let said = machinist_fails(home, &["wait", "mcp", "-l", "no=such", "--for=create"], 1);
    assert!(said.contains("no matching resources found"), "{said}");
    machinist_fails(home, &["wait", "mcp/waited-for", "--for=nonsense"], 2);
}

/// `delete` ends when the object is gone, not when it is marked.
fn finalizers(home: &ApiServer) {
    let path = format!("{POOLS}/waited-for");
    patch(home, &path, &json!({"metadata": {"finalizers": ["example.com/hold"]}}));
    let said = machinist_fails(home, &["delete", "mcp/waited-for", "--timeout=300ms"], 1);
    assert!(said.contains("held by the finalizers example.com/hold"), "{said}");
    patch(home, &path, &json!({"metadata": {"finalizers": null}}));
    let mut held = pool("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    home.post(POOLS, &held);
    let path = format!("{POOLS}/held");
    let answer = run_during(home, &["delete", "mcp/held"], || {
        wait_for("the deletion to be marked", || {
            Ok(home.get(&path).body["metadata"]["deletionTimestamp"].is_string())
        })
        .unwrap();
        patch(home, &path, &json!({"metadata": {"finalizers": null}}));
    });
    assert!(answer.succeeded(), "{answer:?}");
    assert_eq!(home.get(&path).code, 404);
    home.post(POOLS, &pool("quick"));
    patch(
        home,
        &format!("{POOLS}/quick"),
        &json!({"metadata": {"finalizers": ["example.com/hold"]}}),
    );
    assert!(machinist(home, &["delete", "mcp", "quick", "--wait=false"]).contains("deleted"));
    patch(home, &format!("{POOLS}/quick"), &json!({"metadata": {"finalizers": null}}));
}
