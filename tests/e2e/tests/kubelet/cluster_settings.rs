//! Cluster-wide settings: Node settings (97), feature gates (98), the TLS profile, secrets and certificates.

use super::{KUBELET, controller_config, wait_for_line};
use crate::controller::fixture::ControllerFixture;
use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinist_e2e::pki::TestCa;
use serde_json::{Value, json};

const OF_NODES: &str = "97-worker-generated-kubelet";
const OF_GATES: &str = "98-worker-generated-kubelet";
const PULL_SECRET: &str = "/var/lib/kubelet/config.json";

/// Node settings and feature gates are added, changed and removed, below existing KubeletConfigs and without them.
pub(super) fn settings(fixture: &ControllerFixture) {
    let base = fixture.wait_for_new_config("worker", "");
    fixture.apply(&node("MediumUpdateAverageReaction"));
    wait_for_line(fixture, "nodeStatusUpdateFrequency: 20s");
    let made = fixture.get("mc", OF_NODES);
    assert!(made["metadata"]["ownerReferences"].is_null(), "{made}");
    let arguments = made["spec"]["kernelArguments"].to_string();
    assert!(arguments.contains("systemd.unified_cgroup_hierarchy=1"), "{arguments}");
    let rendered = fixture.get("mc", &fixture.wait_for_new_config("worker", ""));
    assert_eq!(rendered["spec"]["kernelArguments"], made["spec"]["kernelArguments"]);

    fixture.apply(&gates(&["SomeGate"]));
    wait_for_line(fixture, "SomeGate: true");
    let below =
        machinist_e2e::machine_config_files::contents(&fixture.get("mc", OF_GATES), KUBELET)
            .unwrap();
    assert!(below.contains("SomeGate: true") && below.contains("20s"), "{below}");
    fixture.apply(&gates(&["OtherGate"]));
    wait_for_line(fixture, "OtherGate: true");
    assert!(!fixture.rendered_file(KUBELET).unwrap().contains("SomeGate"));

    fixture.apply(&node("LowUpdateSlowReaction"));
    wait_for_line(fixture, "nodeStatusUpdateFrequency: 1m0s");
    fixture.wait_updated("worker");
    latency_profile_jump_is_rejected(fixture);

    // Kubelets use the TLS profile of the API server.
    let profile = json!({"type": "Modern", "modern": {}});
    fixture.apply(&json!({
        "apiVersion": "config.openshift.io/v1", "kind": "APIServer", "metadata": {"name": "cluster"},
        "spec": {"tlsSecurityProfile": profile},
    }));
    wait_for_line(fixture, "tlsMinVersion: VersionTLS13");

    let all = ["node.config.openshift.io/cluster", "featuregate/cluster", "apiserver/cluster"];
    fixture.kubectl(&[&["delete"], &all[..]].concat());
    fixture.wait_until("what the cluster said to go", || {
        let names = fixture.kubectl(&["get", "mc", "-o", "name"]);
        ensure!(!names.contains(OF_NODES) && !names.contains(OF_GATES), "{names}");
        let rendered = fixture.wait_for_new_config("worker", "");
        ensure!(rendered == base, "{rendered} is not {base}");
        Ok(())
    });
    fixture.wait_updated("worker");
}

/// A direct change between the two extreme latency profiles is refused.
fn latency_profile_jump_is_rejected(fixture: &ControllerFixture) {
    let before = fixture.wait_for_new_config("worker", "");
    fixture.apply(&node("Default"));
    fixture.wait_until("the pool to say that the step is too large", || {
        let (status, message) = fixture.condition("worker", "GenerateDegraded");
        let says = message.contains("spec.workerLatencyProfile")
            && message.contains("set MediumUpdateAverageReaction first");
        ensure!(status == "True" && says, "{status} {message}");
        Ok(())
    });
    fixture.wait_until("the event", || {
        let events = fixture.kubectl(&["get", "events", "-o", "json"]);
        let says = "transition not allowed from old WorkerLatencyProfile: \\\"LowUpdateSlowReaction\\\" to new WorkerLatencyProfile: \\\"Default\\\"";
        ensure!(events.contains("ActionProhibited") && events.contains(says), "{events}");
        Ok(())
    });
    assert_eq!(fixture.wait_for_new_config("worker", ""), before, "on {}", fixture.api_server.name);
    fixture.apply(&node("MediumUpdateAverageReaction"));
    wait_for_line(fixture, "nodeStatusUpdateFrequency: 20s");
    fixture.wait_until("the pool to be content", || {
        let (status, message) = fixture.condition("worker", "GenerateDegraded");
        ensure!(status == "False", "{status} {message}");
        Ok(())
    });
}

/// A new pull secret reaches the machines although nobody changes the ControllerConfig, which also lists the
/// certificates of the machines.
pub(super) fn secrets_and_certificates(fixture: &ControllerFixture) {
    fixture.kubectl(&["create", "namespace", "openshift-config"]);
    fixture.apply(&pull_secret("first"));
    let authority = TestCa::new("the-root").unwrap();
    let bundle = STANDARD.encode(authority.certificate());
    let mut config = controller_config("10.96.0.10");
    config["spec"]["pullSecret"] = json!({"namespace": "openshift-config", "name": "pull-secret"});
    config["spec"]["kubeAPIServerServingCAData"] = json!(bundle);
    config["spec"]["dns"]["spec"]["baseDomain"] = json!("c.example.com");
    fixture.apply(&config);
    wait_for_event(fixture, "Zmlyc3Q=");
    fixture.apply(&pull_secret("second"));
    wait_for_event(fixture, "c2Vjb25k");

    // A cluster with its own image registry lets all machines pull from it.
    fixture.apply(&json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "internal-release-image-registry-auth", "namespace": "openshift-machine-config-operator"},
        "stringData": {"password": "hush"},
    }));
    fixture.apply(&json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "InternalReleaseImage",
        "metadata": {"name": "cluster"},
        "spec": {"releases": [{"name": "ocp-release-bundle-4.20.1-x86_64"}]},
    }));
    wait_for_event(fixture, "api-int.c.example.com:22625");
    fixture.kubectl(&["delete", "internalreleaseimage", "cluster"]);
    fixture.wait_until("the cluster's own registry to go", || {
        let found = fixture.rendered_file(PULL_SECRET)?;
        ensure!(!found.contains("22625") && found.contains("c2Vjb25k"), "{found}");
        Ok(())
    });

    fixture.wait_until("the certificates to be reported", || {
        let config = fixture.get("controllerconfig", "machine-config-controller");
        let first = &config["status"]["controllerCertificates"][0];
        ensure!(first["bundleFile"] == "KubeAPIServerServingCAData", "{}", config["status"]);
        ensure!(first["subject"].to_string().contains("CN=the-root"), "{first}");
        ensure!(config["status"]["observedGeneration"] == config["metadata"]["generation"]);
        let expiry = &fixture.get("mcp", "worker")["status"]["certExpirys"][0];
        ensure!(expiry["expiry"] == first["notAfter"] && !expiry["expiry"].is_null(), "{expiry}");
        Ok(())
    });
    fixture.wait_updated("worker");
}

fn wait_for_event(fixture: &ControllerFixture, text: &str) {
    fixture.wait_until(&format!("{text} to be in the pull secret of machines"), || {
        let found = fixture.rendered_file(PULL_SECRET)?;
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
