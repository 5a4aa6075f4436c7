//! What the cluster itself says: Node settings (97), feature gates (98), the TLS profile, secrets and certificates.

use super::site::ControllerFixture;
use super::{KUBELET, contents, controller_config, wait_for_line};
use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinist_e2e::pki::TestCa;
use serde_json::{Value, json};

const OF_NODES: &str = "97-worker-generated-kubelet";
const OF_GATES: &str = "98-worker-generated-kubelet";
const PULL_SECRET: &str = "/var/lib/kubelet/config.json";

/// Node settings and feature gates come, change and go, below the KubeletConfigs that are there and above what is left
/// when those are gone.
pub(super) fn settings(site: &ControllerFixture) {
    let base = site.wait_for_new_config("worker", "");
    site.apply(&node("MediumUpdateAverageReaction"));
    wait_for_line(site, "nodeStatusUpdateFrequency: 20s");
    let made = site.get("mc", OF_NODES);
    assert!(made["metadata"]["ownerReferences"].is_null(), "{made}");
    let arguments = made["spec"]["kernelArguments"].to_string();
    assert!(arguments.contains("systemd.unified_cgroup_hierarchy=1"), "{arguments}");
    let rendered = site.get("mc", &site.wait_for_new_config("worker", ""));
    assert_eq!(rendered["spec"]["kernelArguments"], made["spec"]["kernelArguments"]);

    site.apply(&gates(&["SomeGate"]));
    wait_for_line(site, "SomeGate: true");
    let below =
        machinist_e2e::machine_config_files::contents(&site.get("mc", OF_GATES), KUBELET).unwrap();
    assert!(below.contains("SomeGate: true") && below.contains("20s"), "{below}");
    site.apply(&gates(&["OtherGate"]));
    wait_for_line(site, "OtherGate: true");
    assert!(!contents(site, KUBELET).unwrap().contains("SomeGate"));

    site.apply(&node("LowUpdateSlowReaction"));
    wait_for_line(site, "nodeStatusUpdateFrequency: 1m0s");
    site.wait_updated("worker");
    latency_profile_jump_is_rejected(site);

    // Kubelets speak as the API server does.
    let profile = json!({"type": "Modern", "modern": {}});
    site.apply(&json!({
        "apiVersion": "config.openshift.io/v1", "kind": "APIServer", "metadata": {"name": "cluster"},
        "spec": {"tlsSecurityProfile": profile},
    }));
    wait_for_line(site, "tlsMinVersion: VersionTLS13");

    let all = ["node.config.openshift.io/cluster", "featuregate/cluster", "apiserver/cluster"];
    site.kubectl(&[&["delete"], &all[..]].concat());
    site.wait_until("what the cluster said to go", || {
        let names = site.kubectl(&["get", "mc", "-o", "name"]);
        ensure!(!names.contains(OF_NODES) && !names.contains(OF_GATES), "{names}");
        let rendered = site.wait_for_new_config("worker", "");
        ensure!(rendered == base, "{rendered} is not {base}");
        Ok(())
    });
    site.wait_updated("worker");
}

/// From one end of the latency profiles to the other there is no direct way.
fn latency_profile_jump_is_rejected(site: &ControllerFixture) {
    let before = site.wait_for_new_config("worker", "");
    site.apply(&node("Default"));
    site.wait_until("the pool to say that the step is too large", || {
        let (status, message) = site.condition("worker", "GenerateDegraded");
        let says = message.contains("spec.workerLatencyProfile")
            && message.contains("set MediumUpdateAverageReaction first");
        ensure!(status == "True" && says, "{status} {message}");
        Ok(())
    });
    site.wait_until("the event", || {
        let events = site.kubectl(&["get", "events", "-o", "json"]);
        let says = "transition not allowed from old WorkerLatencyProfile: \\\"LowUpdateSlowReaction\\\" to new WorkerLatencyProfile: \\\"Default\\\"";
        ensure!(events.contains("ActionProhibited") && events.contains(says), "{events}");
        Ok(())
    });
    assert_eq!(site.wait_for_new_config("worker", ""), before, "on {}", site.api_server.name);
    site.apply(&node("MediumUpdateAverageReaction"));
    wait_for_line(site, "nodeStatusUpdateFrequency: 20s");
    site.wait_until("the pool to be content", || {
        let (status, message) = site.condition("worker", "GenerateDegraded");
        ensure!(status == "False", "{status} {message}");
        Ok(())
    });
}

