//! The operator against a real API server, with only the permissions of its own account. There are no machines: the
//! test sets the readiness of the components in their status.

use crate::install::support::{
    NAMESPACE, OPERATOR, condition, deploy, get, install, kubeconfig_file, merge, wait_condition,
};
use anyhow::{Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use machinist_e2e::http_get::http_get;
use machinist_e2e::lab::LabProcess;
use machinist_e2e::{Cluster, binary, wait_for};
use serde_json::{Value, json};
use std::process::Command;

const CONFIG: &str =
    "/apis/machineconfiguration.openshift.io/v1/controllerconfigs/machine-config-controller";
const MACHINE_CONFIGURATION: &str = "/apis/operator.openshift.io/v1/machineconfigurations/cluster";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/openshift-machine-config-operator/deployments";
const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/openshift-machine-config-operator/daemonsets";

pub(super) fn start(cluster: &Cluster, release: &str) -> LabProcess {
    let mut operator = Command::new(binary::machinist_binary().unwrap());
    operator.arg("operator").arg("--kubeconfig").arg(kubeconfig_file(cluster, OPERATOR).unwrap());
    operator.args([
        "--release-version",
        release,
        "--image",
        &format!("localhost/machinist:{release}"),
    ]);
    operator.args([
        "--lease-duration=3s",
        "--lease-renew-deadline=2s",
        "--lease-retry-period=500ms",
    ]);
    operator.args(["--metrics-listen-address", &metrics_address(cluster)]);
    cluster.lab().spawn("operator", &operator).unwrap()
}

/// The address of its metrics.
fn metrics_address(cluster: &Cluster) -> String {
    format!("{}:8797", cluster.lab().loopback())
}

/// Waits for an event about the operator's own object.
fn wait_for_event(cluster: &Cluster, reason: &str, fragments: &[&str]) {
    wait_for(&format!("{reason}: {fragments:?}"), || {
        let all = get(cluster, "/api/v1/namespaces/default/events")?;
        let about = |event: &&Value| event["involvedObject"]["kind"] == "MachineConfiguration";
        let found = all["items"].as_array().into_iter().flatten().filter(about);
        let events: Vec<String> =
            found.map(|event| format!("{}: {}", event["reason"], event["message"])).collect();
        let is_it = |text: &String| {
            text.contains(&format!("\"{reason}\""))
                && fragments.iter().all(|fragment| text.contains(fragment))
        };
        ensure!(events.iter().any(is_it), "found only {events:#?}");
        Ok(true)
    })
    .unwrap();
}

/// Waits until the operator serves a metric line with this prefix.
fn wait_for_metric(cluster: &Cluster, line: &str) {
    wait_for(line, || {
        let text = http_get(&metrics_address(cluster), "/metrics")?;
        ensure!(text.lines().any(|found| found.starts_with(line)), "{text}");
        Ok(true)
    })
    .unwrap();
}

fn path(part: &str) -> String {
    let list = if part == "controller" { DEPLOYMENTS } else { DAEMON_SETS };
    format!("{list}/machine-config-{part}")
}

fn image(cluster: &Cluster, part: &str) -> Result<String> {
    let object = get(cluster, &path(part))?;
    let image = &object["spec"]["template"]["spec"]["containers"][0]["image"];
    Ok(image.as_str().unwrap_or("none").trim_start_matches("localhost/machinist:").to_owned())
}

/// The images of controller, server and daemon.
fn images(cluster: &Cluster) -> Result<String> {
    let parts = ["controller", "server", "daemon"];
    Ok(parts.map(|part| image(cluster, part).unwrap_or_default()).join(" "))
}

fn wait_images(cluster: &Cluster, expected: &str) {
    wait_for(&format!("the images {expected}"), || {
        let found = images(cluster)?;
        ensure!(found == expected, "they are {found}");
        Ok(true)
    })
    .unwrap();
}

/// Marks a component as rolled out.
fn roll_out(cluster: &Cluster, part: &str) {
    let object = get(cluster, &path(part)).unwrap();
    let status = if part == "controller" {
        json!({"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2})
    } else {
        json!({
            "desiredNumberScheduled": 1, "currentNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 1,
            "updatedNumberScheduled": 1, "numberAvailable": 1,
        })
    };
    let mut status = json!({"status": status});
    status["status"]["observedGeneration"] = object["metadata"]["generation"].clone();
    merge(cluster, &format!("{}/status", path(part)), &status).unwrap();
}

pub(super) fn settings(cluster: &Cluster, more: &str) {
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: machinist-settings, namespace: {NAMESPACE}}}\n\
         data: {{apiServerURL: 'https://api.example.com:6443'{more}}}\n"
    );
    cluster.apply(&text).unwrap();
}

