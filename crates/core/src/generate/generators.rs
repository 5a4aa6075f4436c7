//! Runs all generators.

use crate::api::{ContainerRuntimeConfig, KubeletConfig, MachineConfig, MachineConfigPool};
use crate::container_runtime::{BaseFiles, crio_settings, registries};
use crate::kubelet;

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
    pub images: registries::RegistryInputs<'a>,
    /// ContainerRuntimeConfigs.
    pub container_runtime_configs: Vec<&'a ContainerRuntimeConfig>,
    /// The templates and their data. `None` without a ControllerConfig.
    pub templates: Option<kubelet::KubeletSources<'a>>,
    /// KubeletConfigs.
    pub kubelet_configs: Vec<&'a KubeletConfig>,
    /// Whether there is a FeatureGate `cluster`.
    pub has_feature_gate: bool,
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
    sources.machine_configs.extend(templates.iter().map(|made| &made.machine_config));
    for generator in GENERATORS {
        let made = generator(&sources);
        all.generated.extend(made.generated);
        all.errors.extend(made.errors);
    }
    all
}

fn images(sources: &GenerateSources<'_>) -> GenerateOutput {
    let pools: Vec<(&MachineConfigPool, BaseFiles)> = registries::target_pools(&sources.pools)
        .into_iter()
        .map(|pool| (pool, base(sources, pool.metadata.name.as_deref().unwrap_or_default())))
        .collect();
    match registries::generate(&sources.images, &pools) {
        Ok(made) => {
            let errors = made.release_not_blocked.into_iter().collect();
            GenerateOutput { generated: made.generated, errors }
        }
        Err(error) => GenerateOutput { generated: Vec::new(), errors: vec![error] },
    }
}

fn container_runtime(sources: &GenerateSources<'_>) -> GenerateOutput {
    let exists = |name: &str| {
        sources.machine_configs.iter().any(|config| config.metadata.name.as_deref() == Some(name))
    };
    let configs = &sources.container_runtime_configs;
    let planned =
        crio_settings::generate_all(configs, &sources.pools, exists, |pool| base(sources, pool));
    let mut made = GenerateOutput::default();
    for planned in planned {
        match planned {
            Ok(planned) => made.generated.extend(planned.generated),
            Err(error) => made.errors.push(error),
        }
    }
    made
}

fn base(sources: &GenerateSources<'_>, pool: &str) -> BaseFiles {
    BaseFiles::for_pool(pool, sources.machine_configs.iter().copied())
}
