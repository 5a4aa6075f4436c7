//! Bootstrap: layout, names, and invalid input.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::api::Nullable;
use crate::template::{TemplateInputs, TemplateTree, builtin_templates};

fn object<K: serde::de::DeserializeOwned>(kind: &str, name: &str, rest: &Value) -> K {
    let mut value = rest.clone();
    value["apiVersion"] = json!("machineconfiguration.openshift.io/v1");
    value["kind"] = json!(kind);
    value["metadata"]["name"] = json!(name);
    serde_json::from_value(value).unwrap()
}

fn facts() -> ControllerConfig {
    let infra = json!({"status": {"platformStatus": {"type": "None"}}});
    let spec = json!({"spec": {"clusterDNSIP": "10.96.0.10", "infra": infra}});
    object("ControllerConfig", "machine-config-controller", &spec)
}

fn machine_config(name: &str, role: &str, text: &str) -> MachineConfig {
    let file =
        json!({"path": format!("/etc/{name}"), "contents": {"source": format!("data:,{text}")}});
    object(
        "MachineConfig",
        name,
        &json!({
            "metadata": {"labels": {"machineconfiguration.openshift.io/role": role}},
            "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [file]}}},
        }),
    )
}

fn pool(name: &str, roles: &[&str]) -> MachineConfigPool {
    let expression =
        json!({"key": "machineconfiguration.openshift.io/role", "operator": "In", "values": roles});
    let spec = json!({"spec": {"machineConfigSelector": {"matchExpressions": [expression]}}});
    object("MachineConfigPool", name, &spec)
}

fn kubelet_config(name: &str, pods: i32) -> KubeletConfig {
    let label = "pools.operator.machineconfiguration.openshift.io/worker";
    let spec = json!({"spec": {
        "machineConfigPoolSelector": {"matchLabels": {label: ""}},
        "kubeletConfig": {"maxPods": pods},
    }});
    object("KubeletConfig", name, &spec)
}

/// Inputs that live long enough to be borrowed.
struct BootstrapInputs {
    facts: ControllerConfig,
    pools: Vec<MachineConfigPool>,
    configs: Vec<MachineConfig>,
    kubelets: Vec<KubeletConfig>,
    machine_os_configs: Vec<crate::api::MachineOSConfig>,
    templates: TemplateTree,
    gates: BTreeMap<String, bool>,
}

impl BootstrapInputs {
    fn new() -> Self {
        Self {
            facts: facts(),
            pools: choose_pools(Vec::new(), None).unwrap(),
            configs: vec![machine_config("50-mine", "worker", "mine")],
            kubelets: Vec::new(),
            machine_os_configs: Vec::new(),
            templates: builtin_templates(crate::profile::TemplateProfile::Kubernetes),
            gates: BTreeMap::new(),
        }
    }

    fn sources(&self) -> GenerateSources<'_> {
        GenerateSources {
            pools: self.pools.iter().collect(),
            machine_configs: self.configs.iter().collect(),
            kubelet_configs: self.kubelets.iter().collect(),
            machine_os_configs: self.machine_os_configs.iter().collect(),
            templates: Some(kubelet::KubeletSources {
                templates: &self.templates,
                inputs: TemplateInputs {
                    controller_config: &self.facts,
                    pull_secret: None,
                    api_server: None,
                },
                gates: &self.gates,
                node: None,
            }),
            ..GenerateSources::default()
        }
    }

    fn bootstrap(&self) -> BootstrapOutput {
        bootstrap(&self.sources(), None, "v1").unwrap()
    }

    fn expect_error(&self) -> String {
        let errors = bootstrap(&self.sources(), None, "v1").unwrap_err();
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
}

fn names(made: &BootstrapOutput) -> Vec<String> {
    made.rendered.iter().map(kube::ResourceExt::name_any).collect()
}

