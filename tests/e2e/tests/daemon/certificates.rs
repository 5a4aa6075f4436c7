//! The cluster's certificates and secrets on a real machine: they follow the ControllerConfig immediately, in a paused
//! pool, without a reboot, and do not count as drift.

use super::fixture::{HubFixture, differences, file, files, snapshot_trees};
use machinist_e2e::Machine;
use serde_json::{Value, json};

const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/controllerconfigs";
const NAME: &str = "machine-config-controller";
const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
const SECRET: &str = "/etc/mco/internal-registry-pull-secret.json";
const REGISTRIES: &str = "/etc/docker/certs.d";

/// Bytes in the encoding of the API.
fn bytes(text: &str) -> Value {
    serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).unwrap()
}

fn read(machine: &Machine, path: &str) -> anyhow::Result<String> {
    Ok(String::from_utf8(machine.read_file(path)?)?)
}

/// A ControllerConfig with certificates.
fn controller_config() -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
        "metadata": {"name": NAME},
        "spec": {
            "kubeAPIServerServingCAData": bytes("first"),
            "cloudProviderCAData": bytes("cloud"),
            "internalRegistryPullSecret": bytes("{\"auths\": {}}"),
            "imageRegistryBundleData": [{"file": "registry..5000", "data": bytes("registry")}],
            "imageRegistryBundleUserData": [{"file": "mirror.example", "data": bytes("mirror")}],
            "clusterDNSIP": "10.96.0.10", "cloudProviderConfig": "", "images": {}, "ipFamilies": "IPv4",
            "additionalTrustBundle": null, "baseOSContainerImage": "", "rootCAData": bytes("root"),
            "network": null, "proxy": null, "releaseImage": "",
            "infra": {
                "apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": {"name": "cluster"},
                "spec": {"cloudConfig": {"name": ""}},
                "status": {
                    "apiServerInternalURI": "https://api.example.com:6443", "apiServerURL": "",
                    "etcdDiscoveryDomain": "", "infrastructureName": "", "platformStatus": {"type": "None"},
                },
            },
            "dns": {
                "apiVersion": "config.openshift.io/v1", "kind": "DNS", "metadata": {"name": "cluster"},
                "spec": {"baseDomain": "example.com"}, "status": {},
            },
        },
    })
}

/// Waits until a machine reports the current ControllerConfig as applied.
fn wait_synced(fixture: &HubFixture, machine: &Machine) {
    fixture.wait_state(machine, "Done", |fixture, name| {
        let now = fixture.request("GET", &format!("{CONFIGS}/{NAME}"), &Value::Null)?;
        let version = now["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        Ok(fixture.annotation(name, "lastSyncedControllerConfigResourceVersion") == version)
    });
}

#[test]
fn certificates_are_updated_without_a_reboot() {
    let fixture = HubFixture::start();
    let machine = fixture.machine("a");
    machine.sh(&format!("mkdir -p {REGISTRIES}/mirror.example")).unwrap();
    machine.write_file(&format!("{REGISTRIES}/mirror.example/ca.crt"), "mine").unwrap();
    let before = snapshot_trees(&machine);
    fixture.join(&machine);
    // The config contains the same certificate. The cluster's is newer and wins.
    fixture.set_node_disruption_policy(
        &json!({"files": [{"path": "/etc", "actions": [{"type": "None"}]}]}),
    );
    let with = |text: &str| files(&[file(KUBELET_CA, "of the config\n"), file("/etc/word", text)]);
    let config = fixture.apply_config("50-files", &with("one\n"));
    fixture.wait_done(&machine, &config);
    assert_eq!(read(&machine, KUBELET_CA).unwrap(), "of the config\n");
    fixture.patch_pool(&json!({"spec": {"paused": true}}));

    // They are added.
    fixture.request("POST", CONFIGS, &controller_config()).unwrap();
    wait_synced(&fixture, &machine);
    let holds = |path: &str, text: &str| assert_eq!(read(&machine, path).unwrap(), text, "{path}");
    holds(KUBELET_CA, "first\n");
    holds("/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem", "cloud\n");
    holds(SECRET, "{\"auths\": {}}\n");
    assert_eq!(machine.sh(&format!("stat -c %a {SECRET}")).unwrap(), "600\n");
    holds(&format!("{REGISTRIES}/registry:5000/ca.crt"), "registry");
    holds(&format!("{REGISTRIES}/mirror.example/ca.crt"), "mirror");

    // One changes, one is removed.
    let own = format!("{CONFIGS}/{NAME}");
    let patch = json!({"spec": {"kubeAPIServerServingCAData": bytes("second"), "imageRegistryBundleData": null}});
    fixture.request("PATCH", &own, &patch).unwrap();
    wait_synced(&fixture, &machine);
    holds(KUBELET_CA, "second\n");
    assert!(!machine.exists(&format!("{REGISTRIES}/registry:5000")).unwrap());

    // A failure is reported until it is resolved.
    let bad = json!([{"file": "no/name", "data": bytes("x")}]);
    fixture.request("PATCH", &own, &json!({"spec": {"imageRegistryBundleData": bad}})).unwrap();
    fixture.wait_state(&machine, "Degraded", |fixture, name| {
        let reason = fixture.annotation(name, "reason");
        anyhow::ensure!(reason.contains("spec.imageRegistryBundleData: file \"no/name\""), reason);
        Ok(true)
    });
    fixture.request("PATCH", &own, &json!({"spec": {"imageRegistryBundleData": null}})).unwrap();
    wait_synced(&fixture, &machine);

    // Another config does not restore the old certificate.
    fixture.create_unselected_config("another", &with("two\n"));
    fixture.annotate("a", &[("desiredConfig", "another")]);
    fixture.wait_done(&machine, "another");
    holds(KUBELET_CA, "second\n");
    holds("/etc/word", "two\n");
    assert_eq!(machine.boots(), 1);
    let events = fixture.events("a");
    assert!(!events.iter().any(|event| event == "ConfigDriftDetected"), "{events:?}");
    let status = machine.exec(&["machinist", "daemon", "status"]).unwrap();
    assert!(status.succeeded(), "{status:?}");

    // `leave` restores the original state.
    machine.sh("machinist leave").unwrap();
    assert_eq!(differences(&before, &snapshot_trees(&machine)), Vec::<String>::new());
}
