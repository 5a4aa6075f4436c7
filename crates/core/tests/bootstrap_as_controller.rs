//! The bootstrap and the controller give the same rendered configs, and refuse the same objects.
//!
//! The controller runs its generators again and again, each on what the others stored before, in any
//! order. Here they run in a random order until nothing changes.
use crate::support;

use std::collections::BTreeMap;

use machinist_core::api::config::{
    ClusterImagePolicy, FeatureGate, FeatureGates, Image, ImageDigestMirrorSet, ImagePolicy,
    NodeConfig,
};
use machinist_core::api::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfig, MachineConfigPool,
};
use machinist_core::bootstrap::{bootstrap, choose_pools};
use machinist_core::container_runtime::registries::RegistryInputs;
use machinist_core::generate::{
    ClusterSettings, GenerateSources, cluster_settings, container_runtimes, registries,
};
use machinist_core::generated_config::GeneratedConfig;
use machinist_core::generated_config::reconcile::with_ownership;
use machinist_core::kubelet::{KubeletSnapshot, KubeletSources, gates, reconcile};
use machinist_core::profile::TemplateProfile;
use machinist_core::render::render;
use machinist_core::template::{
    TemplateInputs, TemplateTree, builtin_templates, generate as from_templates,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use support::Rng;

const CASES: usize = 100;
const RELEASE: &str = "quay.io/openshift-release-dev/ocp-release@sha256:efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef";

fn object<K: DeserializeOwned>(kind: &str, name: &str, spec: Value) -> K {
    let label = "pools.operator.machineconfiguration.openshift.io/worker";
    let mut object = json!({"apiVersion": "x/v1", "kind": kind, "spec": spec,
        "metadata": {"name": name, "labels": {label: ""}}});
    if kind == "ImagePolicy" {
        object["metadata"]["namespace"] = json!("ns");
    }
    serde_json::from_value(object).unwrap()
}

/// A cluster. Some have objects that MCO refuses.
struct Cluster {
    facts: ControllerConfig,
    pools: Vec<MachineConfigPool>,
    configs: Vec<MachineConfig>,
    image: Option<Image>,
    mirrors: Vec<ImageDigestMirrorSet>,
    cluster_policies: Vec<ClusterImagePolicy>,
    policies: Vec<ImagePolicy>,
    runtimes: Vec<ContainerRuntimeConfig>,
    kubelets: Vec<KubeletConfig>,
    feature_gate: Option<FeatureGate>,
    node: Option<NodeConfig>,
}

fn one_of(rng: &mut Rng, values: &[Value]) -> Value {
    values[rng.below(values.len())].clone()
}

fn some<T>(rng: &mut Rng, make: impl FnOnce(&mut Rng) -> T) -> Option<T> {
    (rng.below(2) == 0).then(|| make(rng))
}

fn policy(rng: &mut Rng) -> Value {
    let roots = [
        json!({"policyType": "PublicKey", "publicKey": {"keyData": "a2V5"}}),
        json!({"policyType": "PKI", "pki": {
            "caRootsData": "a2V5", "pkiCertificateSubject": {"email": "a@b.c"}}}),
        json!({"policyType": "Unknown"}),
    ];
    // An invalid policy is rare.
    let valid = rng.below(12).min(2) != 2 || rng.below(6) > 0;
    let root = if valid { one_of(rng, &roots[..2]) } else { roots[2].clone() };
    let scopes = [json!("a.io"), json!("quay.io/x"), json!("b.io/c/d")];
    json!({"scopes": [one_of(rng, &scopes)], "policy": {"rootOfTrust": root}})
}

fn cluster(rng: &mut Rng) -> Cluster {
    let selector = json!({"matchLabels": {
        "pools.operator.machineconfiguration.openshift.io/worker": ""}});
    let lists = [
        json!({"blockedRegistries": ["quay.io"]}),
        json!({"blockedRegistries": ["quay.io/openshift-release-dev/ocp-release", "bad.io"]}),
        json!({"allowedRegistries": ["a.io", "quay.io", "b.io"]}),
        json!({"insecureRegistries": [], "containerRuntimeSearchRegistries": ["s.io"]}),
        json!({"allowedRegistries": ["a.io"], "blockedRegistries": ["b.io"]}),
        json!({"insecureRegistries": ["in valid.*"]}),
    ];
    let gates = [
        json!({}),
        json!({"customNoUpgrade": {"enabled": ["Foo"], "disabled": ["SigstoreImageVerification"]}}),
        json!({"customNoUpgrade": {"disabled": ["AdditionalStorageConfig", "OSStreams"]}}),
    ];
    let settings = [
        json!({"overlaySize": "3G", "pidsLimit": 2048}),
        json!({"additionalImageStores": [{"path": "/a"}]}),
        json!({"logLevel": "debug"}),
        json!({"pidsLimit": 1}),
    ];
    let kubelets = [json!({"maxPods": 220}), json!({"evictionHard": {"x": "1"}}), json!({})];
    let profiles =
        [json!({}), json!({"workerLatencyProfile": "Default"}), json!({"cgroupMode": "v1"})];
    let mut declared = Vec::new();
    if rng.below(2) == 0 {
        let infra = json!({"machineConfigSelector": {"matchExpressions": [{"operator": "In",
            "key": "machineconfiguration.openshift.io/role", "values": ["worker", "infra"]}]}});
        declared.push((object("MachineConfigPool", "infra", infra), "infra.yaml".to_owned()));
    }
    let mut mine: MachineConfig =
        object("MachineConfig", "50-mine", json!({"kernelArguments": ["quiet"]}));
    mine.metadata.labels = Some(BTreeMap::from([(
        "machineconfiguration.openshift.io/role".to_owned(),
        "worker".to_owned(),
    )]));
    let infra = json!({"status": {"platformStatus": {"type": "None"}}});
    let facts = json!({"clusterDNSIP": "10.96.0.10", "infra": infra, "releaseImage": RELEASE});
    let mirror = json!({"imageDigestMirrors": [
        {"source": one_of(rng, &[json!("quay.io"), json!("a.io/x")]), "mirrors": ["m.io/y"]}]});
    Cluster {
        facts: object("ControllerConfig", "machine-config-controller", facts),
        pools: choose_pools(declared, None).unwrap(),
        configs: some(rng, |_| mine).into_iter().collect(),
        image: some(rng, |rng| {
            let at = rng.below(40).min(5 + rng.below(lists.len())) % lists.len();
            object("Image", "cluster", json!({"registrySources": lists[at]}))
        }),
        mirrors: some(rng, |_| object("ImageDigestMirrorSet", "m", mirror)).into_iter().collect(),
        cluster_policies: some(rng, |rng| object("ClusterImagePolicy", "c", policy(rng)))
            .into_iter()
            .collect(),
        policies: some(rng, |rng| object("ImagePolicy", "p", policy(rng))).into_iter().collect(),
        runtimes: some(rng, |rng| {
            let spec = json!({"machineConfigPoolSelector": selector,
                "containerRuntimeConfig": one_of(rng, &settings)});
            object("ContainerRuntimeConfig", "r", spec)
        })
        .into_iter()
        .collect(),
        kubelets: some(rng, |rng| {
            let spec = json!({"machineConfigPoolSelector": selector,
                "kubeletConfig": one_of(rng, &kubelets)});
            object("KubeletConfig", "k", spec)
        })
        .into_iter()
        .collect(),
        feature_gate: some(rng, |rng| object("FeatureGate", "cluster", one_of(rng, &gates))),
        node: some(rng, |rng| object("Node", "cluster", one_of(rng, &profiles))),
    }
}

/// The names of the rendered configs, by pool; or the number of problems.
type Rendered = Result<BTreeMap<String, String>, usize>;

impl Cluster {
    fn images(&self) -> RegistryInputs<'_> {
        RegistryInputs {
            image: self.image.as_ref(),
            digest_mirror_sets: self.mirrors.iter().collect(),
            cluster_image_policies: self.cluster_policies.iter().collect(),
            image_policies: self.policies.iter().collect(),
            release_image: Some(RELEASE),
            ..RegistryInputs::default()
        }
    }

    fn kubelet_sources<'a>(
        &'a self,
        templates: &'a TemplateTree,
        gates: &'a BTreeMap<String, bool>,
    ) -> KubeletSources<'a> {
        let inputs =
            TemplateInputs { controller_config: &self.facts, pull_secret: None, api_server: None };
        KubeletSources { templates, inputs, gates, node: self.node.as_ref() }
    }

    fn gates(&self) -> BTreeMap<String, bool> {
        self.feature_gate.as_ref().map(|gate| gates(gate, "")).unwrap_or_default()
    }

    /// What `machinist bootstrap` renders.
    fn bootstrapped(&self, templates: &TemplateTree) -> Rendered {
        let gates = self.gates();
        let sources = GenerateSources {
            pools: self.pools.iter().collect(),
            machine_configs: self.configs.iter().collect(),
            images: self.images(),
            container_runtime_configs: self.runtimes.iter().collect(),
            templates: Some(self.kubelet_sources(templates, &gates)),
            kubelet_configs: self.kubelets.iter().collect(),
            has_feature_gate: self.feature_gate.is_some(),
            features: FeatureGates::of(self.feature_gate.as_ref()),
            ..GenerateSources::default()
        };
        let made = bootstrap(&sources, None, "v1").map_err(|errors| errors.len())?;
        let names = made.pools.iter().zip(made.rendered).map(|(pool, config)| {
            (pool.metadata.name.clone().unwrap(), config.metadata.name.unwrap())
        });
        Ok(names.collect())
    }

    /// What the controller renders.
    fn controlled(&self, templates: &TemplateTree, rng: &mut Rng) -> Rendered {
        let gates = self.gates();
        let sources = self.kubelet_sources(templates, &gates);
        let mut stored: BTreeMap<String, MachineConfig> =
            self.configs.iter().map(|it| (it.metadata.name.clone().unwrap(), it.clone())).collect();
        let (mut problems, mut has_changed) = ([0; 4], true);
        while has_changed {
            has_changed = false;
            let mut order = [0, 1, 2, 3];
            for at in 0..order.len() {
                let other = rng.below(order.len());
                order.swap(at, other);
            }
            for generator in order {
                let (made, failed) = self.generate_once(generator, sources, &stored);
                problems[generator] = failed;
                for config in made {
                    let config = with_ownership(config, "v1", None);
                    let name = config.metadata.name.clone().unwrap();
                    has_changed |= stored.insert(name, config.clone()).as_ref() != Some(&config);
                }
            }
        }
        match problems.iter().sum() {
            0 => {}
            problems => return Err(problems),
        }
        let name = |pool: &MachineConfigPool| {
            let rendered = render(pool, stored.values(), Some(&self.facts)).unwrap();
            (pool.metadata.name.clone().unwrap(), rendered.name)
        };
        Ok(self.pools.iter().map(name).collect())
    }

    /// What one generator makes of what is stored, and how many objects it refuses.
    fn generate_once(
        &self,
        generator: usize,
        sources: KubeletSources<'_>,
        stored: &BTreeMap<String, MachineConfig>,
    ) -> (Vec<MachineConfig>, usize) {
        let features = FeatureGates::of(self.feature_gate.as_ref());
        let pools: Vec<&MachineConfigPool> = self.pools.iter().collect();
        let present: Vec<&MachineConfig> = stored.values().collect();
        let mut results: Vec<Result<Vec<GeneratedConfig>, ()>> = Vec::new();
        match generator {
            0 => {
                results
                    .push(from_templates(sources.templates, &sources.inputs, "v1").map_err(drop));
            }
            1 => {
                let images = self.images().with_features(features);
                let made = registries(&images, &pools, &present);
                results.push(made.map(|made| made.generated).map_err(drop));
            }
            2 => {
                let runtimes: Vec<&ContainerRuntimeConfig> = self.runtimes.iter().collect();
                let plans = container_runtimes(
                    &runtimes,
                    sources.templates.profile(),
                    features,
                    &pools,
                    &present,
                );
                let plans = plans.into_iter();
                results.extend(plans.map(|plan| plan.map(|plan| plan.generated).map_err(drop)));
            }
            _ => {
                let has_feature_gate = self.feature_gate.is_some();
                let settings =
                    ClusterSettings { sources, has_node: self.node.is_some(), has_feature_gate };
                let arguments = |name: &str| {
                    let there = stored.get(name);
                    there.and_then(|it| it.spec.kernel_arguments.clone()).unwrap_or_default()
                };
                let made = cluster_settings(&settings, &pools, arguments).into_iter();
                results.extend(made.map(|made| made.map(|made| vec![made]).map_err(drop)));
                let configs: Vec<&KubeletConfig> = self.kubelets.iter().collect();
                let snapshot = KubeletSnapshot {
                    configs: &configs,
                    pools: &pools,
                    machine_configs: &present,
                    sources,
                    has_feature_gate,
                    version: "v1",
                };
                let plans = reconcile(&snapshot).into_iter();
                results.extend(plans.map(|plan| plan.map(|plan| plan.generated).map_err(drop)));
            }
        }
        let failed = results.iter().filter(|result| result.is_err()).count();
        let made = results.into_iter().flatten().flatten();
        (made.map(|generated| generated.machine_config).collect(), failed)
    }
}

