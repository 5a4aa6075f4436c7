//! Certificates and secrets that the cluster keeps up to date on its machines, without a config, without
//! a reboot, and in paused pools too: what the ControllerConfig says, and where it is written.
//!
//! | ControllerConfig | on the machine |
//! |---|---|
//! | `kubeAPIServerServingCAData` | `/etc/kubernetes/kubelet-ca.crt` |
//! | `cloudProviderCAData` | `/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem` |
//! | `internalRegistryPullSecret` | `/etc/mco/internal-registry-pull-secret.json` |
//! | `imageRegistryBundleData`, `imageRegistryBundleUserData` | `/etc/docker/certs.d/<registry>/ca.crt` |

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::api::ControllerConfig;
use crate::api::names::annotation::LAST_SYNCED_CONTROLLER_CONFIG;
use crate::api::names::object::CONTROLLER_CONFIG;
use crate::api::names::path::{INTERNAL_REGISTRY_PULL_SECRET, KUBELET_CA};
use crate::api::{ControllerConfigSpec, ImageRegistryBundle};
use crate::apply::{ClusterFile, ClusterFiles, FileContent};
use crate::daemon::annotations::NodeAnnotationPatch;

/// The certificates of the cloud provider.
pub const CLOUD_CA_PATH: &str =
    "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";

/// Why a ControllerConfig cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificatesError {
    /// The name of a registry is invalid.
    #[error(
        "ControllerConfig {CONTROLLER_CONFIG}: spec.{field}: file {file:?} is no registry: write its host name, with \"..\" in place of the colon before a port"
    )]
    InvalidRegistryName {
        /// The field.
        field: &'static str,
        /// Its value.
        file: String,
    },
}

/// Removes everything that machines do not need: a ControllerConfig is large.
pub fn trim(config: &mut ControllerConfig) {
    config.metadata.managed_fields = None;
    config.status = None;
    let spec = std::mem::take(&mut config.spec);
    config.spec = ControllerConfigSpec {
        kube_api_server_serving_ca_data: spec.kube_api_server_serving_ca_data,
        cloud_provider_ca_data: spec.cloud_provider_ca_data,
        internal_registry_pull_secret: spec.internal_registry_pull_secret,
        image_registry_bundle_data: spec.image_registry_bundle_data,
        image_registry_bundle_user_data: spec.image_registry_bundle_user_data,
        ..ControllerConfigSpec::default()
    };
}

/// Its version.
#[must_use]
pub fn resource_version(config: &ControllerConfig) -> &str {
    config.metadata.resource_version.as_deref().unwrap_or_default()
}

/// The annotations that a machine writes once its files are up to date.
#[must_use]
pub fn synced_annotations(config: &ControllerConfig) -> NodeAnnotationPatch {
    let value = Some(resource_version(config).to_owned());
    NodeAnnotationPatch::from([(LAST_SYNCED_CONTROLLER_CONFIG.to_owned(), value)])
}

/// The files that a ControllerConfig asks for.
///
/// # Errors
/// A registry has a name that is not a directory name.
pub fn desired_files(config: &ControllerConfig) -> Result<ClusterFiles, CertificatesError> {
    let spec = &config.spec;
    let mut files = Vec::new();
    let mut add = |path, data: Option<&[u8]>, is_secret| {
        let data = data.unwrap_or_default();
        // An empty bundle would mean to trust nobody, which is never intended.
        if path == KUBELET_CA && data.is_empty() {
            return;
        }
        let content = FileContent::new(ending_in_newline(data));
        files.push(ClusterFile { path, content, is_secret, only_if_present: data.is_empty() });
    };
    let api_server = spec.kube_api_server_serving_ca_data.as_ref();
    add(KUBELET_CA, api_server.map(|data| data.0.as_slice()), false);
    let cloud = spec.cloud_provider_ca_data.as_ref();
    add(CLOUD_CA_PATH, cloud.map(|data| data.0.as_slice()), false);
    let secret = spec.internal_registry_pull_secret.as_ref();
    add(INTERNAL_REGISTRY_PULL_SECRET, secret.map(|secret| secret.0.as_slice()), true);
    let origin =
        format!("the certificates of ControllerConfig version {}", resource_version(config));
    Ok(ClusterFiles { origin, files, registries: registries(spec)? })
}

/// In the form that MCO writes.
fn ending_in_newline(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    if !bytes.ends_with(b"\n") {
        bytes.push(b'\n');
    }
    bytes
}

/// Certificates of registries; those of the administrator take precedence.
fn registries(
    spec: &ControllerConfigSpec,
) -> Result<BTreeMap<String, FileContent>, CertificatesError> {
    let mut found = BTreeMap::new();
    type BundleField<'a> = (&'static str, &'a Option<Vec<ImageRegistryBundle>>);
    let fields: [BundleField<'_>; 2] = [
        ("imageRegistryBundleData", &spec.image_registry_bundle_data),
        ("imageRegistryBundleUserData", &spec.image_registry_bundle_user_data),
    ];
    for (field, bundles) in fields {
        for bundle in bundles.iter().flatten() {
            let name = bundle.file.replace("..", ":");
            if name.is_empty() || name == "." || name.contains(['/', '\0']) {
                let file = bundle.file.clone();
                return Err(CertificatesError::InvalidRegistryName { field, file });
            }
            found.insert(name, FileContent::new(bundle.data.0.clone()));
        }
    }
    Ok(found)
}
