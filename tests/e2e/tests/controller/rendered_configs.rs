//! What the seeds do not walk through: old rendered configs, pools with images of their own.

use super::site::{ControllerFixture, file};
use anyhow::ensure;
use machinist_e2e::fleet::MachineBehaviour;
use serde_json::{Value, json};

fn rendered_configs(site: &ControllerFixture) -> Vec<String> {
    let names = site.kubectl(&["get", "mc", "-o", "jsonpath={.items[*].metadata.name}"]);
    let is_rendered = |name: &&str| name.starts_with("rendered-worker-");
    names.split_whitespace().filter(is_rendered).map(str::to_owned).collect()
}

#[test]
fn unused_rendered_configs_are_garbage_collected() {
    let mut site = ControllerFixture::hub();
    site.apply(&file("00-worker", "worker", "/etc/base", "0"));
    site.populate(1, MachineBehaviour::default());
    let first = site.wait_for_new_config("worker", "");
    let patch = json!({"spec": {"paused": true}}).to_string();
    site.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", &patch]);
    let mut last = first.clone();
    for n in 1..14 {
        site.apply(&file("00-worker", "worker", "/etc/base", &n.to_string()));
        last = site.wait_for_new_config("worker", &last);
    }
    site.wait_until("old configs to go", || {
        let left = rendered_configs(&site);
        // The last ten, and the one that the machine has.
        ensure!(left.len() == 11, "{left:?}");
        ensure!(left.contains(&first) && left.contains(&last), "{left:?}");
        Ok(())
    });
    site.assert_no_violations();
}

/// A machine gets the image only when it is built, and together with the config that it was built for.
#[test]
fn a_pool_with_an_image_of_its_own_waits_for_it() {
    const IMAGE: &str = "registry.example/os@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let mut site = ControllerFixture::hub();
    site.apply(&file("00-worker", "worker", "/etc/base", "0"));
    let config = site.wait_for_new_config("worker", "");
    site.apply(&object(
        "MachineOSConfig",
        "worker",
        &json!({
            "machineConfigPool": {"name": "worker"},
            "imageBuilder": {"imageBuilderType": "Job"},
            "renderedImagePushSecret": {"name": "push"},
            "renderedImagePushSpec": "registry.example/os:latest",
        }),
    ));
    site.populate_without_waiting(1, &config);
    let updating = |expected: &str| {
        site.wait_until(expected, || {
            let (_, message) = site.condition("worker", "Updating");
            ensure!(message == expected, "{message}");
            Ok(())
        });
    };
    updating("Pool is waiting for a new OS image build to start (mosc: worker)");
    site.apply(&object(
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
        site.kubectl(&["patch", kind, name, "--subresource=status", "--type=merge", "-p", &patch]);
    };
    let condition = |type_: &str| {
        json!([{"type": type_, "status": "True", "reason": type_, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    };
    status("machineosbuild", "build-1", json!({"conditions": condition("Building")}));
    updating("Pool is waiting for OS image build to complete (mosb: build-1)");
    let node = site.fleet.as_ref().unwrap().names()[0].clone();
    let desired = || {
        let key = "machineconfiguration.openshift.io/desiredImage";
        site.get("node", &node)["metadata"]["annotations"][key].clone()
    };
    assert_eq!(desired(), Value::Null);
    status(
        "machineosconfig",
        "worker",
        json!({"observedGeneration": 1, "currentImagePullSpec": IMAGE}),
    );
    let built = json!({"conditions": condition("Succeeded"), "digestedImagePushSpec": IMAGE});
    status("machineosbuild", "build-1", built);
    site.wait_until("the machine to be sent to the image", || {
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
