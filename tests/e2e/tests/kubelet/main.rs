//! Templates and KubeletConfigs on both homes, with real kubectl: a pool rolls to exactly the right content, and back.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod cluster;
mod real;
#[path = "../controller/site.rs"]
#[allow(dead_code, reason = "the tests of the controller use the rest")]
mod site;

use anyhow::{Context as _, Result, ensure};
use machinist_e2e::fleet::Behaviour;
use serde_json::{Value, json};
use site::Site;

const KUBELET: &str = "/etc/kubernetes/kubelet.conf";
const WORKER: &str = "pools.operator.machineconfiguration.openshift.io/worker";

#[test]
fn templates_and_kubelet_configs_on_the_hub() {
    walk(Site::hub());
}

#[test]
fn templates_and_kubelet_configs_on_a_real_api_server_with_the_crds_of_openshift() {
    walk(Site::openshift());
}

fn walk(mut site: Site) {
    site.kubectl(&["label", "--overwrite", "mcp", "worker", &format!("{WORKER}=")]);
    site.apply(&site::file("50-worker-mine", "worker", "/etc/mine", "mine"));
    site.rendered("worker", "");
    templates(&site);
    let quick = Behaviour { apply: 0..=10, reboot: Some(0..=10), ..Behaviour::default() };
    site.populate(2, quick);
    let base = site.rendered("worker", "");
    kubelet_configs(&site);
    cluster::settings(&site);
    site.kubectl(&["delete", "kubeletconfig", "more-pods", "second", "--timeout=60s"]);
    site.until("the first config to be back", || {
        let rendered = site.rendered("worker", "");
        ensure!(rendered == base, "{rendered} is not {base}");
        Ok(())
    });
    let left = site.kubectl(&["get", "mc", "-o", "name"]);
    assert!(!left.contains("-generated-kubelet"), "{left}");
    site.updated("worker");
    cluster::secrets_and_certificates(&site);
    facts_change(&site);
    site.nothing_was_broken();
}

/// The ControllerConfig alone makes what every machine starts from.
fn templates(site: &Site) {
    site.apply(&controller_config("10.96.0.10"));
    site.until("the templates to be rendered", || {
        let found = contents(site, KUBELET)?;
        ensure!(found.contains("maxPods: 110") && found.contains("10.96.0.10"), "{found}");
        Ok(())
    });
    let owner = &site.get("mc", "01-worker-kubelet")["metadata"]["ownerReferences"][0];
    assert_eq!(owner["kind"], "ControllerConfig");
    site.until("the ControllerConfig to be complete", || {
        let config = site.get("controllerconfig", "machine-config-controller");
        let conditions = config["status"]["conditions"].as_array().context("no conditions")?;
        let is_complete =
            |it: &Value| it["type"] == "TemplateControllerCompleted" && it["status"] == "True";
        ensure!(conditions.iter().any(is_complete), "{conditions:?}");
        Ok(())
    });
}

fn kubelet_configs(site: &Site) {
    site.apply(&kubelet_config("more-pods", &json!({"maxPods": 220})));
    holds(site, "maxPods: 220");
    site.updated("worker");
    let object = site.get("kubeletconfig", "more-pods");
    assert_eq!(object["metadata"]["finalizers"], json!(["99-worker-generated-kubelet"]));
    says(site, "more-pods", "True", "Success");
    let version =
        || site.get("mc", "99-worker-generated-kubelet")["metadata"]["resourceVersion"].clone();
    let before = version();

    // The younger one counts, and builds on the template alone.
    site.apply(&kubelet_config("second", &json!({"podPidsLimit": 8192})));
    holds(site, "podPidsLimit: 8192");
    holds(site, "maxPods: 110");
    assert_eq!(
        site.get("kubeletconfig", "second")["metadata"]["finalizers"],
        json!(["99-worker-generated-kubelet-1"])
    );
    assert_eq!(version(), before, "what did not change is not written on {}", site.home.name);

    // A mistake is told where it is, and the pool keeps what it has.
    let good = site.rendered("worker", "");
    site.apply(&kubelet_config("second", &json!({"maxPods": "many"})));
    says(
        site,
        "second",
        "False",
        "spec.kubeletConfig.maxPods: KubeletConfig could not be unmarshalled",
    );
    site.until("the pool to know", || {
        let (status, message) = site.condition("worker", "GenerateDegraded");
        ensure!(status == "True" && message.contains("KubeletConfig second"), "{status} {message}");
        Ok(())
    });
    assert_eq!(site.rendered("worker", ""), good);
    site.apply(&kubelet_config("second", &json!({"podPidsLimit": 9000})));
    says(site, "second", "True", "Success");
    holds(site, "podPidsLimit: 9000");

    // What no kubelet knows is taken up, as in the real system, but not without a word.
    site.apply(&kubelet_config("second", &json!({"podPidsLimit": 9001, "podPidzLimit": 1})));
    holds(site, "podPidsLimit: 9001");
    site.until("the odd field to be told", || {
        let conditions = site.get("kubeletconfig", "second")["status"]["conditions"].to_string();
        ensure!(
            conditions.contains("spec.kubeletConfig.podPidzLimit: no kubelet knows"),
            "{conditions}"
        );
        Ok(())
    });
}

/// What the cluster is told about itself reaches the machines.
fn facts_change(site: &Site) {
    site.apply(&controller_config("10.96.0.99"));
    holds(site, "10.96.0.99");
    site.updated("worker");
    let mut wrong = controller_config("10.96.0.99");
    wrong["spec"]["infra"]["status"]["platformStatus"]["type"] = json!("");
    let before = site.rendered("worker", "");
    site.apply(&wrong);
    site.until("the ControllerConfig to say what is wrong", || {
        let config = site.get("controllerconfig", "machine-config-controller");
        let conditions = config["status"]["conditions"].to_string();
        ensure!(conditions.contains("no platformStatus.type is set"), "{conditions}");
        Ok(())
    });
    assert_eq!(site.rendered("worker", ""), before);
    site.apply(&controller_config("10.96.0.99"));
}

fn holds(site: &Site, line: &str) {
    site.until(&format!("{line:?} to be rendered"), || {
        let found = contents(site, KUBELET)?;
        ensure!(found.contains(line), "{found}");
        Ok(())
    });
}

/// What the condition `Accepted` of a KubeletConfig says.
fn says(site: &Site, name: &str, status: &str, message: &str) {
    site.until(&format!("{name} to say {status}"), || {
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
fn contents(site: &Site, path: &str) -> Result<String> {
    machinist_e2e::contents(&site.get("mc", &site.rendered("worker", "")), path)
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