fn object(cluster: &Cluster, plural: &str, name: &str) -> Result<Value> {
    get(cluster, &format!("/api/v1/namespaces/{NAMESPACE}/{plural}/{name}"))
}

pub(super) fn secret_text(cluster: &Cluster, name: &str, key: &str) -> Result<String> {
    let secret = object(cluster, "secrets", name)?;
    let data = BASE64_STANDARD.decode(secret["data"][key].as_str().unwrap_or_default())?;
    Ok(String::from_utf8(data)?)
}

fn bundle(cluster: &Cluster) -> Result<String> {
    let map = object(cluster, "configmaps", "machine-config-server-ca")?;
    Ok(map["data"]["ca-bundle.crt"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn the_operator_deploys_repairs_rotates_and_upgrades() {
    let cluster = Cluster::start().unwrap();
    install(&cluster).unwrap();
    // The component that would publish it is missing.
    cluster
        .kubectl(&[
            "-n",
            NAMESPACE,
            "create",
            "configmap",
            "kube-root-ca.crt",
            "--from-literal=ca.crt=CA",
        ])
        .unwrap();
    let operator = start(&cluster, "1");
    deploys(&cluster);
    wait_for_event(&cluster, "OperatorVersionChanged", &["bootstrapping to 1"]);
    wait_for_event(&cluster, "DeploymentCreated", &["machine-config-controller"]);
    wait_for_event(&cluster, "ServerCertificateRotated", &[]);
    wait_for_metric(&cluster, "machinist_operator_build_info{version=\"1\"} 1");
    wait_for_metric(&cluster, "machinist_operator_condition{condition=\"Available\"} 1");
    wait_for_metric(
        &cluster,
        "machinist_operator_certificate_expiry_seconds{certificate=\"server\"} 1",
    );
    assert!(http_get(&metrics_address(&cluster), "/readyz").unwrap().ends_with("leading"));
    repairs(&cluster);
    reports_degraded(&cluster);
    server_auth_settings(&cluster);
    rotates(&cluster);
    drop(operator);
    let _operator = start(&cluster, "2");
    upgrades(&cluster);
    reports_cluster_operator(&cluster);
    unmanaged(&cluster);
}

fn deploys(cluster: &Cluster) {
    wait_images(cluster, "1 none 1");
    wait_condition(cluster, "Available", "False NoController").unwrap();
    wait_condition(cluster, "Progressing", "True RollingOut: Working towards 1").unwrap();
    roll_out(cluster, "controller");
    // Without the address of the API there is no server, and the reason is reported.
    wait_for("the remedy", || {
        let available = condition(cluster, "Available")?;
        ensure!(
            available.contains("set apiServerURL in ConfigMap machinist-settings"),
            "{available}"
        );
        Ok(true)
    })
    .unwrap();
    settings(cluster, "");
    wait_images(cluster, "1 1 1");
    for part in ["controller", "server", "daemon"] {
        roll_out(cluster, part);
    }
    wait_condition(cluster, "Progressing", "False AsExpected: Cluster version is 1").unwrap();
    wait_condition(cluster, "Available", "True AsExpected: Cluster has deployed 1").unwrap();
    wait_condition(cluster, "Degraded", "False").unwrap();
    wait_condition(cluster, "Upgradeable", "True").unwrap();
    let trusted = bundle(cluster).unwrap();
    assert_eq!(trusted.matches("BEGIN CERTIFICATE").count(), 1);
    let config = get(cluster, CONFIG).unwrap();
    assert_eq!(config["spec"]["rootCAData"], BASE64_STANDARD.encode(&trusted));
    assert_eq!(config["metadata"]["ownerReferences"][0]["kind"], "Namespace");
    let pools = cluster.kubectl(&["get", "mcp", "-o", "name"]).unwrap();
    assert_eq!(pools.lines().count(), 2, "{pools}");
}

fn repairs(cluster: &Cluster) {
    cluster.kubectl(&["-n", NAMESPACE, "delete", "daemonset", "machine-config-daemon"]).unwrap();
    wait_images(cluster, "1 1 1");
    let other =
        json!({"spec": {"replicas": 0, "template": {"spec": {"serviceAccountName": "default"}}}});
    merge(cluster, &path("controller"), &other).unwrap();
    wait_for("the controller to be as it should", || {
        let spec = get(cluster, &path("controller"))?["spec"].clone();
        let account = &spec["template"]["spec"]["serviceAccountName"];
        Ok(spec["replicas"] == 2 && account == "machine-config-controller")
    })
    .unwrap();
    wait_for_event(
        cluster,
        "DaemonSetRepaired",
        &["machine-config-daemon was deleted by somebody"],
    );
    let fields = ["spec.replicas", "spec.template.spec.serviceAccountName", "changed by "];
    wait_for_event(cluster, "DeploymentRepaired", &fields);
    wait_for_metric(cluster, "machinist_operator_repairs_total ");
    let signer = secret_text(cluster, "machine-config-server-ca", "tls.crt").unwrap();
    cluster.kubectl(&["-n", NAMESPACE, "delete", "secret", "machine-config-server-tls"]).unwrap();
    cluster.kubectl(&["delete", "controllerconfig", "machine-config-controller"]).unwrap();
    cluster.kubectl(&["-n", NAMESPACE, "delete", "configmap", "machine-config-server-ca"]).unwrap();
    wait_for("what was deleted to come back", || {
        ensure!(
            secret_text(cluster, "machine-config-server-tls", "ca.crt")? == signer,
            "no certificate"
        );
        ensure!(bundle(cluster)? == signer, "no bundle");
        Ok(!get(cluster, CONFIG)?.is_null())
    })
    .unwrap();
    for part in ["controller", "daemon"] {
        roll_out(cluster, part);
    }
}

fn reports_degraded(cluster: &Cluster) {
    settings(cluster, ", profile: openshift");
    wait_condition(
        cluster,
        "Degraded",
        "True SettingsFailed: Failed to resync 1: ConfigMap machinist-settings: data.profile: \"openshift\" is not one of",
    )
    .unwrap();
    wait_for_event(
        cluster,
        "OperatorDegraded",
        &["SettingsFailed: Failed to resync 1", "data.profile"],
    );
    wait_for_metric(cluster, "machinist_operator_sync_errors_total{task=\"Settings\"} ");
    settings(cluster, "");
    wait_condition(cluster, "Degraded", "False").unwrap();
    wait_for_event(cluster, "OperatorRecovered", &["SettingsFailed is over"]);
    degraded_pool_is_reported(cluster);
}

/// A stuck pool that every release needs degrades the whole operator.
fn degraded_pool_is_reported(cluster: &Cluster) {
    let pool = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools/master";
    let status = |since: &str, updated: i32| {
        let updating = if updated < 2 { "True" } else { "False" };
        let status = json!({"status": {
            "machineCount": 2, "updatedMachineCount": updated,
            "conditions": [{"type": "Updating", "status": updating, "lastTransitionTime": since}],
        }});
        merge(cluster, &format!("{pool}/status"), &status).unwrap();
    };
    status("2026-01-01T00:00:00Z", 1);
    let stuck = "True RequiredPoolsFailed: required MachineConfigPool master is not ready;";
    wait_condition(cluster, "Degraded", stuck).unwrap();
    wait_for_metric(cluster, "machinist_operator_condition{condition=\"Degraded\"} 1");
    merge(cluster, pool, &json!({"spec": {"paused": true}})).unwrap();
    wait_condition(cluster, "Upgradeable", "False PausedPool").unwrap();
    merge(cluster, pool, &json!({"spec": {"paused": false}})).unwrap();
    status("2026-01-01T00:00:00Z", 2);
    wait_condition(cluster, "Degraded", "False").unwrap();
    wait_condition(cluster, "Upgradeable", "True").unwrap();
}

fn arguments(cluster: &Cluster, part: &str) -> Result<String> {
    let object = get(cluster, &path(part))?;
    Ok(object["spec"]["template"]["spec"]["containers"][0]["args"].to_string())
}

/// Settings of the server reach its arguments and the controller's; a missing token is reported.
fn server_auth_settings(cluster: &Cluster) {
    settings(cluster, ", serverToken: pointer, sealed: 'true', firstBoot: 'true'");
    wait_condition(
        cluster,
        "Degraded",
        "True SettingsFailed: Failed to resync 1: ConfigMap machinist-settings: data.serverToken: Secret pointer does not exist",
    )
    .unwrap();
    assert!(!arguments(cluster, "server").unwrap().contains("--require-token"));
    let token = "--from-literal=token=abcdef.secret";
    cluster.kubectl(&["-n", NAMESPACE, "create", "secret", "generic", "pointer", token]).unwrap();
    wait_condition(cluster, "Degraded", "False").unwrap();
    let url = "https://api.example.com:22623";
    wait_for("the server to get its settings", || {
        let (server, controller) =
            (arguments(cluster, "server")?, arguments(cluster, "controller")?);
        for fragment in [
            "--require-token".to_owned(),
            "--access-namespace=machinist-access".to_owned(),
            format!("--sealed-url={url}"),
            format!("--first-boot-url={url}"),
        ] {
            ensure!(server.contains(&format!("{fragment:?}")), "{fragment}: {server}");
        }
        Ok(controller.contains("--server-token-file="))
    })
    .unwrap();
    settings(cluster, "");
    wait_for("the server to be as before", || {
        Ok(!arguments(cluster, "server")?.contains("--require-token"))
    })
    .unwrap();
    for part in ["controller", "server"] {
        roll_out(cluster, part);
    }
}

fn rotates(cluster: &Cluster) {
    let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/machine-config-server-ca");
    let old = secret_text(cluster, "machine-config-server-ca", "tls.crt").unwrap();
    let patch = json!({"metadata": {"annotations": {"machinist.dev/rotate": "please"}}});
    merge(cluster, &secret, &patch).unwrap();
    wait_for("machines to trust both", || {
        Ok(bundle(cluster)?.matches("BEGIN CERTIFICATE").count() == 2)
    })
    .unwrap();
    assert_eq!(secret_text(cluster, "machine-config-server-tls", "ca.crt").unwrap(), old);
    let new = secret_text(cluster, "machine-config-server-ca", "next.crt").unwrap();
    // The test cannot wait for a day.
    settings(cluster, ", certificateOverlap: 0s");
    wait_for("the new CA to be used", || {
        Ok(secret_text(cluster, "machine-config-server-tls", "ca.crt")? == new)
    })
    .unwrap();
    wait_for_event(cluster, "CertificateAuthorityRotationStarted", &[]);
    wait_for_event(cluster, "CertificateAuthorityRotated", &[]);
    assert!(bundle(cluster).unwrap().contains(&old), "machines that know only the old one");
    let trusted = bundle(cluster).unwrap();
    wait_for("the ControllerConfig to say so", || {
        Ok(get(cluster, CONFIG)?["spec"]["rootCAData"] == BASE64_STANDARD.encode(&trusted))
    })
    .unwrap();
}

fn upgrades(cluster: &Cluster) {
    wait_images(cluster, "2 1 1");
    wait_condition(cluster, "Progressing", "True RollingOut: Working towards 2").unwrap();
    let config = get(cluster, CONFIG).unwrap();
    let release = "machineconfiguration.openshift.io/release-image-version";
    assert_eq!(config["metadata"]["annotations"][release], "1", "it waits for its controller");
    roll_out(cluster, "controller");
    wait_images(cluster, "2 2 1");
    roll_out(cluster, "server");
    wait_images(cluster, "2 2 2");
    roll_out(cluster, "daemon");
    wait_condition(cluster, "Progressing", "False AsExpected: Cluster version is 2").unwrap();
    assert_eq!(get(cluster, CONFIG).unwrap()["metadata"]["annotations"][release], "2");
    wait_for_event(cluster, "OperatorVersionChanged", &["started a version change from 1 to 2"]);
    wait_for_event(
        cluster,
        "DaemonSetUpdated",
        &["machine-config-daemon was updated to release 2"],
    );
    wait_for_event(cluster, "OperatorVersionChanged", &["version changed to 2"]);
}

fn reports_cluster_operator(cluster: &Cluster) {
    cluster.install_crds(&[deploy("crds/clusteroperators.config.openshift.io.yaml")]).unwrap();
    // Any change triggers a reconcile.
    settings(cluster, ", clusterDNSIP: 10.96.0.10");
    wait_for("the ClusterOperator", || {
        let path = "/apis/config.openshift.io/v1/clusteroperators/machine-config";
        let status = get(cluster, path)?["status"].clone();
        ensure!(status["versions"][0] == json!({"name": "operator", "version": "2"}), "{status}");
        Ok(status["conditions"].as_array().is_some_and(|all| all.len() == 4))
    })
    .unwrap();
}

fn unmanaged(cluster: &Cluster) {
    merge(cluster, MACHINE_CONFIGURATION, &json!({"spec": {"managementState": "Unmanaged"}}))
        .unwrap();
    wait_condition(
        cluster,
        "Available",
        "True AsExpected: Cluster has deployed 2; nothing is kept",
    )
    .unwrap();
    cluster.kubectl(&["-n", NAMESPACE, "delete", "daemonset", "machine-config-server"]).unwrap();
    merge(cluster, MACHINE_CONFIGURATION, &json!({"spec": {"managementState": "Managed"}}))
        .unwrap();
    wait_images(cluster, "2 2 2");
    merge(cluster, MACHINE_CONFIGURATION, &json!({"spec": {"managementState": "Removed"}}))
        .unwrap();
    wait_images(cluster, "none none none");
}
