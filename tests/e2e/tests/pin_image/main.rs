//! The OS image of a pool: who names it, and what a tag means for all machines at once.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod pool;
mod private_registry;
mod tags;

use machinist_e2e::{ApiServer, wait_for};
use serde_json::{Value, json};

const API: &str = "/apis/machineconfiguration.openshift.io/v1";
const PINNED: &str = "machinist.dev/os-image-pinned";
const ANNOTATION: &str = "machinist.dev/os-image";

/// Runs kubectl, which has to succeed.
fn kubectl(home: &ApiServer, arguments: &[&str]) -> String {
    let answer = home.kubectl(arguments).unwrap();
    assert!(answer.succeeded(), "{arguments:?}: {answer:?}");
    answer.stdout
}

/// Applies an object.
fn apply(home: &ApiServer, object: &Value) {
    kubectl(home, &["apply", "-f", &write_manifest(home, object)]);
}

/// The path of a file with an object.
fn write_manifest(home: &ApiServer, object: &Value) -> String {
    let path = home.dir().join("object.json");
    std::fs::write(&path, object.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The one MachineConfig of the workers, with an image unless it is empty.
fn apply_config(home: &ApiServer, image: &str, text: &str) {
    apply(
        home,
        &json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "50-os", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
            "spec": {"osImageURL": image, "config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                {"path": "/etc/os-test", "contents": {"source": format!("data:,{text}")}},
            ]}}},
        }),
    );
}

/// The rendered config of a pool once it is as it should be.
fn rendered(home: &ApiServer, pool: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let mut config = Value::Null;
    wait_for(&format!("pool {pool} to have {what}"), || {
        let pool = home.get(&format!("{API}/machineconfigpools/{pool}")).body;
        let name = pool["spec"]["configuration"]["name"].as_str().unwrap_or_default().to_owned();
        config = home.get(&format!("{API}/machineconfigs/{name}")).body;
        Ok(is_so(&config))
    })
    .unwrap();
    config
}

/// The config of the workers once it has the file with this text.
fn wait_for_config_with(home: &ApiServer, text: &str) -> Value {
    let text = format!("\"data:,{text}\"");
    rendered(home, "worker", &text, |config| config["spec"].to_string().contains(&text))
}

/// Waits until an event says all of this.
fn wait_for_event(home: &ApiServer, words: &[&str]) {
    wait_for(&format!("an event with {words:?}"), || {
        let events = home.get("/api/v1/namespaces/default/events").body;
        let events = events["items"].as_array().cloned().unwrap_or_default();
        Ok(events.iter().any(|event| words.iter().all(|word| event.to_string().contains(word))))
    })
    .unwrap();
}
