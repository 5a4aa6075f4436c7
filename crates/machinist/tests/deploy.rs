//! Keeps `deploy/install.yaml` and the Helm chart equal to the manifests in `deploy/`.
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The kinds that OpenShift installs itself.
const OF_OPENSHIFT: [&str; 2] =
    ["clusteroperators.config.openshift.io.yaml", "clusterversions.config.openshift.io.yaml"];

pub(crate) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files that a kustomization lists, in order, including those of its directories.
pub(crate) fn listed(directory: &Path) -> Vec<PathBuf> {
    let text = read(&directory.join("kustomization.yaml"));
    let kustomization: Value = serde_saphyr::from_str(&text).unwrap();
    let resources = kustomization["resources"].as_array().unwrap();
    let mut files = Vec::new();
    for resource in resources {
        let path = directory.join(resource.as_str().unwrap());
        if path.is_dir() { files.extend(listed(&path)) } else { files.push(path) }
    }
    files
}

fn yaml_files(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".yaml") && name != "kustomization.yaml");
    names.sort();
    names
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// What the operator deploys has a test of its own, next to its manifests.
#[test]
fn the_operator_has_limits_and_only_its_metrics_can_be_reached() {
    let parse = |name: &str| -> Value {
        serde_saphyr::from_str(&read(&deploy().join("system").join(name))).unwrap()
    };
    let (operator, policy) = (parse("operator.yaml"), parse("network-policy.yaml"));
    let (template, selector) = (&operator["spec"]["template"], &policy["spec"]["podSelector"]);
    for (label, value) in selector["matchLabels"].as_object().unwrap() {
        assert_eq!(&template["metadata"]["labels"][label], value, "{label}");
    }
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]));
    let open = json!([{"ports": [{"port": 8797, "protocol": "TCP"}]}]);
    assert_eq!(policy["spec"]["ingress"], open);
    assert_eq!(policy["metadata"]["namespace"], operator["metadata"]["namespace"]);
    let container = &template["spec"]["containers"][0];
    assert_eq!(container["ports"], json!([{"name": "metrics", "containerPort": 8797}]));
    assert!(container["resources"]["limits"]["memory"].is_string());
    assert!(!container["args"].to_string().contains("insecure"));
    assert!(template["spec"]["hostNetwork"].is_null());
}

#[test]
fn every_manifest_is_listed() {
    let listed: Vec<String> = listed(&deploy()).iter().map(|path| name(path)).collect();
    for file in yaml_files(&deploy().join("crds")) {
        assert_eq!(listed.contains(&file), !OF_OPENSHIFT.contains(&file.as_str()), "{file}");
    }
    for file in yaml_files(&deploy().join("system")) {
        assert!(listed.contains(&file), "{file} is not in deploy/system/kustomization.yaml");
    }
}

/// Compares a generated file with its sources, or writes it with `MACHINIST_UPDATE`.
fn check(path: &Path, expected: &str) {
    if std::env::var_os("MACHINIST_UPDATE").is_some() {
        fs::write(path, expected).unwrap();
    }
    assert!(read(path) == expected, "{} is stale: run `make manifests`", path.display());
}

fn joined(files: &[PathBuf]) -> String {
    files.iter().map(|file| format!("---\n{}", read(file))).collect()
}

#[test]
fn the_flat_manifest_is_up_to_date() {
    let head = "# Made from deploy/kustomization.yaml by `make manifests`; not to be edited.\n";
    check(&deploy().join("install.yaml"), &format!("{head}{}", joined(&listed(&deploy()))));
}

fn indented(text: &str, spaces: usize) -> String {
    let indent = " ".repeat(spaces);
    let line = |line: &str| if line.is_empty() { "\n".into() } else { format!("{indent}{line}\n") };
    text.lines().map(line).collect()
}

