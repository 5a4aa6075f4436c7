//! The files that the server adds.

use std::collections::BTreeMap;

use crate::api::ControllerConfig;
use crate::api::names::{annotation, path, state};
use crate::ignition::Config;
use crate::ignition::data_url;
use crate::ignition::schema::{File, Resource};

/// The CA certificates of the cloud provider.
const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
/// Everything that the server adds is world-readable.
const MODE: i64 = 0o644;

/// Appends a file.
pub(super) fn add_file(config: &mut Config, path: &str, contents: &[u8]) {
    config.storage.files.push(File {
        path: path.to_owned(),
        overwrite: Some(true),
        mode: Some(MODE),
        contents: Resource { source: Some(data_url::encode(contents)), ..Resource::default() },
        ..File::default()
    });
}

/// Adds the CA certificates for machines; if the config already has such a file, only its contents
/// are replaced.
pub(super) fn add_ca_bundles(config: &mut Config, controller_config: &ControllerConfig) {
    let spec = &controller_config.spec;
    let api_server = spec.kube_api_server_serving_ca_data.as_ref();
    let cloud = spec.cloud_provider_ca_data.as_ref();
    for (path, data) in [(path::KUBELET_CA, api_server), (CLOUD_CA, cloud)] {
        let Some(data) = data.map(|data| &data.0).filter(|data| !data.is_empty()) else { continue };
        match config.storage.files.iter_mut().find(|file| file.path == path) {
            Some(file) => file.contents.source = Some(data_url::encode(data)),
            None => add_file(config, path, data),
        }
    }
}

/// The annotations that the machine sets on its Node.
pub(super) fn node_annotations(config_name: &str, image: Option<&str>) -> Vec<u8> {
    let mut annotations = BTreeMap::from([
        (annotation::CURRENT_CONFIG, config_name),
        (annotation::DESIRED_CONFIG, config_name),
        (annotation::FIRST_PIVOT_CONFIG, config_name),
        (annotation::STATE, state::DONE),
    ]);
    if let Some(image) = image {
        annotations.insert(annotation::CURRENT_IMAGE, image);
        annotations.insert(annotation::DESIRED_IMAGE, image);
    }
    serde_json::to_vec(&annotations).unwrap_or_default()
}

/// Where the container runtime looks for the CA certificates of a registry.
pub(super) fn registry_certificate_path(registry: &str) -> String {
    format!("/etc/docker/certs.d/{registry}/ca.crt")
}
