//! How the components stay available: budgets, spread, priorities and resources, of what is in the manifests and of what
//! the operator deploys. `tests/e2e` compares both renders of the manifests, kustomize's and Helm's.

use machinist_core::operator::component_order::OperatorComponent;
use machinist_core::operator::components::{ClusterEndpoints, ComponentInputs};
use machinist_core::operator::settings::OperatorSettings;
use serde_json::{Value, json};

use crate::deploy::{deploy, listed, read};

/// What the operator deploys in an ordinary cluster.
fn component(part: OperatorComponent) -> Value {
    let inputs = ComponentInputs {
        namespace: "openshift-machine-config-operator".to_owned(),
        image: "image:1".to_owned(),
        release: "1".to_owned(),
        log_filter: "info".to_owned(),
        settings: OperatorSettings::default(),
        is_removal: false,
        endpoint: Some(ClusterEndpoints {
            api_server: "https://a:6443".to_owned(),
            server: "https://a:22623".to_owned(),
        }),
    };
    inputs.manifest(part)
}

/// An object of `deploy/system`.
fn manifest(kind: &str, name: &str) -> Value {
    let texts = listed(&deploy().join("system"));
    let all = texts.iter().flat_map(|path| {
        let documents = read(path).split("\n---\n").map(str::to_owned).collect::<Vec<_>>();
        documents.into_iter().map(|text| serde_saphyr::from_str::<Value>(&text).unwrap())
    });
    let is_it = |object: &Value| object["kind"] == kind && object["metadata"]["name"] == name;
    all.into_iter().find(is_it).unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

/// docs/performance.md says where the requests come from; the nightly step `resources` measures them again.
#[test]
fn every_component_has_a_priority_and_requests() {
    let operator = manifest("Deployment", "machine-config-operator");
    for (object, kind, priority, cpu, memory) in [
        (operator, "Deployment", "system-cluster-critical", "10m", "32Mi"),
        (
            component(OperatorComponent::Controller),
            "Deployment",
            "system-cluster-critical",
            "20m",
            "50Mi",
        ),
        (
            component(OperatorComponent::Server),
            "DaemonSet",
            "system-cluster-critical",
            "20m",
            "50Mi",
        ),
        // A node without its daemon is not managed: the kubelet evicts everything else first.
        (component(OperatorComponent::Daemon), "DaemonSet", "system-node-critical", "20m", "20Mi"),
    ] {
        let name = &object["metadata"]["name"];
        let pod = &object["spec"]["template"]["spec"];
        assert_eq!(object["kind"], kind, "{name}");
        assert_eq!(pod["priorityClassName"], priority, "{name}");
        let requests = &pod["containers"][0]["resources"]["requests"];
        assert_eq!(*requests, json!({"cpu": cpu, "memory": memory}), "{name}");
        // A limit of the processor would slow down what an idle node could do at once.
        assert!(pod["containers"][0]["resources"]["limits"]["cpu"].is_null(), "{name}");
    }
}

#[test]
fn the_controllers_are_spread_and_one_of_them_always_stays() {
    let controller = component(OperatorComponent::Controller);
    let labels = &controller["spec"]["template"]["metadata"]["labels"];
    let selects = |selector: &Value| {
        let wanted = selector["matchLabels"].as_object().unwrap();
        !wanted.is_empty() && wanted.iter().all(|(key, value)| labels[key] == *value)
    };
    let budget = manifest("PodDisruptionBudget", "machine-config-controller");
    assert_eq!(budget["metadata"]["namespace"], controller["metadata"]["namespace"]);
    // With one controller a budget of minAvailable: 1 would hold every drain of its node.
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    assert!(budget["spec"]["minAvailable"].is_null() && selects(&budget["spec"]["selector"]));
    assert_eq!(controller["spec"]["replicas"], 2);
    let pod = &controller["spec"]["template"]["spec"];
    let spread = pod["topologySpreadConstraints"].as_array().unwrap();
    assert_eq!(spread.len(), 1);
    let found = &spread[0];
    assert_eq!(found["topologyKey"], "topology.kubernetes.io/zone");
    // A cluster with one zone, or one node, still gets its controllers.
    let may_break = (&found["maxSkew"], &found["whenUnsatisfiable"]);
    assert_eq!(may_break, (&json!(1), &json!("ScheduleAnyway")));
    assert!(selects(&found["labelSelector"]), "{found}");
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let apart = &pod["affinity"]["podAntiAffinity"][preferred][0]["podAffinityTerm"];
    assert_eq!(apart["topologyKey"], "kubernetes.io/hostname");
    assert!(selects(&apart["labelSelector"]), "{apart}");
    // Daemons and servers are one on each of their nodes: nothing to spread, and no budget holds a drain for them.
    for part in [OperatorComponent::Server, OperatorComponent::Daemon] {
        let pod = component(part)["spec"]["template"]["spec"].clone();
        assert!(pod["topologySpreadConstraints"].is_null(), "{part:?}");
    }
}
