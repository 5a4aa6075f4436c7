//! The inputs of new clusters, from the minimum to everything.

use crate::controller::fixture::{file, machine_config};
use machinist_e2e::binary;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const GROUP: &str = "machineconfiguration.openshift.io";
const POOL: &str = "pools.operator.machineconfiguration.openshift.io";

/// What one more step declares, and its name.
pub(crate) type BootstrapInput = (&'static str, Vec<Value>);

/// The steps. Each adds to the previous ones.
pub(crate) fn bootstrap_inputs() -> Vec<BootstrapInput> {
    vec![
        (
            "plain",
            vec![
                controller_config(false),
                pool("master"),
                pool("worker"),
                file("50-worker-mine", "worker", "/etc/mine", "mine"),
                file("50-master-mine", "master", "/etc/mine", "of the control plane"),
            ],
        ),
        (
            "kubelets",
            vec![
                settings(
                    "KubeletConfig",
                    "pods",
                    "worker",
                    &json!({"kubeletConfig": {"maxPods": 220}}),
                ),
                settings(
                    "KubeletConfig",
                    "log",
                    "master",
                    &json!({"logLevel": 4, "autoSizingReserved": true}),
                ),
            ],
        ),
        (
            "runtime",
            vec![settings(
                "ContainerRuntimeConfig",
                "processes",
                "worker",
                &json!({"containerRuntimeConfig": {"pidsLimit": 4096, "overlaySize": "8G", "logLevel": "warn"}}),
            )],
        ),
        ("mirrors", mirrors()),
        (
            "custom pool",
            vec![
                infra_pool(),
                machine_config(
                    "40-infra",
                    "infra",
                    &json!({"kernelArguments": ["quiet"], "kernelType": "realtime"}),
                ),
                settings(
                    "KubeletConfig",
                    "infra",
                    "infra",
                    &json!({"kubeletConfig": {"maxPods": 50}}),
                ),
            ],
        ),
        ("pull secret", vec![controller_config(true), pull_secret()]),
        ("cluster settings", cluster_settings()),
    ]
}

fn mirrors() -> Vec<Value> {
    let config = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let mirror =
        |source: &str| json!([{"source": source, "mirrors": ["mirror.example.net:5000/x"]}]);
    vec![
        json!({
            "apiVersion": "operator.openshift.io/v1alpha1", "kind": "ImageContentSourcePolicy",
            "metadata": {"name": "old"}, "spec": {"repositoryDigestMirrors": mirror("quay.example.com/a")},
        }),
        config(
            "ImageDigestMirrorSet",
            "digests",
            json!({"imageDigestMirrors": mirror("b.example.com/b")}),
        ),
        config("ImageTagMirrorSet", "tags", json!({"imageTagMirrors": mirror("c.example.com/c")})),
        config(
            "Image",
            "cluster",
            json!({"registrySources": {"blockedRegistries": ["bad.example.org"]}}),
        ),
    ]
}

/// The cluster's FeatureGate, Node and APIServer objects.
fn cluster_settings() -> Vec<Value> {
    let config = |kind: &str, spec: Value| json!({"apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": "cluster"}, "spec": spec});
    let chosen = json!({"enabled": ["OneGate"], "disabled": ["OtherGate"]});
    vec![
        config("FeatureGate", json!({"featureSet": "CustomNoUpgrade", "customNoUpgrade": chosen})),
        config(
            "Node",
            json!({"cgroupMode": "v2", "workerLatencyProfile": "MediumUpdateAverageReaction"}),
        ),
        config("APIServer", json!({"tlsSecurityProfile": {"type": "Old", "old": {}}})),
    ]
}

fn pool(name: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfigPool",
        "metadata": {
            "name": name,
            "labels": {format!("{GROUP}/mco-built-in"): "", format!("{POOL}/{name}"): ""},
        },
        "spec": {
            "machineConfigSelector": {"matchLabels": {format!("{GROUP}/role"): name}},
            "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}},
        },
    })
}

fn infra_pool() -> Value {
    let mut infra = pool("infra");
    infra["metadata"]["labels"] = json!({format!("{POOL}/infra"): ""});
    infra["spec"]["machineConfigSelector"] = json!({"matchExpressions": [
        {"key": format!("{GROUP}/role"), "operator": "In", "values": ["worker", "infra"]},
    ]});
    infra
}

fn settings(kind: &str, name: &str, pool: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["machineConfigPoolSelector"] = json!({"matchLabels": {format!("{POOL}/{pool}"): ""}});
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// The credentials that the machines' container runtime sends to registries.
pub(crate) const DOCKER_CONFIG: &str =
    r#"{"auths":{"registry.example.com":{"auth":"bWU6aHVudGVyMg=="}}}"#;

pub(crate) fn pull_secret() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "pull-secret", "namespace": "openshift-config"},
        "stringData": {".dockerconfigjson": DOCKER_CONFIG},
    })
}

/// The ControllerConfig of a plain cluster, with or without a pull secret.
pub(crate) fn controller_config(with_pull_secret: bool) -> Value {
    let mut config = machinist_e2e::objects::controller_config();
    config["spec"]["baseOSContainerImage"] = "quay.example.com/os:1".into();
    if with_pull_secret {
        config["spec"]["pullSecret"] =
            json!({"name": "pull-secret", "namespace": "openshift-config"});
    }
    config
}

/// Writes an object to its own file. A later version of the object replaces it.
pub(crate) fn write(dir: &Path, object: &Value) {
    let name = format!("{}-{}.json", object["kind"], object["metadata"]["name"]).replace('"', "");
    fs::write(dir.join(name), object.to_string()).unwrap();
}

/// `machinist bootstrap` with these arguments.
pub(crate) fn bootstrap(manifests: &Path, out: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(binary::machinist_binary().unwrap());
    command.arg("bootstrap").arg("--manifests").arg(manifests).arg("--out").arg(out);
    command.args(["-o", "json"]).args(more).output().unwrap()
}
