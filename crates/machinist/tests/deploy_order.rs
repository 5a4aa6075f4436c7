//! GitOps: the order in which Argo CD applies the manifests, and when Flux takes our kinds for ready.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::{Context, Env};
use serde_json::{Value, json};

use crate::deploy::{deploy, listed, read};

const SYNC_WAVE: &str = "argocd.argoproj.io/sync-wave";

/// An object, and its wave.
struct OrderedObject {
    object: Value,
    wave: i32,
}

impl OrderedObject {
    fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Kind, namespace and name.
    fn id(&self) -> String {
        let parts = [self.text("/kind"), self.text("/metadata/namespace")];
        format!("{} {} {}", parts[0], parts[1], self.text("/metadata/name"))
    }

    /// What has to exist before it, by [`OrderedObject::id`].
    fn needs(&self) -> Vec<String> {
        let namespace = self.text("/metadata/namespace");
        let mut needs = Vec::new();
        if !["", "default", "kube-public"].contains(&namespace) {
            needs.push(format!("Namespace  {namespace}"));
        }
        if self.text("/kind") == "Deployment" {
            let account = self.text("/spec/template/spec/serviceAccountName");
            needs.push(format!("ServiceAccount {namespace} {account}"));
        }
        needs
    }
}

/// All objects of the installation, as `kubectl apply -k deploy/` applies them.
fn objects() -> Vec<OrderedObject> {
    let texts = listed(&deploy());
    let documents = texts
        .iter()
        .flat_map(|path| read(path).split("\n---\n").map(str::to_owned).collect::<Vec<_>>());
    let ordered = |text: String| {
        let object: Value = serde_saphyr::from_str(&text).unwrap();
        let name = object["metadata"]["name"].clone();
        let wave = object["metadata"]["annotations"][SYNC_WAVE].as_str();
        let wave = wave.unwrap_or_else(|| panic!("{} {name} has no wave", object["kind"]));
        OrderedObject { wave: wave.parse().unwrap(), object }
    };
    documents.map(ordered).collect()
}

/// A wave starts when everything in the wave before it is healthy.
#[test]
fn argo_cd_applies_what_others_need_first() {
    let all = objects();
    let waves: BTreeMap<String, i32> = all.iter().map(|it| (it.id(), it.wave)).collect();
    let range_of = |kinds: &[&str]| {
        let of_kinds = all.iter().filter(|it| kinds.contains(&it.text("/kind")));
        let waves: Vec<i32> = of_kinds.map(|it| it.wave).collect();
        (*waves.iter().min().unwrap(), *waves.iter().max().unwrap())
    };
    for object in &all {
        for needed in object.needs() {
            let first = waves.get(&needed).unwrap_or_else(|| panic!("there is no {needed}"));
            assert!(*first < object.wave, "{needed} comes before {}", object.id());
        }
    }
    // Kinds before what reads them, rights before who has them, rules before whom they bind.
    let workloads = range_of(&["Deployment"]);
    let rights = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"];
    let rules = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "NetworkPolicy"];
    for earlier in [&["CustomResourceDefinition"][..], &rights, &rules] {
        assert!(range_of(earlier).1 < workloads.0, "{earlier:?} before the operator");
    }
    assert!(range_of(&["CustomResourceDefinition"]).1 < range_of(&rules).0);
    // What users write is in wave 0 unless they say otherwise: after everything but the operator.
    assert!(all.iter().all(|it| it.wave <= 0) && workloads == (0, 0));
}

/// The chart has the same text, and the CRDs of the chart are the same files (test `deploy`).
#[test]
fn the_chart_and_the_flat_manifest_have_the_waves() {
    let count = |text: &str| text.matches(SYNC_WAVE).count();
    let all = objects().len();
    let crds = objects().iter().filter(|it| it.text("/kind") == "CustomResourceDefinition").count();
    assert_eq!(count(&read(&deploy().join("install.yaml"))), all);
    assert_eq!(count(&read(&deploy().join("helm/machinist/templates/system.yaml"))), all - crds);
}

/// What Flux makes of an object: its rules are those of RFC 0009 of Flux.
fn flux_status(checks: &Value, object: &Value) -> &'static str {
    if object["status"]["observedGeneration"] != object["metadata"]["generation"] {
        return "InProgress";
    }
    let env = Arc::new(Env::stdlib());
    let holds = |name: &str| {
        let Some(expression) = checks[name].as_str() else { return false };
        let compiled = env.compile(expression).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let mut context = Context::with_env(Arc::clone(&env));
        context.add_variable("status", object["status"].clone()).unwrap();
        compiled.execute(&context).unwrap() == true.into()
    };
    match () {
        () if holds("inProgress") => "InProgress",
        () if holds("failed") => "Failed",
        () if holds("current") => "Current",
        () => "InProgress",
    }
}

#[test]
fn flux_waits_for_rollouts_and_sees_failures() {
    let text = read(&deploy().join("flux/machinist.yaml"));
    let last = text.rsplit("\n---\n").next().unwrap();
    let kustomization: Value = serde_saphyr::from_str(last).unwrap();
    assert_eq!(kustomization["spec"]["dependsOn"], json!([{"name": "machinist"}]));
    let checks = kustomization["spec"]["healthCheckExprs"].as_array().unwrap();
    let (updated, updating) = (("Updated", "True"), ("Updating", "True"));
    let (success, failure) = (("Success", "True"), ("Failure", "True"));
    for (kind, conditions, expected) in [
        ("MachineConfigPool", vec![], "InProgress"),
        ("MachineConfigPool", vec![("Updated", "False"), updating], "InProgress"),
        (
            "MachineConfigPool",
            vec![updated, ("Updating", "False"), ("Degraded", "False")],
            "Current",
        ),
        ("MachineConfigPool", vec![updating, ("NodeDegraded", "True")], "Failed"),
        ("MachineConfigPool", vec![updated, ("RenderDegraded", "True")], "Failed"),
        ("MachineConfigPool", vec![("Updated", "False"), ("RolloutBlocked", "True")], "InProgress"),
        ("KubeletConfig", vec![], "InProgress"),
        ("KubeletConfig", vec![failure, success], "Current"),
        ("KubeletConfig", vec![success, failure], "Failed"),
        ("ContainerRuntimeConfig", vec![("Warning", "True"), success], "Current"),
        ("ContainerRuntimeConfig", vec![failure], "Failed"),
    ] {
        let check = checks.iter().find(|check| check["kind"] == kind).unwrap();
        assert_eq!(check["apiVersion"], "machineconfiguration.openshift.io/v1");
        let list: Vec<Value> = conditions
            .iter()
            .map(|(type_, status)| json!({"type": type_, "status": status}))
            .collect();
        let mut object = json!({
            "metadata": {"generation": 2},
            "status": {"observedGeneration": 2, "conditions": list},
        });
        // An empty list counts as none: the last of none cannot be read.
        if conditions.is_empty() {
            object["status"].as_object_mut().unwrap().remove("conditions");
        }
        assert_eq!(flux_status(check, &object), expected, "{kind} {conditions:?}");
        object["status"]["observedGeneration"] = 1.into();
        assert_eq!(flux_status(check, &object), "InProgress", "{kind} {conditions:?}");
    }
}
