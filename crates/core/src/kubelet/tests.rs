//! What happens around a KubeletConfig: names, finalizers, what goes, warnings.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::api::config::NodeConfig;
use crate::api::{ControllerConfig, KubeletConfig, MachineConfig, MachineConfigPool};
use crate::template::{TemplateInputs, TemplateTree, builtin_templates};

/// A cluster with the templates that come with us.
struct TestCluster {
    templates: TemplateTree,
    controller_config: ControllerConfig,
    gates: BTreeMap<String, bool>,
    pools: Vec<MachineConfigPool>,
    configs: Vec<KubeletConfig>,
    machine_configs: Vec<MachineConfig>,
    node: Option<NodeConfig>,
    has_feature_gate: bool,
}

impl TestCluster {
    fn new(pools: &[&str]) -> Self {
        let pool = |name: &&str| {
            let labels = json!({"all": "yes", *name: ""});
            serde_json::from_value(
                json!({"metadata": {"name": name, "labels": labels}, "spec": {}}),
            )
            .unwrap()
        };
        let facts = json!({"metadata": {"name": "machine-config-controller"}, "spec":
            {"infra": {"status": {"platformStatus": {"type": "None"}}}}});
        Self {
            templates: builtin_templates(crate::profile::TemplateProfile::Kubernetes),
            controller_config: serde_json::from_value(facts).unwrap(),
            gates: BTreeMap::new(),
            pools: pools.iter().map(pool).collect(),
            configs: Vec::new(),
            machine_configs: Vec::new(),
            node: None,
            has_feature_gate: false,
        }
    }

    fn add(&mut self, name: &str, day: usize, label: &str, settings: &Value) {
        let selector = json!({"matchExpressions": [{"key": label, "operator": "Exists"}]});
        let config = json!({
            "metadata": {"name": name, "uid": format!("uid-{name}"), "generation": 1,
                         "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z")},
            "spec": {"machineConfigPoolSelector": selector, "kubeletConfig": settings}});
        self.configs.push(serde_json::from_value(config).unwrap());
    }

    fn with_snapshot<T>(&self, question: impl FnOnce(&KubeletSnapshot<'_>) -> T) -> T {
        let inputs = TemplateInputs {
            controller_config: &self.controller_config,
            pull_secret: None,
            api_server: None,
        };
        question(&KubeletSnapshot {
            configs: &self.configs.iter().collect::<Vec<_>>(),
            pools: &self.pools.iter().collect::<Vec<_>>(),
            machine_configs: &self.machine_configs.iter().collect::<Vec<_>>(),
            sources: KubeletSources {
                templates: &self.templates,
                inputs,
                gates: &self.gates,
                node: self.node.as_ref(),
            },
            has_feature_gate: self.has_feature_gate,
            version: "v1",
        })
    }

    /// Does what the plans say, and gives them back.
    fn reconcile_until_stable(
        &mut self,
    ) -> Vec<Result<KubeletConfigPlan, crate::generated_config::GenerateError>> {
        let plans = self.with_snapshot(reconcile);
        for (config, plan) in self.configs.iter_mut().zip(&plans) {
            let Ok(plan) = plan else { continue };
            self.machine_configs.retain(|known| {
                let name = known.metadata.name.as_ref().unwrap();
                let is_made = |made: &crate::generated_config::GeneratedConfig| {
                    made.machine_config.metadata.name.as_ref() == Some(name)
                };
                !plan.remove.contains(name) && !plan.generated.iter().any(is_made)
            });
            self.machine_configs
                .extend(plan.generated.iter().map(|made| made.machine_config.clone()));
            config.metadata.finalizers = Some(plan.finalizers.clone());
            let annotations = config.metadata.annotations.get_or_insert_default();
            annotations.insert(
                crate::api::names::annotation::MC_NAME_SUFFIX.to_owned(),
                plan.suffix.clone(),
            );
        }
        plans
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.machine_configs.iter().filter_map(|config| config.metadata.name.clone()).collect();
        names.sort();
        names
    }
}

