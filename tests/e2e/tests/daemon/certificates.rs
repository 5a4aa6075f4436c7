//! Certificates and secrets of the cluster on a real machine: they follow the ControllerConfig at once, in a
//! paused pool, without a restart, and nobody takes them for drift.

use super::site::{HubFixture, differences, file, files, snapshot_trees};
use machinist_e2e::Machine;
use serde_json::{Value, json};

const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/controllerconfigs";
const NAME: &str = "machine-config-controller";
const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
const SECRET: &str = "/etc/mco/internal-registry-pull-secret.json";
const REGISTRIES: &str = "/etc/docker/certs.d";

/// Bytes as the API has them.
fn bytes(text: &str) -> Value {
    serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).unwrap()
}

fn read(machine: &Machine, path: &str) -> anyhow::Result<String> {
    Ok(String::from_utf8(machine.read_file(path)?)?)
}

/// A ControllerConfig that machines can do something with.
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

/// Waits until a machine says that it has the ControllerConfig as it is.
fn wait_synced(site: &HubFixture, machine: &Machine) {
    site.wait_state(machine, "Done", |site, name| {
        let now = site.request("GET", &format!("{CONFIGS}/{NAME}"), &Value::Null)?;
        let version = now["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        Ok(site.annotation(name, "lastSyncedControllerConfigResourceVersion") == version)
    });
}

#[test]
fn certificates_are_updated_without_a_reboot() {
    let site = HubFixture::start();
    let machine = site.machine("a");
    machine.sh(&format!("mkdir -p {REGISTRIES}/mirror.example")).unwrap();
    machine.write_file(&format!("{REGISTRIES}/mirror.example/ca.crt"), "mine").unwrap();
    let before = snapshot_trees(&machine);
    site.join(&machine);
    // A config has such a certificate too: the cluster's is newer.
    site.set_node_disruption_policy(
        &json!({"files": [{"path": "/etc", "actions": [{"type": "None"}]}]}),
    );
    let with = |text: &str| files(&[file(KUBELET_CA, "of the config\n"), file("/etc/word", text)]);
    let config = site.apply_config("50-files", &with("one\n"));
    site.wait_done(&machine, &config);
    assert_eq!(read(&machine, KUBELET_CA).unwrap(), "of the config\n");
    site.patch_pool(&json!({"spec": {"paused": true}}));

    // They come.
    site.request("POST", CONFIGS, &controller_config()).unwrap();
    wait_synced(&site, &machine);
    let holds = |path: &str, text: &str| assert_eq!(read(&machine, path).unwrap(), text, "{path}");
    holds(KUBELET_CA, "first\n");
    holds("/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem", "cloud\n");
    holds(SECRET, "{\"auths\": {}}\n");
    assert_eq!(machine.sh(&format!("stat -c %a {SECRET}")).unwrap(), "600\n");
    holds(&format!("{REGISTRIES}/registry:5000/ca.crt"), "registry");
    holds(&format!("{REGISTRIES}/mirror.example/ca.crt"), "mirror");

    // One changes, one goes.
    let own = format!("{CONFIGS}/{NAME}");
    let patch = json!({"spec": {"kubeAPIServerServingCAData": bytes("second"), "imageRegistryBundleData": null}});
    site.request("PATCH", &own, &patch).unwrap();
    wait_synced(&site, &machine);
    holds(KUBELET_CA, "second\n");
    assert!(!machine.exists(&format!("{REGISTRIES}/registry:5000")).unwrap());

    // What cannot be done is said, and said until it can.
    let bad = json!([{"file": "no/name", "data": bytes("x")}]);
    site.request("PATCH", &own, &json!({"spec": {"imageRegistryBundleData": bad}})).unwrap();
    site.wait_state(&machine, "Degraded", |site, name| {
        let reason = site.annotation(name, "reason");
        anyhow::ensure!(reason.contains("spec.imageRegistryBundleData: file \"no/name\""), reason);
        Ok(true)
    });
    site.request("PATCH", &own, &json!({"spec": {"imageRegistryBundleData": null}})).unwrap();
    wait_synced(&site, &machine);

    // Another config does not bring the old certificate back.
    site.create_unselected_config("another", &with("two\n"));
    site.annotate("a", &[("desiredConfig", "another")]);
    site.wait_done(&machine, "another");
    holds(KUBELET_CA, "second\n");
    holds("/etc/word", "two\n");
    assert_eq!(machine.boots(), 1);
    let events = site.events("a");
    assert!(!events.iter().any(|event| event == "ConfigDriftDetected"), "{events:?}");
    let status = machine.exec(&["machinist", "daemon", "status"]).unwrap();
    assert!(status.succeeded(), "{status:?}");

    // Whoever leaves has what it had.
    machine.sh("machinist leave").unwrap();
    assert_eq!(differences(&before, &snapshot_trees(&machine)), Vec::<String>::new());
}
