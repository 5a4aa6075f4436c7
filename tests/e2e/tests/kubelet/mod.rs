//! Templates and KubeletConfigs on both API servers, with the real kubectl: a pool rolls out exactly the right content,
//! and rolls back.

mod cluster_settings;
mod real_kubelet;

use crate::controller::fixture::ControllerFixture;
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

const KUBELET: &str = "/etc/kubernetes/kubelet.conf";
const WORKER: &str = "pools.operator.machineconfiguration.openshift.io/worker";

#[test]
fn templates_and_kubelet_configs_on_the_hub() {
    run_scenarios(ControllerFixture::hub());
}

#[test]
fn templates_and_kubelet_configs_on_kube_apiserver_with_openshift_crds() {
    run_scenarios(ControllerFixture::openshift());
}

fn run_scenarios(mut fixture: ControllerFixture) {
    fixture.kubectl(&["label", "--overwrite", "mcp", "worker", &format!("{WORKER}=")]);
    fixture.apply(&crate::controller::fixture::file(
        "50-worker-mine",
        "worker",
        "/etc/mine",
        "mine",
    ));
    fixture.wait_for_new_config("worker", "");
    templates(&fixture);
    let base = fixture.populate_quick();
    kubelet_configs(&fixture);
    cluster_settings::settings(&fixture);
    fixture.kubectl(&["delete", "kubeletconfig", "more-pods", "second", "--timeout=60s"]);
    fixture.wait_restored(&base, "-generated-kubelet");
    cluster_settings::secrets_and_certificates(&fixture);
    controller_config_change(&fixture);
    fixture.assert_no_violations();
}

/// The ControllerConfig alone generates the base config of every machine.
fn templates(fixture: &ControllerFixture) {
    fixture.apply(&controller_config("10.96.0.10"));
    fixture.wait_until("the templates to be rendered", || {
        let found = fixture.rendered_file(KUBELET)?;
        ensure!(found.contains("maxPods: 110") && found.contains("10.96.0.10"), "{found}");
        Ok(())
    });
    let owner = &fixture.get("mc", "01-worker-kubelet")["metadata"]["ownerReferences"][0];
    assert_eq!(owner["kind"], "ControllerConfig");
    fixture.wait_until("the ControllerConfig to be complete", || {
        let config = fixture.get("controllerconfig", "machine-config-controller");
        let conditions = config["status"]["conditions"].as_array().context("no conditions")?;
        let is_complete =
            |it: &Value| it["type"] == "TemplateControllerCompleted" && it["status"] == "True";
        ensure!(conditions.iter().any(is_complete), "{conditions:?}");
        Ok(())
    });
}

fn kubelet_configs(fixture: &ControllerFixture) {
    fixture.apply(&kubelet_config("more-pods", &json!({"maxPods": 220})));
    wait_for_line(fixture, "maxPods: 220");
    fixture.wait_updated("worker");
    let object = fixture.get("kubeletconfig", "more-pods");
    assert_eq!(object["metadata"]["finalizers"], json!(["99-worker-generated-kubelet"]));
    assert_accepted_condition(fixture, "more-pods", "True", "Success");
    let version =
        || fixture.get("mc", "99-worker-generated-kubelet")["metadata"]["resourceVersion"].clone();
    let before = version();

    // The newer one wins, and is based on the template only.
    fixture.apply(&kubelet_config("second", &json!({"podPidsLimit": 8192})));
    wait_for_line(fixture, "podPidsLimit: 8192");
    wait_for_line(fixture, "maxPods: 110");
    assert_eq!(
        fixture.get("kubeletconfig", "second")["metadata"]["finalizers"],
        json!(["99-worker-generated-kubelet-1"])
    );
    assert_eq!(
        version(),
        before,
        "what did not change is not written on {}",
        fixture.api_server.name
    );

    // An error is reported with its location, and the pool keeps its config.
    let good = fixture.wait_for_new_config("worker", "");
    fixture.apply(&kubelet_config("second", &json!({"maxPods": "many"})));
    assert_accepted_condition(
        fixture,
        "second",
        "False",
        "spec.kubeletConfig.maxPods: KubeletConfig could not be unmarshalled",
    );
    fixture.wait_until("the pool to know", || {
        let (status, message) = fixture.condition("worker", "GenerateDegraded");
        ensure!(status == "True" && message.contains("KubeletConfig second"), "{status} {message}");
        Ok(())
    });
    assert_eq!(fixture.wait_for_new_config("worker", ""), good);
    fixture.apply(&kubelet_config("second", &json!({"podPidsLimit": 9000})));
    assert_accepted_condition(fixture, "second", "True", "Success");
    wait_for_line(fixture, "podPidsLimit: 9000");

    // A field that no kubelet knows is accepted, as in MCO, but with a warning.
    fixture.apply(&kubelet_config("second", &json!({"podPidsLimit": 9001, "podPidzLimit": 1})));
    wait_for_line(fixture, "podPidsLimit: 9001");
    fixture.wait_until("the unknown field to be reported", || {
        let conditions = fixture.get("kubeletconfig", "second")["status"]["conditions"].to_string();
        ensure!(
            conditions.contains("spec.kubeletConfig.podPidzLimit: no kubelet knows"),
            "{conditions}"
        );
        Ok(())
    });
}

/// Cluster settings reach the machines.
fn controller_config_change(fixture: &ControllerFixture) {
    fixture.apply(&controller_config("10.96.0.99"));
    wait_for_line(fixture, "10.96.0.99");
    fixture.wait_updated("worker");
    let mut wrong = controller_config("10.96.0.99");
    wrong["spec"]["infra"]["status"]["platformStatus"]["type"] = json!("");
    let before = fixture.wait_for_new_config("worker", "");
    fixture.apply(&wrong);
    fixture.wait_until("the ControllerConfig to say what is wrong", || {
        let config = fixture.get("controllerconfig", "machine-config-controller");
        let conditions = config["status"]["conditions"].to_string();
        ensure!(conditions.contains("no platformStatus.type is set"), "{conditions}");
        Ok(())
    });
    assert_eq!(fixture.wait_for_new_config("worker", ""), before);
    fixture.apply(&controller_config("10.96.0.99"));
}

fn wait_for_line(fixture: &ControllerFixture, line: &str) {
    fixture.wait_until(&format!("{line:?} to be rendered"), || {
        let found = fixture.rendered_file(KUBELET)?;
        ensure!(found.contains(line), "{found}");
        Ok(())
    });
}

/// The `Accepted` condition of a KubeletConfig.
fn assert_accepted_condition(fixture: &ControllerFixture, name: &str, status: &str, message: &str) {
    fixture.wait_until(&format!("{name} to say {status}"), || {
        let object = fixture.get("kubeletconfig", name);
        let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let last = all
            .iter()
            .rfind(|condition| condition["type"] == "Accepted")
            .cloned()
            .unwrap_or_default();
        let found = last["message"].as_str().unwrap_or_default();
        ensure!(last["status"] == status && found.contains(message), "{all:?}");
        ensure!(
            object["status"]["observedGeneration"] == object["metadata"]["generation"],
            "{object}"
        );
        Ok(())
    });
}

fn kubelet_config(name: &str, settings: &Value) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig",
        "metadata": {"name": name},
        "spec": {"machineConfigPoolSelector": {"matchLabels": {WORKER: ""}}, "kubeletConfig": settings},
    })
}

/// The ControllerConfig of a plain cluster.
fn controller_config(dns: &str) -> Value {
    let mut config = machinist_e2e::objects::controller_config();
    config["spec"]["clusterDNSIP"] = dns.into();
    config
}
