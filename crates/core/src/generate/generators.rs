//! Runs all generators.

use std::borrow::Cow;

use crate::api::config::{Feature, FeatureGates};
use crate::api::{
    ContainerRuntimeConfig, KubeletConfig, MachineConfig, MachineConfigPool, MachineOSConfig,
};
use crate::container_runtime::crio_settings::RuntimeConfigOutput;
use crate::container_runtime::registries::{RegistriesOutput, RegistryInputs};
use crate::container_runtime::{BaseFiles, crio_settings, registries};
use crate::kubelet;
use crate::profile::TemplateProfile;

use super::from_templates;
use crate::generated_config::{GenerateError, GeneratedConfig};

/// The input of all generators.
#[derive(Clone, Debug, Default)]
pub struct GenerateSources<'a> {
    /// The pools.
    pub pools: Vec<&'a MachineConfigPool>,
    /// All MachineConfigs. Other generators build on those from templates.
    pub machine_configs: Vec<&'a MachineConfig>,
    /// Image settings: mirrors, registries, policies.
    pub images: RegistryInputs<'a>,
    /// ContainerRuntimeConfigs.
    pub container_runtime_configs: Vec<&'a ContainerRuntimeConfig>,
    /// The templates and their data. `None` without a ControllerConfig.
    pub templates: Option<kubelet::KubeletSources<'a>>,
    /// MachineOSConfigs. Only the bootstrap reads them: it sets the pre-built images of pools.
    pub machine_os_configs: Vec<&'a MachineOSConfig>,
    /// KubeletConfigs.
    pub kubelet_configs: Vec<&'a KubeletConfig>,
    /// Whether there is a FeatureGate `cluster`.
    pub has_feature_gate: bool,
    /// The features of the cluster.
    pub features: FeatureGates<'a>,
}

/// The result of a generator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerateOutput {
    /// The MachineConfigs.
    pub generated: Vec<GeneratedConfig>,
    /// Why some objects generated nothing.
    pub errors: Vec<GenerateError>,
}

/// A generator.
pub type Generator = fn(&GenerateSources<'_>) -> GenerateOutput;

/// All generators except the templates, which run first.
pub const GENERATORS: &[Generator] = &[images, container_runtime, from_templates::kubelets];

/// Runs all generators.
#[must_use]
pub fn generate(sources: &GenerateSources<'_>) -> GenerateOutput {
    let mut all = from_templates::templates(sources);
    // The other generators build on the MachineConfigs from templates.
    let templates = all.generated.clone();
    let mut sources = sources.clone();
    sources.images = sources.images.with_features(sources.features);
    sources.machine_configs.extend(templates.iter().map(|made| &made.machine_config));
    for generator in GENERATORS {
        let made = generator(&sources);
        all.generated.extend(made.generated);
        all.errors.extend(made.errors);
    }
    all
}

fn images(sources: &GenerateSources<'_>) -> GenerateOutput {
    match registries(&sources.images, &sources.pools, &sources.machine_configs) {
        Ok(made) => {
            let mut generated = made.generated;
            // MCO drops such a registry from the list and goes on.
            if let Some(problem) = made.release_not_blocked {
                generated.iter_mut().for_each(|made| made.warnings.push(problem.to_string()));
            }
            GenerateOutput { generated, errors: Vec::new() }
        }
        Err(error) => GenerateOutput { generated: Vec::new(), errors: vec![error] },
    }
}

/// The MachineConfigs of mirrors, registry lists and image policies, for all pools that get them.
///
/// # Errors
/// An object is invalid.
pub fn registries(
    inputs: &RegistryInputs<'_>,
    pools: &[&MachineConfigPool],
    machine_configs: &[&MachineConfig],
) -> Result<RegistriesOutput, GenerateError> {
    let with_base = |pool: &'_ MachineConfigPool| {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        BaseFiles::for_pool(name, machine_configs.iter().copied())
    };
    let pools: Vec<(&MachineConfigPool, BaseFiles)> =
        registries::target_pools(pools).into_iter().map(|pool| (pool, with_base(pool))).collect();
    registries::generate(inputs, &pools)
}

fn container_runtime(sources: &GenerateSources<'_>) -> GenerateOutput {
    let profile = sources.templates.and_then(|sources| sources.templates.profile());
    let planned = container_runtimes(
        &sources.container_runtime_configs,
        profile,
        sources.features,
        &sources.pools,
        &sources.machine_configs,
    );
    let mut made = GenerateOutput::default();
    for planned in planned {
        match planned {
            Ok(planned) => made.generated.extend(planned.generated),
            Err(error) => made.errors.push(error),
        }
    }
    made
}

/// What each ContainerRuntimeConfig generates, in the order of the input, for the nodes of a profile.
/// Additional stores have no effect while their feature is off, as in MCO.
#[must_use]
pub fn container_runtimes(
    configs: &[&ContainerRuntimeConfig],
    profile: Option<TemplateProfile>,
    features: FeatureGates<'_>,
    pools: &[&MachineConfigPool],
    machine_configs: &[&MachineConfig],
) -> Vec<Result<RuntimeConfigOutput, GenerateError>> {
    let exists = |name: &str| {
        machine_configs.iter().any(|config| config.metadata.name.as_deref() == Some(name))
    };
    let has_stores = features.is_on(Feature::AdditionalStorageConfig);
    let configs: Vec<Cow<'_, ContainerRuntimeConfig>> = configs
        .iter()
        .map(|config| if has_stores { Cow::Borrowed(*config) } else { without_stores(config) })
        .collect();
    let configs: Vec<&ContainerRuntimeConfig> = configs.iter().map(AsRef::as_ref).collect();
    let base = |pool: &str| BaseFiles::for_pool(pool, machine_configs.iter().copied());
    crio_settings::generate_all(&configs, profile, pools, exists, base)
}

fn without_stores(config: &ContainerRuntimeConfig) -> Cow<'_, ContainerRuntimeConfig> {
    let mut config = config.clone();
    if let Some(settings) = &mut config.spec.container_runtime_config {
        settings.additional_layer_stores = None;
        settings.additional_image_stores = None;
        settings.additional_artifact_stores = None;
    }
    Cow::Owned(config)
}