#[test]
fn each_config_keeps_its_number_and_later_ones_win() {
    let mut cluster = TestCluster::new(&["worker"]);
    cluster.add("a", 1, "worker", &json!({"maxPods": 1}));
    cluster.add("b", 2, "worker", &json!({"maxPods": 2}));
    cluster.add("c", 3, "worker", &json!({"maxPods": 3}));
    cluster.reconcile_until_stable();
    let all = ["", "-1", "-2"].map(|end| format!("99-worker-generated-kubelet{end}"));
    assert_eq!(cluster.names(), all);
    let before = cluster.machine_configs.clone();
    cluster.reconcile_until_stable();
    assert_eq!(cluster.machine_configs, before, "nothing changes where nothing changed");
    cluster.configs.remove(1);
    cluster.add("d", 4, "worker", &json!({"maxPods": 4}));
    let plans = cluster.reconcile_until_stable();
    assert_eq!(plans[2].as_ref().unwrap().suffix, "3", "numbers are not used again");
}

#[test]
fn the_eleventh_is_refused_with_a_remedy() {
    let mut cluster = TestCluster::new(&["worker"]);
    for number in 0..11 {
        cluster.add(
            &format!("k{number:02}"),
            number + 1,
            "worker",
            &json!({"maxPods": number + 1}),
        );
    }
    let plans = cluster.reconcile_until_stable();
    assert_eq!(plans.iter().filter(|plan| plan.is_ok()).count(), 10);
    let error = plans[10].as_ref().unwrap_err().to_string();
    assert!(error.starts_with("KubeletConfig k10: "), "{error}");
    assert!(
        error.contains("max number of supported kubelet config (10) has been reached"),
        "{error}"
    );
}

#[test]
fn deletion_removes_generated_configs_and_keeps_foreign_finalizers() {
    let mut cluster = TestCluster::new(&["master", "worker", "infra"]);
    cluster.add("a", 1, "all", &json!({"maxPods": 1}));
    cluster.configs[0].metadata.finalizers = Some(vec!["example.com/mine".to_owned()]);
    cluster.reconcile_until_stable();
    assert_eq!(cluster.names().len(), 3);
    let finalizers = cluster.configs[0].metadata.finalizers.clone().unwrap();
    assert_eq!(finalizers[0], "example.com/mine");
    assert_eq!(finalizers.len(), 4);
    let removal = cluster.with_snapshot(|snapshot| removal(snapshot, snapshot.configs[0]));
    assert_eq!(removal.remove.len(), 3);
    assert_eq!(removal.finalizers, ["example.com/mine"]);
}

#[test]
fn configs_of_deselected_pools_are_removed() {
    let mut cluster = TestCluster::new(&["worker", "infra"]);
    cluster.add("a", 1, "all", &json!({"maxPods": 1}));
    cluster.reconcile_until_stable();
    let only_worker = json!({"matchExpressions": [{"key": "worker", "operator": "Exists"}]});
    cluster.configs[0].spec.machine_config_pool_selector =
        serde_json::from_value(only_worker).unwrap();
    let plans = cluster.reconcile_until_stable();
    assert_eq!(plans[0].as_ref().unwrap().remove, ["99-infra-generated-kubelet"]);
    assert_eq!(cluster.names(), ["99-worker-generated-kubelet"]);
}

#[test]
fn configs_without_pool_or_owner_are_orphaned() {
    let mut cluster = TestCluster::new(&["worker", "infra"]);
    cluster.node = Some(NodeConfig::default());
    cluster.has_feature_gate = true;
    cluster.add("a", 1, "worker", &json!({"maxPods": 1}));
    cluster.reconcile_until_stable();
    let made = cluster.with_snapshot(|snapshot| {
        let of_node = |pool| node_config(&snapshot.sources, pool, &[]).unwrap().machine_config;
        let gates = features(&snapshot.sources, "worker").unwrap().machine_config;
        [of_node("worker"), of_node("infra"), gates]
    });
    let version = crate::api::names::annotation::GENERATED_BY_CONTROLLER_VERSION;
    for mut config in made {
        config.metadata.annotations = Some([(version.to_owned(), "v1".to_owned())].into());
        cluster.machine_configs.push(config);
    }
    assert!(cluster.with_snapshot(orphaned_configs).is_empty());
    cluster.pools.pop();
    cluster.configs.clear();
    let mut left = cluster.with_snapshot(orphaned_configs);
    left.sort();
    assert_eq!(left, ["97-infra-generated-kubelet", "99-worker-generated-kubelet"]);
    // What the cluster's own settings made goes with them.
    (cluster.node, cluster.has_feature_gate) = (None, false);
    let left = cluster.with_snapshot(orphaned_configs);
    assert!(left.contains(&"97-worker-generated-kubelet".to_owned()), "{left:?}");
    assert!(left.contains(&"98-worker-generated-kubelet".to_owned()), "{left:?}");
}

