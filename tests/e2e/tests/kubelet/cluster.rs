//! What the cluster itself says: Node settings (97), feature gates (98), the TLS profile, secrets and certificates.

use super::site::Site;
use super::{KUBELET, contents, controller_config, holds};
use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinist_e2e::pki::Authority;
use serde_json::{Value, json};

const OF_NODES: &str = "97-worker-generated-kubelet";
const OF_GATES: &str = "98-worker-generated-kubelet";
const PULL_SECRET: &str = "/var/lib/kubelet/config.json";

/// Node settings and feature gates come, change and go, below the KubeletConfigs that are there and above what is left
/// when those are gone.
pub(super) fn settings(site: &Site) {
    let base = site.rendered("worker", "");
    site.apply(&node("MediumUpdateAverageReaction"));
    holds(site, "nodeStatusUpdateFrequency: 20s");
    let made = site.get("mc", OF_NODES);
    assert!(made["metadata"]["ownerReferences"].is_null(), "{made}");
    let arguments = made["spec"]["kernelArguments"].to_string();
    assert!(arguments.contains("systemd.unified_cgroup_hierarchy=1"), "{arguments}");
    let rendered = site.get("mc", &site.rendered("worker", ""));
    assert_eq!(rendered["spec"]["kernelArguments"], made["spec"]["kernelArguments"]);

    site.apply(&gates(&["SomeGate"]));
    holds(site, "SomeGate: true");
    let below = machinist_e2e::contents(&site.get("mc", OF_GATES), KUBELET).unwrap();
    assert!(below.contains("SomeGate: true") && below.contains("20s"), "{below}");
    site.apply(&gates(&["OtherGate"]));
    holds(site, "OtherGate: true");
    assert!(!contents(site, KUBELET).unwrap().contains("SomeGate"));

    site.apply(&node("LowUpdateSlowReaction"));
    holds(site, "nodeStatusUpdateFrequency: 1m0s");
    site.updated("worker");
    too_far(site);

    // Kubelets speak as the API server does.
    let profile = json!({"type": "Modern", "modern": {}});
    site.apply(&json!({
        "apiVersion": "config.openshift.io/v1", "kind": "APIServer", "metadata": {"name": "cluster"},
        "spec": {"tlsSecurityProfile": profile},
    }));
    holds(site, "tlsMinVersion: VersionTLS13");

    let all = ["node.config.openshift.io/cluster", "featuregate/cluster", "apiserver/cluster"];
    site.kubectl(&[&["delete"], &all[..]].concat());
    site.until("what the cluster said to go", || {
        let names = site.kubectl(&["get", "mc", "-o", "name"]);
        ensure!(!names.contains(OF_NODES) && !names.contains(OF_GATES), "{names}");
        let rendered = site.rendered("worker", "");
        ensure!(rendered == base, "{rendered} is not {base}");
        Ok(())
    });
    site.updated("worker");
}

/// From one end of the latency profiles to the other there is no direct way.
fn too_far(site: &Site) {
    let before = site.rendered("worker", "");
    site.apply(&node("Default"));
    site.until("the pool to say that the step is too large", || {
        let (status, message) = site.condition("worker", "GenerateDegraded");
        let says = message.contains("spec.workerLatencyProfile")
            && message.contains("set MediumUpdateAverageReaction first");
        ensure!(status == "True" && says, "{status} {message}");
        Ok(())
    });
    site.until("the event", || {
        let events = site.kubectl(&["get", "events", "-o", "json"]);
        let says = "transition not allowed from old WorkerLatencyProfile: \\\"LowUpdateSlowReaction\\\" to new WorkerLatencyProfile: \\\"Default\\\"";
        ensure!(events.contains("ActionProhibited") && events.contains(says), "{events}");
        Ok(())
    });
    assert_eq!(site.rendered("worker", ""), before, "on {}", site.home.name);
    site.apply(&node("MediumUpdateAverageReaction"));
    holds(site, "nodeStatusUpdateFrequency: 20s");
    site.until("the pool to be content", || {
        let (status, message) = site.condition("worker", "GenerateDegraded");
        ensure!(status == "False", "{status} {message}");
        Ok(())
    });
}

/// A new pull secret reaches the machines though nobody touches the ControllerConfig; and it says which certificates
/// machines are given.
pub(super) fn secrets_and_certificates(site: &Site) {
    site.kubectl(&["create", "namespace", "openshift-config"]);
    site.apply(&pull_secret("first"));
    let authority = Authority::new("the-root").unwrap();
    let bundle = STANDARD.encode(authority.certificate());
    let mut config = controller_config("10.96.0.10");
    config["spec"]["pullSecret"] = json!({"namespace": "openshift-config", "name": "pull-secret"});
    config["spec"]["kubeAPIServerServingCAData"] = json!(bundle);
    config["spec"]["dns"]["spec"]["baseDomain"] = json!("c.example.com");
    site.apply(&config);
    told(site, "Zmlyc3Q=");
    site.apply(&pull_secret("second"));
    told(site, "c2Vjb25k");

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
    told(site, "api-int.c.example.com:22625");
    site.kubectl(&["delete", "internalreleaseimage", "cluster"]);
    site.until("the cluster's own registry to go", || {
        let found = contents(site, PULL_SECRET)?;
        ensure!(!found.contains("22625") && found.contains("c2Vjb25k"), "{found}");
        Ok(())
    });

    site.until("the certificates to be told", || {
        let config = site.get("controllerconfig", "machine-config-controller");
        let first = &config["status"]["controllerCertificates"][0];
        ensure!(first["bundleFile"] == "KubeAPIServerServingCAData", "{}", config["status"]);
        ensure!(first["subject"].to_string().contains("CN=the-root"), "{first}");
        ensure!(config["status"]["observedGeneration"] == config["metadata"]["generation"]);
        let expiry = &site.get("mcp", "worker")["status"]["certExpirys"][0];
        ensure!(expiry["expiry"] == first["notAfter"] && !expiry["expiry"].is_null(), "{expiry}");
        Ok(())
    });
    site.updated("worker");
}

fn told(site: &Site, text: &str) {
    site.until(&format!("{text} to be in the pull secret of machines"), || {
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