#[test]
fn the_bootstrap_renders_what_the_controller_renders() {
    let mut rng = Rng::new(support::seed());
    let templates = builtin_templates(TemplateProfile::Kubernetes);
    let (mut rendered, mut refused) = (0, 0);
    for case in 0..CASES {
        let cluster = cluster(&mut rng);
        let expected = cluster.controlled(&templates, &mut rng);
        let found = cluster.bootstrapped(&templates);
        match (&found, &expected) {
            (Ok(found), Ok(expected)) => {
                assert_eq!(found, expected, "case {case}");
                rendered += 1;
            }
            // The bootstrap reports each object once, the controller each of its pools.
            (Err(_), Err(_)) => refused += 1,
            _ => panic!("case {case}: bootstrap {found:?}, controller {expected:?}"),
        }
    }
    assert!(rendered > CASES / 4 && refused > CASES / 20, "{rendered} rendered, {refused} refused");
}

#[test]
fn without_a_kubelet_the_settings_of_the_cluster_generate_nothing() {
    let mut cluster = cluster(&mut Rng::new(1));
    cluster.feature_gate = Some(object("FeatureGate", "cluster", json!({})));
    cluster.node = Some(object("Node", "cluster", json!({})));
    let gates = cluster.gates();
    let with_kubelet = builtin_templates(TemplateProfile::Kubernetes);
    for (templates, expected) in [(TemplateTree::new(), 0), (with_kubelet, 4)] {
        let settings = ClusterSettings {
            sources: cluster.kubelet_sources(&templates, &gates),
            has_node: true,
            has_feature_gate: true,
        };
        let pools: Vec<&MachineConfigPool> = cluster.pools.iter().collect();
        let made = cluster_settings(&settings, &pools[pools.len() - 2..], |_| Vec::new());
        assert!(made.iter().all(Result::is_ok), "{made:?}");
        assert_eq!(made.len(), expected);
    }
}