#[test]
fn pools_point_to_existing_configs() {
    let mut inputs = BootstrapInputs::new();
    inputs.pools.push(pool("infra", &["worker", "infra"]));
    inputs.kubelets.push(kubelet_config("more-pods", 220));
    let made = inputs.bootstrap();
    let files = files(&made);
    let paths: Vec<String> =
        files.iter().map(|it| format!("{}/{}", it.directory, it.name)).collect();
    for (pool, config) in made.pools.iter().zip(&made.rendered) {
        let spec = pool.spec.configuration.clone().unwrap();
        let status = pool.status.clone().unwrap().configuration.unwrap();
        assert_eq!((&spec, spec.name.as_ref()), (&status, config.metadata.name.as_ref()));
        assert!(
            paths.contains(&format!("machine-configs/{}.yaml", config.name_any())),
            "{paths:?}"
        );
    }
    assert_eq!(made.pools.len(), 3);
    assert!(paths.contains(&"controller-config/machine-config-controller.yaml".to_owned()));
    assert!(!paths.iter().any(|path| path.starts_with("api-server")));
    // The config that a pool points to is written before the pool.
    assert!(files.is_sorted_by_key(|file| DIRECTORIES.iter().position(|it| *it == file.directory)));
    // Only selected MachineConfigs are sources of a pool, unlike in MCO.
    let source = made.pools[0].spec.configuration.as_ref().unwrap().source.as_ref().unwrap();
    let source: Vec<&str> = source.iter().filter_map(|it| it.name.as_deref()).collect();
    assert!(source.iter().all(|name| name.contains("master")), "{source:?}");
}

#[test]
fn server_fields_of_objects_are_ignored() {
    let mut inputs = BootstrapInputs::new();
    let expected = names(&inputs.bootstrap());
    for pool in &mut inputs.pools {
        pool.metadata.uid = Some("u".to_owned());
        pool.metadata.resource_version = Some("7".to_owned());
        pool.spec.configuration =
            Some(PoolConfiguration { name: Some("old".to_owned()), ..Default::default() });
    }
    // An old rendered or generated config is rendered again.
    let mut stale = machine_config("99-worker-generated-kubelet", "worker", "old");
    let key = crate::api::names::annotation::GENERATED_BY_CONTROLLER_VERSION;
    stale.annotations_mut().insert(key.to_owned(), "v0".to_owned());
    inputs.configs.push(stale);
    let made = inputs.bootstrap();
    assert_eq!(names(&made), expected);
    assert_eq!(made.pools[0].metadata.uid, None);
    assert_eq!(made.rendered[0].metadata.owner_references, None);
}

#[test]
fn a_generated_config_replaces_one_of_the_same_name() {
    let mut inputs = BootstrapInputs::new();
    inputs.configs.push(machine_config("00-worker", "worker", "mine"));
    let made = inputs.bootstrap();
    assert!(made.warnings[0].contains("MachineConfig 00-worker"), "{:?}", made.warnings);
    inputs.configs.pop();
    assert_eq!(names(&made), names(&inputs.bootstrap()));
}

#[test]
fn each_mistake_names_object_field_and_remedy() {
    type Mutation = fn(&mut BootstrapInputs);
    let cases: [(Mutation, &[&str]); 6] = [
        (
            |inputs| inputs.kubelets = vec![kubelet_config("a", 1), kubelet_config("b", 2)],
            &[
                "KubeletConfig a, b",
                "spec.machineConfigPoolSelector",
                "MachineConfigPool worker",
                "keep one",
            ],
        ),
        (
            |inputs| inputs.kubelets = vec![kubelet_config("a", -1), kubelet_config("b", 2)],
            &["KubeletConfig a, b"],
        ),
        (
            |inputs| inputs.pools.push(pool("../up", &["worker"])),
            &["MachineConfigPool \"../up\"", "metadata.name"],
        ),
        (
            |inputs| inputs.pools.push(pool("lonely", &["lonely"])),
            &[
                "MachineConfigPool lonely",
                "couldn't find any MachineConfigs",
                "spec.machineConfigSelector",
            ],
        ),
        (
            |inputs| inputs.configs[0].spec.kernel_type = Some("odd".to_owned()),
            &["MachineConfigPool worker", "MachineConfig 50-mine", "spec.kernelType", "realtime"],
        ),
        (
            |inputs| {
                inputs.facts =
                    object("ControllerConfig", "machine-config-controller", &json!({"spec": {}}));
            },
            &["ControllerConfig machine-config-controller"],
        ),
    ];
    for (spoil, parts) in cases {
        let mut inputs = BootstrapInputs::new();
        spoil(&mut inputs);
        let refusal = inputs.expect_error();
        for part in parts {
            assert!(refusal.contains(part), "{part} is not in {refusal}");
        }
    }
    let none = bootstrap(&GenerateSources::default(), None, "v1").unwrap_err();
    assert_eq!(none, [BootstrapError::NoControllerConfig]);
}

