//! The Helm chart, installed with Helm itself.

use crate::install::support::{NAMESPACE, deploy, get};
use machinist_e2e::{Cluster, cache, command};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;

fn helm(cluster: &Cluster, args: &[&str]) -> String {
    let binary = cache::artifact("kubernetes").unwrap().join("bin/helm");
    let mut helm = Command::new(binary);
    helm.env("KUBECONFIG", cluster.kubeconfig()).env("HOME", cluster.lab().dir()).args(args);
    command::run(&mut helm).unwrap()
}

/// The objects of a render, by kind, name and namespace.
fn objects(cluster: &Cluster, render: &[&str]) -> BTreeMap<[String; 3], Value> {
    let apply = ["create", "--dry-run=client", "-o", "json"];
    let text = cluster.kubectl(&[&apply[..], render].concat()).unwrap();
    // One list, or one object after another.
    let all = serde_json::Deserializer::from_str(&text).into_iter::<Value>().map(Result::unwrap);
    let items = all.flat_map(|it| it["items"].as_array().cloned().unwrap_or_else(|| vec![it]));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let key = |it: &Value| {
        let metadata = &it["metadata"];
        [text(&it["kind"]), text(&metadata["name"]), text(&metadata["namespace"])]
    };
    items.map(|it| (key(&it), it)).collect()
}

/// Kustomize and Helm have the same objects, with the same budget, priority and resources.
fn both_renders_are_available(cluster: &Cluster, chart: &str) {
    let file = cluster.lab().dir().join("chart.yaml");
    std::fs::write(
        &file,
        helm(cluster, &["template", "machinist", chart, "--kube-version", "1.34.1"]),
    )
    .unwrap();
    let chart = objects(cluster, &["-f", &file.display().to_string()]);
    let kustomize = objects(cluster, &["-k", &deploy("system").display().to_string()]);
    assert_eq!(kustomize.keys().collect::<Vec<_>>(), chart.keys().collect::<Vec<_>>());
    for (name, object) in &kustomize {
        assert_eq!(*object, chart[name], "{name:?}");
    }
    let pod = "/spec/template/spec";
    for (kind, name, pointer, expected) in [
        (
            "Deployment",
            "machine-config-operator",
            "/priorityClassName",
            json!("system-cluster-critical"),
        ),
        (
            "Deployment",
            "machine-config-operator",
            "/containers/0/resources",
            json!({"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "512Mi"}}),
        ),
        ("PodDisruptionBudget", "machine-config-controller", "/spec/maxUnavailable", json!(1)),
        (
            "PodDisruptionBudget",
            "machine-config-controller",
            "/spec/selector/matchLabels",
            json!({"k8s-app": "machine-config-controller"}),
        ),
    ] {
        for render in [&kustomize, &chart] {
            let key = [kind, name, NAMESPACE].map(str::to_owned);
            let object = &render[&key];
            let pointer = match kind {
                "Deployment" => format!("{pod}{pointer}"),
                _ => pointer.to_owned(),
            };
            assert_eq!(object.pointer(&pointer), Some(&expected), "{kind} {name} {pointer}");
        }
    }
}

#[test]
fn the_chart_installs_and_uninstalls_the_manifests() {
    let cluster = Cluster::start().unwrap();
    let chart = deploy("helm/machinist").display().to_string();
    let set = "settings.apiServerURL=https://api.example.com:6443,settings.controllerReplicas=3";
    helm(&cluster, &["lint", "--strict", &chart]);
    both_renders_are_available(&cluster, &chart);
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