#[test]
fn a_legacy_finalizer_is_replaced_and_does_not_block_deletion() {
    let old = "99-worker-0a1b2c3d-0000-4000-8000-0123456789ab-kubelet".to_owned();
    let mut cluster = TestCluster::new(&["worker"]);
    cluster.add("a", 1, "worker", &json!({"maxPods": 1}));
    cluster.configs[0].metadata.finalizers = Some(vec![old.clone()]);
    let mut config = MachineConfig::default();
    config.metadata.name = Some(old.clone());
    cluster.machine_configs.push(config);
    let removal = cluster.with_snapshot(|snapshot| removal(snapshot, snapshot.configs[0]));
    assert_eq!((removal.remove, removal.finalizers), (vec![old], vec![]));
    let plan = cluster.reconcile_until_stable().remove(0).unwrap();
    assert_eq!(plan.finalizers, ["99-worker-generated-kubelet"]);
    assert_eq!(plan.remove, [""; 0], "it goes when its successor is there");
}

#[test]
fn a_config_applies_to_all_its_pools_or_to_none() {
    let mut cluster = TestCluster::new(&["master", "worker"]);
    cluster.add("a", 1, "all", &json!({"staticPodPath": ""}));
    cluster.add("b", 2, "all", &json!({"maxPods": "many"}));
    let plans = cluster.reconcile_until_stable();
    assert!(cluster.names().is_empty());
    let errors: Vec<_> = plans.into_iter().map(Result::unwrap_err).collect();
    assert_eq!(errors[0].field, "spec.kubeletConfig.staticPodPath");
    assert_eq!(errors[1].field, "spec.kubeletConfig.maxPods");
}

#[test]
fn a_setting_without_effect_is_a_warning() {
    let mut cluster = TestCluster::new(&["worker"]);
    cluster.add(
        "a",
        1,
        "worker",
        &json!({"rotateCertificates": false, "protectKernelDefaults": false}),
    );
    let plans = cluster.reconcile_until_stable();
    let warnings = &plans[0].as_ref().unwrap().generated[0].warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with(
        "KubeletConfig a: spec.kubeletConfig.rotateCertificates: false has no effect"
    ));
}

#[test]
fn a_pool_without_kubelet_template_is_an_error() {
    let mut cluster = TestCluster::new(&["worker"]);
    cluster.templates = builtin_templates(crate::profile::TemplateProfile::Machine);
    cluster.add("a", 1, "worker", &json!({"maxPods": 1}));
    let error = cluster.reconcile_until_stable().remove(0).unwrap_err().to_string();
    assert!(
        error.contains("no template of the role worker makes /etc/kubernetes/kubelet.conf"),
        "{error}"
    );
}

/// What a drop-in does not name stays as the installer wrote it, so it has nothing but what somebody wrote.
#[test]
fn a_drop_in_has_only_what_was_written() {
    use crate::profile::TemplateProfile::{K3s, Kubeadm, Rke2};
    for (profile, path) in [Kubeadm, K3s, Rke2].into_iter().zip(settings_file::DROP_INS) {
        let mut cluster = TestCluster::new(&["worker"]);
        cluster.templates = builtin_templates(profile);
        let settings = json!({
            "maxPods": 42, "evictionHard": {"memory.available": "200Mi"},
            "systemReserved": {"memory": "1Gi"}, "serializeImagePulls": false,
        });
        cluster.add("a", 1, "worker", &settings);
        cluster.configs[0].spec.log_level = Some(4);
        let plan = cluster.reconcile_until_stable().remove(0).unwrap();
        assert!(plan.generated[0].warnings.is_empty(), "{:?}", plan.generated[0].warnings);
        let machine_config = &plan.generated[0].machine_config;
        let written = crate::template::decoded_file(machine_config, path).unwrap();
        let expected = "apiVersion: kubelet.config.k8s.io/v1beta1\nevictionHard:\n  \
                        memory.available: 200Mi\nkind: KubeletConfiguration\nlogging:\n  \
                        verbosity: 4\nmaxPods: 42\nserializeImagePulls: false\nsystemReserved:\n  \
                        memory: 1Gi\n";
        assert_eq!(String::from_utf8(written).unwrap(), expected);
        let files = machine_config.spec.config.as_ref().unwrap()["storage"]["files"].clone();
        assert_eq!(files.as_array().unwrap().len(), 1, "{files}");
        cluster.configs[0].spec.auto_sizing_reserved = Some(true);
        let error = cluster.with_snapshot(reconcile).remove(0).unwrap_err();
        assert_eq!(error.field, "spec.autoSizingReserved");
    }
}

