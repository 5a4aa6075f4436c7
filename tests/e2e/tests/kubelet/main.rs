//! Templates and KubeletConfigs on both homes, with real kubectl: a pool rolls to exactly the right content, and back.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod cluster_settings;
mod real_kubelet;
#[path = "../controller/site.rs"]
#[allow(dead_code, reason = "the tests of the controller use the rest")]
mod site;

use anyhow::{Context as _, Result, ensure};
use machinist_e2e::fleet::MachineBehaviour;
use serde_json::{Value, json};
use site::ControllerFixture;

const KUBELET: &str = "/etc/kubernetes/kubelet.conf";
const WORKER: &str = "pools.operator.machineconfiguration.openshift.io/worker";

#[test]
fn templates_and_kubelet_configs_on_the_hub() {
    run_scenarios(ControllerFixture::hub());
}

#[test]
fn templates_and_kubelet_configs_on_a_real_api_server_with_the_crds_of_openshift() {
    run_scenarios(ControllerFixture::openshift());
}

fn run_scenarios(mut site: ControllerFixture) {
    site.kubectl(&["label", "--overwrite", "mcp", "worker", &format!("{WORKER}=")]);
    site.apply(&site::file("50-worker-mine", "worker", "/etc/mine", "mine"));
    site.wait_for_new_config("worker", "");
    templates(&site);
    let quick =
        MachineBehaviour { apply: 0..=10, reboot: Some(0..=10), ..MachineBehaviour::default() };
    site.populate(2, quick);
    let base = site.wait_for_new_config("worker", "");
    kubelet_configs(&site);
    cluster_settings::settings(&site);
    site.kubectl(&["delete", "kubeletconfig", "more-pods", "second", "--timeout=60s"]);
    site.wait_until("the first config to be back", || {
        let rendered = site.wait_for_new_config("worker", "");
        ensure!(rendered == base, "{rendered} is not {base}");
        Ok(())
    });
    let left = site.kubectl(&["get", "mc", "-o", "name"]);
    assert!(!left.contains("-generated-kubelet"), "{left}");
    site.wait_updated("worker");
    cluster_settings::secrets_and_certificates(&site);
    controller_config_change(&site);
    site.assert_no_violations();
}

/// The ControllerConfig alone makes what every machine starts from.
fn templates(site: &ControllerFixture) {
    site.apply(&controller_config("10.96.0.10"));
    site.wait_until("the templates to be rendered", || {
        let found = contents(site, KUBELET)?;
        ensure!(found.contains("maxPods: 110") && found.contains("10.96.0.10"), "{found}");
        Ok(())
    });
    let owner = &site.get("mc", "01-worker-kubelet")["metadata"]["ownerReferences"][0];
    assert_eq!(owner["kind"], "ControllerConfig");
    site.wait_until("the ControllerConfig to be complete", || {
        let config = site.get("controllerconfig", "machine-config-controller");
        let conditions = config["status"]["conditions"].as_array().context("no conditions")?;
        let is_complete =
            |it: &Value| it["type"] == "TemplateControllerCompleted" && it["status"] == "True";
        ensure!(conditions.iter().any(is_complete), "{conditions:?}");
        Ok(())
    });
}

