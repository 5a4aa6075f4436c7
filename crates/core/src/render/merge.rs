//! Merges MachineConfigs into one spec.

use crate::api::{MachineConfig, MachineConfigSpec};
use crate::ignition::{self, Config};

use super::base_images::BaseImages;
use super::error::RenderError;
use super::select::name_of;
use crate::validate::SPECIAL_KERNELS;

/// A MachineConfig with its parsed Ignition config.
#[derive(Debug, Clone)]
pub struct ParsedMachineConfig<'a> {
    /// The MachineConfig.
    pub machine_config: &'a MachineConfig,
    /// Its Ignition config, upgraded to 3.5.0.
    pub ignition: Option<Config>,
}

impl ParsedMachineConfig<'_> {
    /// The name of the MachineConfig.
    #[must_use]
    pub fn name(&self) -> &str {
        name_of(self.machine_config)
    }

    fn spec(&self) -> &MachineConfigSpec {
        &self.machine_config.spec
    }

    /// Whether a controller generated it. Its OS image is then the default, not an override.
    pub(crate) fn is_generated(&self) -> bool {
        let key = crate::api::names::annotation::GENERATED_BY_CONTROLLER_VERSION;
        let annotations = self.machine_config.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(key)).is_some_and(|version| !version.is_empty())
    }
}

/// The merged fields of a rendered config. All are always present, because the hash covers them.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RenderedSpec {
    /// The OS image.
    #[serde(rename = "osImageURL")]
    pub os_image_url: String,
    /// The image with the extensions' packages.
    #[serde(rename = "baseOSExtensionsContainerImage")]
    pub base_os_extensions_container_image: String,
    /// The Ignition config.
    pub config: Config,
    /// Kernel arguments, in merge order.
    pub kernel_arguments: Vec<String>,
    /// Extensions, in merge order.
    pub extensions: Vec<String>,
    /// Whether FIPS mode is on.
    pub fips: bool,
    /// The kernel.
    pub kernel_type: String,
}

/// Merges MachineConfigs that are in merge order.
pub(super) fn merge(
    sources: &[ParsedMachineConfig<'_>],
    base: &BaseImages,
) -> Result<RenderedSpec, RenderError> {
    let special_kernel = |source: &&ParsedMachineConfig<'_>| {
        let kernel = source.spec().kernel_type.as_deref().unwrap_or_default();
        SPECIAL_KERNELS.contains(&kernel)
    };
    let kernel_from = sources.iter().rev().find(special_kernel);
    let kernel_type = kernel_from.and_then(|source| source.spec().kernel_type.as_deref());
    let asks_for_devel = |source: &&ParsedMachineConfig<'_>| {
        source.spec().extensions.iter().flatten().any(|e| e == "kernel-devel")
    };
    if let (Some(kernel_from), Some(extension_from)) =
        (kernel_from, sources.iter().find(asks_for_devel))
    {
        return Err(RenderError::KernelDevel {
            kernel_type: kernel_type.unwrap_or_default().to_owned(),
            extension_from: extension_from.name().to_owned(),
            kernel_from: kernel_from.name().to_owned(),
        });
    }
    let concat = |field: fn(&MachineConfigSpec) -> &Option<Vec<String>>| {
        sources.iter().flat_map(|source| field(source.spec()).iter().flatten().cloned()).collect()
    };
    Ok(RenderedSpec {
        os_image_url: last_set(sources, |spec| spec.os_image_url.as_deref())
            .map_or(base.image(), |(image, _)| image)
            .to_owned(),
        base_os_extensions_container_image: last_set(sources, |spec| {
            spec.base_os_extensions_container_image.as_deref()
        })
        .map_or(base.extensions.as_str(), |(image, _)| image)
        .to_owned(),
        config: merge_ignition(sources),
        kernel_arguments: concat(|spec| &spec.kernel_arguments),
        extensions: concat(|spec| &spec.extensions),
        fips: sources.iter().any(|source| source.spec().fips == Some(true)),
        kernel_type: kernel_type.unwrap_or("default").to_owned(),
    })
}

/// The last image that an administrator's MachineConfig sets, with that MachineConfig.
pub(crate) fn last_set<'a>(
    sources: &'a [ParsedMachineConfig<'_>],
    field: impl Fn(&'a MachineConfigSpec) -> Option<&'a str>,
) -> Option<(&'a str, &'a ParsedMachineConfig<'a>)> {
    let set = |source: &'a ParsedMachineConfig<'_>| {
        let value = field(&source.machine_config.spec).filter(|value| !value.is_empty())?;
        Some((value, source))
    };
    sources.iter().rev().filter(|source| !source.is_generated()).find_map(set)
}

/// Merges the Ignition configs as MCO does: a later config that mentions a file also decides its
/// compression, and every file overwrites unless it sets `overwrite: false`.
fn merge_ignition(sources: &[ParsedMachineConfig<'_>]) -> Config {
    let Some(first) = sources.first() else { return ignition::empty_config() };
    let mut configs = vec![first.ignition.clone().unwrap_or_else(ignition::empty_config)];
    for later in sources[1..].iter().filter_map(|source| source.ignition.as_ref()) {
        let mut later = later.clone();
        for file in later.storage.files.iter_mut() {
            // An empty value overrides the gzip of an earlier config; it is removed again below.
            file.contents.compression.get_or_insert_default();
        }
        configs.push(later);
    }
    let merged_any = configs.len() > 1;
    let mut merged = ignition::merge(configs);
    for file in merged.storage.files.iter_mut() {
        if merged_any && file.contents.compression.as_deref() == Some("") {
            file.contents.compression = None;
        }
        file.overwrite.get_or_insert(true);
    }
    merged
}
