//! An OS image that is named by a tag: the registry is asked once, and a pool is never mixed.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use machinist_e2e::{Home, Image, Lab, Registry, wait_for};
use serde_json::{Value, json};

const API: &str = "/apis/machineconfiguration.openshift.io/v1";
const PINNED: &str = "machinist.dev/os-image-pinned";

fn declare(home: &Home, image: &str, text: &str) {
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "50-os", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"osImageURL": image, "config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": "/etc/os-test", "contents": {"source": format!("data:,{text}")}},
        ]}}},
    });
    let path = home.dir().join("config.json");
    std::fs::write(&path, config.to_string()).unwrap();
    let applied = home.kubectl(&["apply", "-f", path.to_str().unwrap()]).unwrap();
    assert!(applied.ok(), "{applied:?}");
}

/// The config of the pool once it has the file with this text.
fn rendered(home: &Home, text: &str) -> Value {
    let mut config = Value::Null;
    wait_for("the pool to have the config", || {
        let pool = home.get(&format!("{API}/machineconfigpools/worker")).body;
        let name = pool["spec"]["configuration"]["name"].as_str().unwrap_or_default().to_owned();
        config = home.get(&format!("{API}/machineconfigs/{name}")).body;
        Ok(config["spec"].to_string().contains(&format!("\"data:,{text}\"")))
    })
    .unwrap();
    config
}

#[test]
fn a_tag_is_pinned_once_and_for_all_machines() {
    let lab = Lab::new().unwrap();
    let registry = Registry::start(&lab).unwrap();
    let image = |text: &str| Image::new().file("etc/version", 0o644, text);
    let first = registry.push("os/test:stable", &image("1")).unwrap();
    let home = Home::hub().unwrap();
    let settings = json!({
        "apiVersion": "config.openshift.io/v1", "kind": "Image", "metadata": {"name": "cluster"},
        "spec": {"registrySources": {"insecureRegistries": [registry.host()]}},
    });
    let made = home.post("/apis/config.openshift.io/v1/images", &settings);
    assert_eq!(made.code, 201, "{made:?}");
    let tag = format!("{}/os/test:stable", registry.host());

    declare(&home, &tag, "one");
    let one = rendered(&home, "one");
    assert_eq!(one["metadata"]["annotations"][PINNED], first);
    // What is rendered is what the administrator wrote: its name is that of the original.
    assert_eq!(one["spec"]["osImageURL"], tag);

    // The tag moves on; a change of a file does not bring another system along.
    let second = registry.push("os/test:stable", &image("2")).unwrap();
    assert_ne!(first, second);
    declare(&home, &tag, "two");
    let two = rendered(&home, "two");
    assert_eq!(two["metadata"]["annotations"][PINNED], first);

    // A tag that nobody knows keeps nobody from rendering, as with the original; but it is said.
    let unknown = format!("{}/os/test:unknown", registry.host());
    declare(&home, &unknown, "three");
    let three = rendered(&home, "three");
    assert_eq!(three["metadata"]["annotations"][PINNED], Value::Null);
    wait_for("somebody to say so", || {
        let events = home.get("/api/v1/namespaces/default/events").body.to_string();
        Ok(events.contains("OSImageNotPinned") && events.contains("by its digest"))
    })
    .unwrap();

    // By digest nobody is asked.
    declare(&home, &second, "four");
    let four = rendered(&home, "four");
    assert_eq!(four["metadata"]["annotations"][PINNED], Value::Null);
    assert_eq!(four["spec"]["osImageURL"], second);
}