fn kubelet_configs(site: &ControllerFixture) {
    site.apply(&kubelet_config("more-pods", &json!({"maxPods": 220})));
    wait_for_line(site, "maxPods: 220");
    site.wait_updated("worker");
    let object = site.get("kubeletconfig", "more-pods");
    assert_eq!(object["metadata"]["finalizers"], json!(["99-worker-generated-kubelet"]));
    assert_accepted_condition(site, "more-pods", "True", "Success");
    let version =
        || site.get("mc", "99-worker-generated-kubelet")["metadata"]["resourceVersion"].clone();
    let before = version();

    // The younger one counts, and builds on the template alone.
    site.apply(&kubelet_config("second", &json!({"podPidsLimit": 8192})));
    wait_for_line(site, "podPidsLimit: 8192");
    wait_for_line(site, "maxPods: 110");
    assert_eq!(
        site.get("kubeletconfig", "second")["metadata"]["finalizers"],
        json!(["99-worker-generated-kubelet-1"])
    );
    assert_eq!(version(), before, "what did not change is not written on {}", site.api_server.name);

    // A mistake is told where it is, and the pool keeps what it has.
    let good = site.wait_for_new_config("worker", "");
    site.apply(&kubelet_config("second", &json!({"maxPods": "many"})));
    assert_accepted_condition(
        site,
        "second",
        "False",
        "spec.kubeletConfig.maxPods: KubeletConfig could not be unmarshalled",
    );
    site.wait_until("the pool to know", || {
        let (status, message) = site.condition("worker", "GenerateDegraded");
        ensure!(status == "True" && message.contains("KubeletConfig second"), "{status} {message}");
        Ok(())
    });
    assert_eq!(site.wait_for_new_config("worker", ""), good);
    site.apply(&kubelet_config("second", &json!({"podPidsLimit": 9000})));
    assert_accepted_condition(site, "second", "True", "Success");
    wait_for_line(site, "podPidsLimit: 9000");

    // What no kubelet knows is taken up, as in the real system, but not without a word.
    site.apply(&kubelet_config("second", &json!({"podPidsLimit": 9001, "podPidzLimit": 1})));
    wait_for_line(site, "podPidsLimit: 9001");
    site.wait_until("the odd field to be told", || {
        let conditions = site.get("kubeletconfig", "second")["status"]["conditions"].to_string();
        ensure!(
            conditions.contains("spec.kubeletConfig.podPidzLimit: no kubelet knows"),
            "{conditions}"
        );
        Ok(())
    });
}

/// What the cluster is told about itself reaches the machines.
fn controller_config_change(site: &ControllerFixture) {
    site.apply(&controller_config("10.96.0.99"));
    wait_for_line(site, "10.96.0.99");
    site.wait_updated("worker");
    let mut wrong = controller_config("10.96.0.99");
    wrong["spec"]["infra"]["status"]["platformStatus"]["type"] = json!("");
    let before = site.wait_for_new_config("worker", "");
    site.apply(&wrong);
    site.wait_until("the ControllerConfig to say what is wrong", || {
        let config = site.get("controllerconfig", "machine-config-controller");
        let conditions = config["status"]["conditions"].to_string();
        ensure!(conditions.contains("no platformStatus.type is set"), "{conditions}");
        Ok(())
    });
    assert_eq!(site.wait_for_new_config("worker", ""), before);
    site.apply(&controller_config("10.96.0.99"));
}

fn wait_for_line(site: &ControllerFixture, line: &str) {
    site.wait_until(&format!("{line:?} to be rendered"), || {
        let found = contents(site, KUBELET)?;
        ensure!(found.contains(line), "{found}");
        Ok(())
    });
}

/// What the condition `Accepted` of a KubeletConfig says.
fn assert_accepted_condition(site: &ControllerFixture, name: &str, status: &str, message: &str) {
    site.wait_until(&format!("{name} to say {status}"), || {
        let object = site.get("kubeletconfig", name);
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

/// A file of the config that the workers get.
fn contents(site: &ControllerFixture, path: &str) -> Result<String> {
    machinist_e2e::machine_config_files::contents(
        &site.get("mc", &site.wait_for_new_config("worker", "")),
        path,
    )
}

fn kubelet_config(name: &str, settings: &Value) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig",
        "metadata": {"name": name},
        "spec": {"machineConfigPoolSelector": {"matchLabels": {WORKER: ""}}, "kubeletConfig": settings},
    })
}

/// The facts about a plain cluster.
fn controller_config(dns: &str) -> Value {
    let mut config = machinist_e2e::objects::controller_config();
    config["spec"]["clusterDNSIP"] = dns.into();
    config
}
