//! The OS image of a pool: how it is selected, and how a tag is resolved once for all machines.

mod pool;
mod private_registry;
mod tags;

use machinist_e2e::{ApiServer, wait_for};
use serde_json::{Value, json};

const API: &str = "/apis/machineconfiguration.openshift.io/v1";
const PINNED: &str = "machinist.dev/os-image-pinned";
const ANNOTATION: &str = "machinist.dev/os-image";

/// Runs kubectl, which must succeed.
fn kubectl(api_server: &ApiServer, arguments: &[&str]) -> String {
    let output = api_server.kubectl(arguments).unwrap();
    assert!(output.succeeded(), "{arguments:?}: {output:?}");
    output.stdout
}

/// Applies an object.
fn apply(api_server: &ApiServer, object: &Value) {
    kubectl(api_server, &["apply", "-f", &write_manifest(api_server, object)]);
}

/// The path of a file with an object.
fn write_manifest(api_server: &ApiServer, object: &Value) -> String {
    let path = api_server.dir().join("object.json");
    std::fs::write(&path, object.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The only MachineConfig of the workers, with an image unless it is empty.
fn apply_config(api_server: &ApiServer, image: &str, text: &str) {
    apply(
        api_server,
        &json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "50-os", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
            "spec": {"osImageURL": image, "config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                {"path": "/etc/os-test", "contents": {"source": format!("data:,{text}")}},
            ]}}},
        }),
    );
}

/// The rendered config of a pool once it matches.
fn rendered(
    api_server: &ApiServer,
    pool: &str,
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Value {
    let mut config = Value::Null;
    wait_for(&format!("pool {pool} to have {what}"), || {
        let pool = api_server.get(&format!("{API}/machineconfigpools/{pool}")).body;
        let name = pool["spec"]["configuration"]["name"].as_str().unwrap_or_default().to_owned();
        config = api_server.get(&format!("{API}/machineconfigs/{name}")).body;
        Ok(is_so(&config))
    })
    .unwrap();
    config
}

/// The config of the workers once it contains the file with this text.
fn wait_for_config_with(api_server: &ApiServer, text: &str) -> Value {
    let text = format!("\"data:,{text}\"");
    rendered(api_server, "worker", &text, |config| config["spec"].to_string().contains(&text))
}

/// Waits until an event contains all of this.
fn wait_for_event(api_server: &ApiServer, fragments: &[&str]) {
    wait_for(&format!("an event with {fragments:?}"), || {
        let events = api_server.get("/api/v1/namespaces/default/events").body;
        let events = events["items"].as_array().cloned().unwrap_or_default();
        Ok(events
            .iter()
            .any(|event| fragments.iter().all(|fragment| event.to_string().contains(fragment))))
    })
    .unwrap();
}
