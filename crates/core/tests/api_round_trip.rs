//! Objects survive a round trip: all known fields and all unknown ones.
//!
//! The objects are in `tests/cases/api`. An API server would refuse those in its directory
//! `offline`, but they must be readable all the same.

use std::path::{Path, PathBuf};

use machinist_core::api::{self, config, operator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// An unknown field that is added everywhere and must be preserved.
const UNKNOWN: &str = "fieldFromTheFuture";

#[test]
fn every_object_survives_a_round_trip() {
    for (path, object) in cases() {
        let expected = with_spec(object.clone());
        let found = round_trip(&path, object);
        assert_eq!(found, expected, "{}", path.display());
    }
}

#[test]
fn unknown_fields_survive_a_round_trip() {
    for (path, object) in cases() {
        let mut expected = with_spec(object);
        for part in ["spec", "status"] {
            if let Some(part) = expected.get_mut(part) {
                inject(part);
            }
        }
        let found = round_trip(&path, expected.clone());
        assert_eq!(found, expected, "{}", path.display());
    }
}

#[test]
fn every_kind_has_a_full_object() {
    let kinds: Vec<String> =
        cases().iter().map(|(_, object)| object["kind"].as_str().unwrap().to_owned()).collect();
    for crd in api::crds::crds() {
        assert!(kinds.contains(&crd.spec.names.kind), "no case for {}", crd.spec.names.kind);
    }
}

#[test]
fn null_kernel_arguments_differ_from_absent_ones() {
    let null = json!({"kernelArguments": null});
    let spec: api::MachineConfigSpec = serde_json::from_value(null.clone()).unwrap();
    assert_eq!(spec.kernel_arguments, None);
    assert_eq!(serde_json::to_value(&spec).unwrap(), null);

    let absent: api::MachineConfigSpec = serde_json::from_value(json!({})).unwrap();
    assert_eq!(serde_json::to_value(&absent).unwrap(), json!({}));

    let given = api::MachineConfigSpec { kernel_arguments: Some(vec!["quiet".to_owned()]), ..spec };
    assert_eq!(
        serde_json::to_string(&given).unwrap(),
        r#"{"kernelArguments":["quiet"]}"#,
        "the null must not be written beside the value"
    );
}

#[test]
fn nulls_in_optional_fields_read_as_absent() {
    let pool: api::MachineConfigPool = serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": "worker", "creationTimestamp": null},
        "spec": {"maxUnavailable": null, "nodeSelector": null, "pinnedImageSets": null},
        "status": null,
    }))
    .unwrap();
    assert_eq!(pool.spec, api::MachineConfigPoolSpec::default());
    assert_eq!(pool.status, None);
}

#[test]
fn debug_output_hides_the_config() {
    let (_, object) = cases()
        .into_iter()
        .find(|(path, _)| path.ends_with("machineconfig-full.json"))
        .expect("the case is there");
    let config: api::MachineConfig = serde_json::from_value(object).unwrap();
    let shown = format!("{config:?}");
    assert!(shown.contains(r#"config: <Ignition "3.5.0">"#), "{shown}");
    assert!(!shown.contains("$6$abc"), "the password hash is shown: {shown}");
}

/// The objects of the corpus and their files.
fn cases() -> Vec<(PathBuf, Value)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/api");
    let mut cases = Vec::new();
    for directory in [directory.join("offline"), directory] {
        for entry in directory.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "json") {
                cases.push((path.clone(), read(&path)));
            }
        }
    }
    assert!(cases.len() > 60, "only {} objects in {}", cases.len(), cases[0].0.display());
    cases
}

#[expect(clippy::disallowed_methods, reason = "a test reads its cases")]
fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// An object without a spec is written with an empty one.
fn with_spec(mut object: Value) -> Value {
    object.as_object_mut().unwrap().entry("spec").or_insert_with(|| json!({}));
    object
}

fn round_trip(path: &Path, object: Value) -> Value {
    fn through<K: DeserializeOwned + Serialize>(object: Value) -> serde_json::Result<Value> {
        serde_json::to_value(serde_json::from_value::<K>(object)?)
    }
    let kind = object["kind"].as_str().unwrap().to_owned();
    let through = match kind.as_str() {
        "MachineConfig" => through::<api::MachineConfig>,
        "MachineConfigPool" => through::<api::MachineConfigPool>,
        "MachineConfigNode" => through::<api::MachineConfigNode>,
        "ControllerConfig" => through::<api::ControllerConfig>,
        "KubeletConfig" => through::<api::KubeletConfig>,
        "ContainerRuntimeConfig" => through::<api::ContainerRuntimeConfig>,
        "MachineOSConfig" => through::<api::MachineOSConfig>,
        "MachineOSBuild" => through::<api::MachineOSBuild>,
        "PinnedImageSet" => through::<api::PinnedImageSet>,
        "OSImageStream" => through::<api::OSImageStream>,
        "InternalReleaseImage" => through::<api::InternalReleaseImage>,
        "MachineConfiguration" => through::<operator::MachineConfiguration>,
        "ImageContentSourcePolicy" => through::<operator::ImageContentSourcePolicy>,
        "ImageDigestMirrorSet" => through::<config::ImageDigestMirrorSet>,
        "ImageTagMirrorSet" => through::<config::ImageTagMirrorSet>,
        "Image" => through::<config::Image>,
        "ClusterImagePolicy" => through::<config::ClusterImagePolicy>,
        "ImagePolicy" => through::<config::ImagePolicy>,
        "CRIOCredentialProviderConfig" => through::<config::CRIOCredentialProviderConfig>,
        "Infrastructure" => through::<config::Infrastructure>,
        "ClusterVersion" => through::<config::ClusterVersion>,
        "ClusterOperator" => through::<config::ClusterOperator>,
        "FeatureGate" => through::<config::FeatureGate>,
        "Network" => through::<config::Network>,
        "DNS" => through::<config::DNS>,
        "Proxy" => through::<config::Proxy>,
        "APIServer" => through::<config::APIServer>,
        "Scheduler" => through::<config::Scheduler>,
        "Node" => through::<config::NodeConfig>,
        _ => panic!("{}: no type for {kind}", path.display()),
    };
    through(object).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Adds an unknown field to every object, except in Kubernetes types that are replaced as a whole:
/// selectors and references.
fn inject(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                let atomic = key.ends_with("elector") || key == "pullSecret" || key == "source";
                if !atomic {
                    inject(inner);
                }
            }
            map.insert(UNKNOWN.to_owned(), json!("kept"));
        }
        Value::Array(items) => items.iter_mut().for_each(inject),
        _ => {}
    }
}