#[test]
fn gates_and_the_latency_profile_go_into_the_drop_in() {
    let mut cluster = TestCluster::new(&["worker"]);
    cluster.templates = builtin_templates(crate::profile::TemplateProfile::Kubeadm);
    cluster.gates = [("Some".to_owned(), true)].into();
    let mut node = NodeConfig::new("cluster", crate::api::config::NodeConfigSpec::default());
    node.spec.worker_latency_profile = Some("MediumUpdateAverageReaction".to_owned());
    cluster.node = Some(node);
    cluster.with_snapshot(|snapshot| {
        let made = node_config(&snapshot.sources, "worker", &[]).unwrap().machine_config;
        let written = crate::template::decoded_file(&made, settings_file::DROP_INS[0]).unwrap();
        assert_eq!(
            String::from_utf8(written).unwrap(),
            "apiVersion: kubelet.config.k8s.io/v1beta1\nfeatureGates:\n  Some: true\nkind: \
             KubeletConfiguration\nnodeStatusUpdateFrequency: 20s\n"
        );
        assert_eq!(refused_latency_change(&snapshot.sources, Some(&made)), None);
    });
}

/// What another tool generated has no profile, and stays.
#[test]
fn what_a_profile_generated_goes_with_it() {
    let mut cluster = TestCluster::new(&["worker"]);
    cluster.add("a", 1, "worker", &json!({"maxPods": 1}));
    cluster.reconcile_until_stable();
    cluster.has_feature_gate = true;
    let made = cluster.with_snapshot(|it| features(&it.sources, "worker").unwrap().machine_config);
    let version = crate::api::names::annotation::GENERATED_BY_CONTROLLER_VERSION;
    for (name, is_ours) in
        [("98-worker-generated-kubelet", true), ("97-worker-generated-kubelet", false)]
    {
        let mut one = made.clone();
        one.metadata.name = Some(name.to_owned());
        let annotations = one.metadata.annotations.get_or_insert_default();
        annotations.insert(version.to_owned(), "v1".to_owned());
        if !is_ours {
            annotations.remove(crate::api::names::annotation::machinist::PROFILE);
        }
        cluster.machine_configs.push(one);
    }
    cluster.node = Some(NodeConfig::new("cluster", crate::api::config::NodeConfigSpec::default()));
    assert!(cluster.with_snapshot(orphaned_configs).is_empty());
    for profile in [crate::profile::TemplateProfile::None, crate::profile::TemplateProfile::Machine]
    {
        cluster.templates = builtin_templates(profile);
        let gone = cluster.with_snapshot(orphaned_configs);
        assert_eq!(gone, ["99-worker-generated-kubelet", "98-worker-generated-kubelet"]);
    }
    // Another profile has a base, and replaces them.
    cluster.templates = builtin_templates(crate::profile::TemplateProfile::Kubeadm);
    assert!(cluster.with_snapshot(orphaned_configs).is_empty());
}

#[test]
fn an_unknown_field_is_a_warning_and_an_invalid_quantity_an_error() {
    let mut cluster = TestCluster::new(&["worker"]);
    cluster.add("a", 1, "worker", &json!({"maxPodz": 1}));
    cluster.add("b", 2, "worker", &json!({"systemReserved": {"memory": "2Gx"}}));
    let plans = cluster.reconcile_until_stable();
    let warnings = &plans[0].as_ref().unwrap().generated[0].warnings;
    assert!(warnings[0].contains("spec.kubeletConfig.maxPodz: no kubelet knows"), "{warnings:?}");
    let error = plans[1].as_ref().unwrap_err();
    assert_eq!(error.field, "spec.kubeletConfig.systemReserved.memory");
    assert!(error.message.contains("is no quantity: 2Gx"), "{error}");
}
