//! The Helm chart, installed with Helm itself.

use crate::install::support::{NAMESPACE, deploy, get};
use machinist_e2e::{Cluster, cache, command};
use std::process::Command;

fn helm(cluster: &Cluster, args: &[&str]) -> String {
    let binary = cache::artifact("kubernetes").unwrap().join("bin/helm");
    let mut helm = Command::new(binary);
    helm.env("KUBECONFIG", cluster.kubeconfig()).env("HOME", cluster.lab().dir()).args(args);
    command::run(&mut helm).unwrap()
}

#[test]
fn the_chart_installs_and_uninstalls_the_manifests() {
    let cluster = Cluster::start().unwrap();
    let chart = deploy("helm/machinist").display().to_string();
    let set = "settings.apiServerURL=https://api.example.com:6443,settings.controllerReplicas=3";
    helm(&cluster, &["lint", "--strict", &chart]);
    helm(
        &cluster,
        &["install", "machinist", &chart, "--set", set, "--set", "image=example/machinist:9"],
    );
    let settings = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/machinist-settings");
    let settings = get(&cluster, &settings).unwrap();
    assert_eq!(settings["data"]["apiServerURL"], "https://api.example.com:6443");
    assert_eq!(settings["data"]["controllerReplicas"], "3");
    let operator =
        format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/machine-config-operator");
    let operator = get(&cluster, &operator).unwrap();
    let image = &operator["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, "example/machinist:9");
    // Everything in the directory already exists; only the image differs.
    let dir = deploy("system").display().to_string();
    let differences = cluster.kubectl_output(&["diff", "-k", &dir]).unwrap().stdout;
    let changed = |line: &&str| {
        let is_change = line.starts_with('+') || line.starts_with('-');
        is_change && !line.starts_with("+++") && !line.starts_with("---")
    };
    let changed: Vec<&str> = differences.lines().filter(changed).collect();
    assert!(
        changed.iter().all(|line| line.contains("image:") || line.contains("generation:")),
        "{changed:#?}"
    );
    assert!(changed.iter().any(|line| line.contains("example/machinist:9")), "{differences}");
    helm(&cluster, &["uninstall", "machinist"]);
    let left = cluster.kubectl(&[
        "get",
        "clusterroles,clusterrolebindings",
        "-l",
        "app.kubernetes.io/part-of=machinist",
        "-o",
        "name",
    ]);
    assert_eq!(left.unwrap(), "");
}
