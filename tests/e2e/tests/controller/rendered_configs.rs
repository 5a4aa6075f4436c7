//! Garbage collection of rendered configs, and pools with their own images.

use super::fixture::{ControllerFixture, file};
use anyhow::ensure;
use machinist_e2e::fleet::MachineBehaviour;
use serde_json::{Value, json};

fn rendered_configs(fixture: &ControllerFixture) -> Vec<String> {
    let names = fixture.kubectl(&["get", "mc", "-o", "jsonpath={.items[*].metadata.name}"]);
    let is_rendered = |name: &&str| name.starts_with("rendered-worker-");
    names.split_whitespace().filter(is_rendered).map(str::to_owned).collect()
}

#[test]
fn unused_rendered_configs_are_garbage_collected() {
    let mut fixture = ControllerFixture::hub();
    fixture.apply(&file("00-worker", "worker", "/etc/base", "0"));
    fixture.populate(1, MachineBehaviour::default());
    let first = fixture.wait_for_new_config("worker", "");
    let patch = json!({"spec": {"paused": true}}).to_string();
    fixture.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", &patch]);
    let mut last = first.clone();
    for n in 1..14 {
        fixture.apply(&file("00-worker", "worker", "/etc/base", &n.to_string()));
        last = fixture.wait_for_new_config("worker", &last);
    }
    fixture.wait_until("old configs to go", || {
        let left = rendered_configs(&fixture);
        // The last ten, and the one that the machine has.
        ensure!(left.len() == 11, "{left:?}");
        ensure!(left.contains(&first) && left.contains(&last), "{left:?}");
        Ok(())
    });
    fixture.assert_no_violations();
}

/// A machine gets the image only when it is built, together with the config that it was built for.
#[test]
fn a_pool_with_its_own_image_waits_for_it() {
    const IMAGE: &str = "registry.example/os@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let mut fixture = ControllerFixture::hub();
    fixture.apply(&file("00-worker", "worker", "/etc/base", "0"));
    let config = fixture.wait_for_new_config("worker", "");
    fixture.apply(&object(
        "MachineOSConfig",
        "worker",
        &json!({
            "machineConfigPool": {"name": "worker"},
            "imageBuilder": {"imageBuilderType": "Job"},
            "renderedImagePushSecret": {"name": "push"},
            "renderedImagePushSpec": "registry.example/os:latest",
        }),
    ));
    fixture.populate_without_waiting(1, &config);
    let updating = |expected: &str| {
        fixture.wait_until(expected, || {
            let (_, message) = fixture.condition("worker", "Updating");
            ensure!(message == expected, "{message}");
            Ok(())
        });
    };
    updating("Pool is waiting for a new OS image build to start (mosc: worker)");
    fixture.apply(&object(
        "MachineOSBuild",
        "build-1",
        &json!({
            "machineConfig": {"name": config},
            "machineOSConfig": {"name": "worker"},
            "renderedImagePushSpec": "registry.example/os:latest",
        }),
    ));
    let status = |kind: &str, name: &str, status: Value| {
        let patch = json!({"status": status}).to_string();
        fixture.kubectl(&[
            "patch",
            kind,
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ]);
    };
    let condition = |type_: &str| {
        json!([{"type": type_, "status": "True", "reason": type_, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    };
    status("machineosbuild", "build-1", json!({"conditions": condition("Building")}));
    updating("Pool is waiting for OS image build to complete (mosb: build-1)");
    let node = fixture.fleet.as_ref().unwrap().names()[0].clone();
    let desired = || {
        let key = "machineconfiguration.openshift.io/desiredImage";
        fixture.get("node", &node)["metadata"]["annotations"][key].clone()
    };
    assert_eq!(desired(), Value::Null);
    status(
        "machineosconfig",
        "worker",
        json!({"observedGeneration": 1, "currentImagePullSpec": IMAGE}),
    );
    let built = json!({"conditions": condition("Succeeded"), "digestedImagePushSpec": IMAGE});
    status("machineosbuild", "build-1", built);
    fixture.wait_until("the machine to be sent to the image", || {
        ensure!(desired() == IMAGE, "{}", desired());
        Ok(())
    });
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    })
}