#[test]
fn an_administrators_pool_wins_over_a_built_in_one() {
    let at = |pool: &MachineConfigPool, origin: &str| (pool.clone(), origin.to_owned());
    let own = {
        let mut own = built_in_pool("worker");
        own.spec.paused = Some(true);
        own
    };
    let other = pool("worker", &["worker"]);
    for (declared, expected) in [
        (vec![], Ok(built_in_pool("worker"))),
        (vec![at(&own, "a")], Ok(own.clone())),
        (vec![at(&own, "a"), at(&own, "b")], Ok(own.clone())),
        (vec![at(&built_in_pool("worker"), "a"), at(&own, "b")], Ok(own.clone())),
        (vec![at(&own, "a"), at(&built_in_pool("worker"), "b")], Ok(own.clone())),
        (vec![at(&own, "a"), at(&other, "b")], Err("in a and in b; remove one")),
    ] {
        match (choose_pools(declared, None), expected) {
            (Ok(pools), Ok(expected)) => {
                assert_eq!(
                    pools.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>(),
                    ["master", "worker"]
                );
                assert_eq!(pools[1], expected);
            }
            (Err(errors), Err(expected)) => {
                assert!(errors[0].to_string().contains(expected), "{errors:?}");
            }
            (found, _) => panic!("{found:?}"),
        }
    }
    let mut facts = facts();
    let Nullable::Set(infra) = &mut facts.spec.infra else { panic!() };
    let status = json!({"controlPlaneTopology": "HighlyAvailableArbiter"});
    infra.status = Some(serde_json::from_value(status).unwrap());
    assert_eq!(choose_pools(Vec::new(), Some(&facts)).unwrap().len(), 3);
}