/// What `deploy/monitoring` and the chart contain for the Prometheus Operator and Grafana, by file.
fn monitoring() -> [(&'static str, String); 3] {
    let source = |name: &str| read(&deploy().join("../monitoring").join(name));
    let head = "# Made from monitoring/ by `make manifests`; not to be edited.\n";
    let metadata = |name: &str, more: &str| {
        format!(
            "metadata:\n  name: {name}\n  namespace: openshift-machine-config-operator\n  labels: {{app.kubernetes.io/part-of: machinist{more}}}\n"
        )
    };
    let rule = format!(
        "{head}apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\n{}spec:\n{}",
        metadata("machinist", ""),
        indented(&source("alerts.yaml"), 2)
    );
    let dashboard = format!(
        "{head}# The sidecar of Grafana loads dashboards with this label.\napiVersion: v1\nkind: ConfigMap\n{}data:\n  machinist.json: |\n{}",
        metadata("machinist-dashboard", ", grafana_dashboard: \"1\""),
        indented(&source("dashboard.json"), 4)
    );
    [
        ("service-monitor.yaml", format!("{head}{}", source("service-monitor.yaml"))),
        ("prometheus-rule.yaml", rule),
        ("dashboard.yaml", dashboard),
    ]
}

#[test]
fn the_monitoring_manifests_are_up_to_date() {
    let directory = deploy().join("monitoring");
    let mut all = String::new();
    for (name, text) in monitoring() {
        check(&directory.join(name), &text);
        let object: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(object["metadata"]["namespace"], "openshift-machine-config-operator", "{name}");
        all.push_str("---\n");
        all.push_str(&text);
    }
    // Alerts and dashboards have templates of their own, which Helm must not see.
    check(&deploy().join("helm/machinist/files/monitoring.yaml"), &all);
    let names: Vec<String> = listed(&directory).iter().map(|path| name(path)).collect();
    assert_eq!(names, monitoring().map(|(name, _)| name));
}

#[test]
fn argo_cd_gets_a_health_check_for_every_kind_with_progress() {
    let patch: Value =
        serde_saphyr::from_str(&read(&deploy().join("argocd/argocd-cm-patch.yaml"))).unwrap();
    let checks: Vec<&String> = patch["data"].as_object().unwrap().keys().collect();
    for kind in ["MachineConfigPool", "KubeletConfig", "ContainerRuntimeConfig"] {
        let key =
            format!("resource.customizations.health.machineconfiguration.openshift.io_{kind}");
        assert!(checks.contains(&&key), "{checks:?}");
        let script = patch["data"][&key].as_str().unwrap();
        assert!(script.contains("return"), "{kind}");
    }
}

#[test]
fn the_chart_is_up_to_date() {
    let chart = deploy().join("helm/machinist");
    let system = joined(&listed(&deploy().join("system")));
    assert!(!system.contains("{{"), "a template in a manifest would be one in the chart, too");
    let image = format!("localhost/machinist:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        system.matches(&image).count(),
        1,
        "the image of the operator is that of this version"
    );
    let system = system.replace(&image, "{{ .Values.image }}");
    let head = "{{- /* Made from deploy/system by `make manifests`; not to be edited. */}}\n";
    check(&chart.join("templates/system.yaml"), &format!("{head}{system}"));
    let values: Value = serde_saphyr::from_str(&read(&chart.join("values.yaml"))).unwrap();
    assert_eq!(values["image"], image);
    let about: Value = serde_saphyr::from_str(&read(&chart.join("Chart.yaml"))).unwrap();
    assert_eq!(about["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(about["appVersion"], env!("CARGO_PKG_VERSION"));
    let kinds = yaml_files(&deploy().join("crds"));
    let kinds: Vec<_> =
        kinds.into_iter().filter(|it| !OF_OPENSHIFT.contains(&it.as_str())).collect();
    assert_eq!(yaml_files(&chart.join("crds")), kinds, "links to deploy/crds");
    for kind in kinds {
        assert_eq!(read(&chart.join("crds").join(&kind)), read(&deploy().join("crds").join(&kind)));
    }
}