/// A new pull secret reaches the machines though nobody touches the ControllerConfig; and it says which certificates
/// machines are given.
pub(super) fn secrets_and_certificates(site: &ControllerFixture) {
    site.kubectl(&["create", "namespace", "openshift-config"]);
    site.apply(&pull_secret("first"));
    let authority = TestCa::new("the-root").unwrap();
    let bundle = STANDARD.encode(authority.certificate());
    let mut config = controller_config("10.96.0.10");
    config["spec"]["pullSecret"] = json!({"namespace": "openshift-config", "name": "pull-secret"});
    config["spec"]["kubeAPIServerServingCAData"] = json!(bundle);
    config["spec"]["dns"]["spec"]["baseDomain"] = json!("c.example.com");
    site.apply(&config);
    wait_for_event(site, "Zmlyc3Q=");
    site.apply(&pull_secret("second"));
    wait_for_event(site, "c2Vjb25k");

    // A cluster that keeps its own images lets all machines at them.
    site.apply(&json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "internal-release-image-registry-auth", "namespace": "openshift-machine-config-operator"},
        "stringData": {"password": "hush"},
    }));
    site.apply(&json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "InternalReleaseImage",
        "metadata": {"name": "cluster"},
        "spec": {"releases": [{"name": "ocp-release-bundle-4.20.1-x86_64"}]},
    }));
    wait_for_event(site, "api-int.c.example.com:22625");
    site.kubectl(&["delete", "internalreleaseimage", "cluster"]);
    site.wait_until("the cluster's own registry to go", || {
        let found = contents(site, PULL_SECRET)?;
        ensure!(!found.contains("22625") && found.contains("c2Vjb25k"), "{found}");
        Ok(())
    });

    site.wait_until("the certificates to be told", || {
        let config = site.get("controllerconfig", "machine-config-controller");
        let first = &config["status"]["controllerCertificates"][0];
        ensure!(first["bundleFile"] == "KubeAPIServerServingCAData", "{}", config["status"]);
        ensure!(first["subject"].to_string().contains("CN=the-root"), "{first}");
        ensure!(config["status"]["observedGeneration"] == config["metadata"]["generation"]);
        let expiry = &site.get("mcp", "worker")["status"]["certExpirys"][0];
        ensure!(expiry["expiry"] == first["notAfter"] && !expiry["expiry"].is_null(), "{expiry}");
        Ok(())
    });
    site.wait_updated("worker");
}

fn wait_for_event(site: &ControllerFixture, text: &str) {
    site.wait_until(&format!("{text} to be in the pull secret of machines"), || {
        let found = contents(site, PULL_SECRET)?;
        ensure!(found.contains(text), "{found}");
        Ok(())
    });
}

fn pull_secret(auth: &str) -> Value {
    let config = json!({"auths": {"registry.example.com": {"auth": STANDARD.encode(auth)}}});
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "pull-secret", "namespace": "openshift-config"},
        "stringData": {".dockerconfigjson": config.to_string()},
    })
}

fn node(profile: &str) -> Value {
    json!({
        "apiVersion": "config.openshift.io/v1", "kind": "Node", "metadata": {"name": "cluster"},
        "spec": {"cgroupMode": "v2", "workerLatencyProfile": profile},
    })
}

fn gates(enabled: &[&str]) -> Value {
    json!({
        "apiVersion": "config.openshift.io/v1", "kind": "FeatureGate", "metadata": {"name": "cluster"},
        "spec": {"featureSet": "CustomNoUpgrade", "customNoUpgrade": {"enabled": enabled}},
    })
}
