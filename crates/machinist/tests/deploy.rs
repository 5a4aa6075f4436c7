//! Keeps `deploy/install.yaml` and the Helm chart equal to the manifests in `deploy/`.
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The kinds that OpenShift installs itself.
const OF_OPENSHIFT: [&str; 2] =
    ["clusteroperators.config.openshift.io.yaml", "clusterversions.config.openshift.io.yaml"];

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files that a kustomization lists, in order, including those of its directories.
fn listed(directory: &Path) -> Vec<PathBuf> {
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
