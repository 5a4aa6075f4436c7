//! `wait`, and how `delete` waits.

use super::{POOLS, machinist, machinist_fails};
use machinist_e2e::command::ExitOutput;
use machinist_e2e::{ApiServer, wait_for};
use serde_json::{Value, json};
use std::thread;

pub fn run_checks(api_server: &ApiServer) {
    condition(api_server);
    value_and_creation(api_server);
    times_out(api_server);
    finalizers(api_server);
}

fn pool(name: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name}, "spec": {"paused": false},
    })
}

fn patch(api_server: &ApiServer, path: &str, patch: &Value) {
    let response = api_server.patch(path, "merge-patch+json", patch);
    assert_eq!(response.code, 200, "{}", response.body);
}

/// Runs `machinist` while something else happens. It must not end before that.
fn run_during(api_server: &ApiServer, arguments: &[&str], happens: impl FnOnce()) -> ExitOutput {
    thread::scope(|scope| {
        let waiting = scope.spawn(|| api_server.machinist(arguments).unwrap());
        happens();
        waiting.join().unwrap()
    })
}

/// Conditions of a Node, because no controller of ours writes them.
fn condition(api_server: &ApiServer) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "waited-for"}});
    api_server.post("/api/v1/nodes", &node);
    let set = |value: &str| {
        let condition = json!({"type": "Ready", "status": value, "reason": "R", "message": "m"});
        let status = json!({"status": {"conditions": [condition]}});
        patch(api_server, "/api/v1/nodes/waited-for/status", &status);
    };
    set("False");
    let arguments = ["wait", "node/waited-for", "--for=condition=Ready", "--timeout=60s"];
    let output = run_during(api_server, &arguments, || set("True"));
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (0, "node/waited-for condition met\n"),
        "{output:?}"
    );
}

fn value_and_creation(api_server: &ApiServer) {
    let arguments = ["wait", "mcp", "late", "--for=jsonpath={.spec.paused}=true", "--timeout=60s"];
    let output = run_during(api_server, &arguments, || {
        api_server.post(POOLS, &pool("late"));
        patch(api_server, &format!("{POOLS}/late"), &json!({"spec": {"paused": true}}));
    });
    assert!(output.succeeded(), "{output:?}");
    assert!(
        machinist(api_server, &["wait", "mcp/late", "--for=create"])
            .ends_with("late condition met\n")
    );
    let arguments = ["wait", "mcp/late", "--for=delete", "--timeout=60s"];
    let output = run_during(api_server, &arguments, || {
        api_server.delete(&format!("{POOLS}/late"), &Value::Null);
    });
    assert!(output.succeeded() && output.stdout.ends_with("late deleted\n"), "{output:?}");
}

fn times_out(api_server: &ApiServer) {
    api_server.post(POOLS, &pool("waited-for"));
    for (object, goal, timeout, expected) in [
        (
            "node",
            "condition=Odd",
            "200ms",
            "condition Odd to be True: it does not have this condition yet",
        ),
        ("node", "condition=Ready=False", "0", "condition Ready to be False: it is True (R: m)"),
        ("mcp", "jsonpath={.spec.paused}=true", "200ms", "{.spec.paused} to be true: it is false"),
        ("mcp", "delete", "200ms", "it to be deleted: it still exists"),
    ] {
        let (object, goal) = (format!("{object}/waited-for"), format!("--for={goal}"));
        let output =
            machinist_fails(api_server, &["wait", &object, &goal, "--timeout", timeout], 1);
        assert!(output.contains(&format!("timed out waiting for {expected}")), "{output}");
    }
    let output = machinist_fails(api_server, &["wait", "mcp", "-l", "no=such", "--for=create"], 1);
    assert!(output.contains("no matching resources found"), "{output}");
    machinist_fails(api_server, &["wait", "mcp/waited-for", "--for=nonsense"], 2);
}

/// `delete` ends when the object is gone, not when it is marked for deletion.
fn finalizers(api_server: &ApiServer) {
    let path = format!("{POOLS}/waited-for");
    patch(api_server, &path, &json!({"metadata": {"finalizers": ["example.com/hold"]}}));
    let output = machinist_fails(api_server, &["delete", "mcp/waited-for", "--timeout=300ms"], 1);
    assert!(output.contains("because of the finalizers example.com/hold"), "{output}");
    patch(api_server, &path, &json!({"metadata": {"finalizers": null}}));
    let mut held = pool("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api_server.post(POOLS, &held);
    let path = format!("{POOLS}/held");
    let output = run_during(api_server, &["delete", "mcp/held"], || {
        wait_for("the deletion to be marked", || {
            Ok(api_server.get(&path).body["metadata"]["deletionTimestamp"].is_string())
        })
        .unwrap();
        patch(api_server, &path, &json!({"metadata": {"finalizers": null}}));
    });
    assert!(output.succeeded(), "{output:?}");
    assert_eq!(api_server.get(&path).code, 404);
    api_server.post(POOLS, &pool("quick"));
    patch(
        api_server,
        &format!("{POOLS}/quick"),
        &json!({"metadata": {"finalizers": ["example.com/hold"]}}),
    );
    assert!(machinist(api_server, &["delete", "mcp", "quick", "--wait=false"]).contains("deleted"));
    patch(api_server, &format!("{POOLS}/quick"), &json!({"metadata": {"finalizers": null}}));
}
