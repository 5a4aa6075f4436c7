//! Images that were built before the cluster: a MachineOSConfig names one in an annotation, and its
//! pool starts with it.

use std::collections::BTreeMap;

use kube::ResourceExt as _;

use super::BootstrapError;
use crate::api::names::annotation::{CURRENT_MACHINE_OS_BUILD, PRE_BUILT_IMAGE};
use crate::api::names::label;
use crate::api::{MachineConfig, MachineConfigPool, MachineOSConfig, find_condition};

/// MCO's prefix of the MachineConfigs that set a pool's image.
const NAME_PREFIX: &str = "10-prebuiltimage-osimageurl-";
/// The condition of a MachineOSConfig whose image the cluster already runs.
const SEEDED: &str = "Seeded";

/// A MachineConfig with the image for each pool that has a pre-built one.
///
/// # Errors
/// A MachineOSConfig names no image, no known pool, or an image that is not pinned by its digest.
pub(super) fn pre_built_images(
    machine_os_configs: &[&MachineOSConfig],
    pools: &[&MachineConfigPool],
) -> Result<Vec<MachineConfig>, Vec<BootstrapError>> {
    let mut configs = Vec::new();
    let mut errors = Vec::new();
    for config in machine_os_configs {
        let mut fail = |field: String, message: String, remedy: &'static str| {
            let name = config.name_any();
            errors.push(BootstrapError::MachineOsConfig { name, field, message, remedy });
        };
        let annotation = format!("metadata.annotations[{PRE_BUILT_IMAGE}]");
        let image = config.annotations().get(PRE_BUILT_IMAGE).filter(|image| !image.is_empty());
        let Some(image) = image else {
            if !is_seeded(config) {
                let message = "a pool of a new cluster starts with an image that exists".to_owned();
                fail(annotation, message, "name an image by its digest");
            }
            continue;
        };
        let pool = config.spec.machine_config_pool.as_ref().map(|pool| pool.name.as_str());
        let pool = pool.unwrap_or_default();
        if !pools.iter().any(|known| known.name_any() == pool) {
            let message = format!("there is no MachineConfigPool {pool:?}");
            fail("spec.machineConfigPool.name".to_owned(), message, "name a pool that exists");
        } else if !is_pinned(image) {
            let message = format!("{image:?} is not an image by its digest");
            fail(annotation, message, "write host/path@sha256:…");
        } else {
            configs.push(with_image(pool, image));
        }
    }
    if errors.is_empty() { Ok(configs) } else { Err(errors) }
}

/// Whether the cluster already runs an image of this MachineOSConfig.
fn is_seeded(config: &MachineOSConfig) -> bool {
    let conditions = config.status.as_ref().and_then(|status| status.conditions.as_deref());
    let seeded = find_condition(conditions.unwrap_or_default(), SEEDED);
    let build = config.annotations().get(CURRENT_MACHINE_OS_BUILD);
    seeded.is_some_and(|condition| condition.status == "True")
        || build.is_some_and(|build| !build.is_empty())
}

/// Whether an image is named in full and by its SHA-256 digest.
fn is_pinned(image: &str) -> bool {
    image.contains("@sha256:") && crate::container_runtime::is_full_image_name(image)
}

fn with_image(pool: &str, image: &str) -> MachineConfig {
    let mut config = MachineConfig::new(&format!("{NAME_PREFIX}{pool}"), Default::default());
    config.metadata.labels = Some(BTreeMap::from([(label::ROLE.to_owned(), pool.to_owned())]));
    config.metadata.annotations =
        Some(BTreeMap::from([(PRE_BUILT_IMAGE.to_owned(), image.to_owned())]));
    config.spec.os_image_url = Some(image.to_owned());
    config
}