#[test]
fn pull_secrets_are_read_from_files() {
    let type_ = "kubernetes.io/dockerconfigjson";
    let docker = "{\"auths\": {}}";
    let secret = |type_: &str, field: &str, value: &str| json!({"kind": "Secret", "type": type_, field: {".dockerconfigjson": value}});
    for (object, expected) in [
        (json!({"auths": {}}), Ok(docker)),
        (secret(type_, "data", &STANDARD.encode(docker)), Ok(docker)),
        (secret(type_, "stringData", docker), Ok(docker)),
        (
            secret("Opaque", "stringData", docker),
            Err("expected secret type kubernetes.io/dockerconfigjson found Opaque"),
        ),
        (secret(type_, "data", "{hunter2}"), Err("not base64")),
        (json!({"kind": "Secret", "type": type_}), Err("data..dockerconfigjson: missing")),
        (json!({"kind": "ConfigMap"}), Err("neither a Secret")),
        (Value::Null, Err("neither a Secret")),
    ] {
        match (pull_secret(&object, docker), expected) {
            (Ok(bytes), Ok(expected)) => assert_eq!(bytes, expected.as_bytes()),
            (Err(error), Err(expected)) => {
                let error = error.to_string();
                assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
            }
            (found, _) => panic!("{object}: {found:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// The order of the manifests does not matter, and every run gives the same result.
    #[test]
    fn the_order_of_manifests_does_not_matter(order in Just((0..6usize).collect::<Vec<_>>()).prop_shuffle()) {
        let mut inputs = BootstrapInputs::new();
        inputs.pools.push(pool("infra", &["worker", "infra"]));
        let all: Vec<MachineConfig> = (0..6)
            .map(|n| machine_config(&format!("5{n}-x"), if n % 2 == 0 { "worker" } else { "infra" }, &n.to_string()))
            .collect();
        inputs.configs.clone_from(&all);
        let expected = files(&inputs.bootstrap());
        inputs.configs = order.iter().map(|n| all[*n].clone()).collect();
        prop_assert_eq!(files(&inputs.bootstrap()), expected);
    }
}

#[test]
fn pools_get_the_images_of_their_streams() {
    let stream = |name: &str| json!({"name": name, "osImage": format!("q.io/{name}"), "osExtensionsImage": "q.io/x"});
    let rest = json!({
        "spec": {"defaultStream": "nine"},
        "status": {"defaultStream": "nine", "availableStreams": [stream("nine"), stream("ten")]},
    });
    let streams: OSImageStream = object("OSImageStream", "cluster", &rest);
    let mut inputs = BootstrapInputs::new();
    inputs.pools.push(pool("infra", &["worker", "infra"]));
    let worker = inputs.pools.iter_mut().find(|pool| pool.name_any() == "worker").unwrap();
    worker.spec.os_image_stream.get_or_insert_default().name = "ten".to_owned();
    let made = bootstrap(&inputs.sources(), Some(&streams), "v1").unwrap();
    for (pool, config) in made.pools.iter().zip(&made.rendered) {
        let expected = if pool.name_any() == "master" { "q.io/nine" } else { "q.io/ten" };
        assert_eq!(config.spec.os_image_url.as_deref(), Some(expected), "{}", pool.name_any());
    }
    assert!(made.pools.iter().any(|pool| pool.name_any() == "infra"));
}

/// A MachineOSConfig for a pool, with a pre-built image unless that is empty.
fn machine_os_config(pool: &str, image: &str) -> crate::api::MachineOSConfig {
    let annotations = match image {
        "" => json!({}),
        image => json!({"machineconfiguration.openshift.io/pre-built-image": image}),
    };
    let rest = json!({"metadata": {"annotations": annotations},
        "spec": {"machineConfigPool": {"name": pool}}});
    object("MachineOSConfig", pool, &rest)
}

#[test]
fn a_pool_starts_with_its_pre_built_image() {
    let image = format!("registry.example.com/os/layered@sha256:{}", "a".repeat(64));
    let mut inputs = BootstrapInputs::new();
    let before = names(&inputs.bootstrap());
    inputs.machine_os_configs = vec![machine_os_config("worker", &image)];
    let made = inputs.bootstrap();
    let worker = made.rendered.iter().find(|it| it.name_any().contains("worker")).unwrap();
    assert_eq!(worker.spec.os_image_url.as_deref(), Some(image.as_str()));
    assert_eq!(names(&made)[0], before[0], "the other pool is unchanged");
    let pool = made.pools.iter().find(|pool| pool.name_any() == "worker").unwrap();
    let source = pool.spec.configuration.as_ref().unwrap().source.as_ref().unwrap();
    assert!(
        source.iter().any(|it| it.name.as_deref() == Some("10-prebuiltimage-osimageurl-worker")),
        "{source:?}"
    );
    // An image that the cluster already runs needs no annotation.
    let mut seeded = machine_os_config("worker", "");
    let status = json!({"conditions": [{"type": "Seeded", "status": "True"}]});
    seeded.status = Some(serde_json::from_value(status).unwrap());
    inputs.machine_os_configs = vec![seeded];
    assert_eq!(names(&inputs.bootstrap()), before);
    for (pool, image, expected) in [
        ("worker", "", "pre-built-image]: a pool of a new cluster starts with"),
        ("other", image.as_str(), "spec.machineConfigPool.name: there is no MachineConfigPool"),
        ("worker", "registry.example.com/os:latest", "is not an image by its digest"),
        ("worker", "os@sha256:1", "is not an image by its digest"),
    ] {
        inputs.machine_os_configs = vec![machine_os_config(pool, image)];
        let error = inputs.expect_error();
        assert!(error.contains(expected), "{error}");
    }
}
