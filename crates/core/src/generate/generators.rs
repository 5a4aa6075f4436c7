//! All generators, one after another.

use crate::api::{ContainerRuntimeConfig, KubeletConfig, MachineConfig, MachineConfigPool};
use crate::container_runtime::{BaseFiles, crio_settings, registries};
use crate::kubelet;

use super::from_templates;
use crate::generated_config::{GenerateError, GeneratedConfig};

/// Everything that MachineConfigs are generated from.
#[derive(Clone, Debug, Default)]
pub struct GenerateSources<'a> {
    /// The pools.
    pub pools: Vec<&'a MachineConfigPool>,
    /// The MachineConfigs that there are: those of templates are what others build on.
    pub machine_configs: Vec<&'a MachineConfig>,
    /// What there is about images.
    pub images: registries::RegistryInputs<'a>,
    /// Settings of the container runtime.
    pub container_runtime_configs: Vec<&'a ContainerRuntimeConfig>,
    /// The templates and what they are filled in with; none where there is no ControllerConfig.
    pub templates: Option<kubelet::KubeletSources<'a>>,
    /// Settings of the kubelet.
    pub kubelet_configs: Vec<&'a KubeletConfig>,
    /// Whether there is a FeatureGate `cluster`.
    pub has_feature_gate: bool,
}

/// What a generator made, and what it could not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerateOutput {
    /// The MachineConfigs.
    pub generated: Vec<GeneratedConfig>,
    /// Why there are no others.
    pub errors: Vec<GenerateError>,
}

/// A generator: what it makes of the sources.
pub type Generator = fn(&GenerateSources<'_>) -> GenerateOutput;

/// All generators.
pub const GENERATORS: &[Generator] = &[images, container_runtime, from_templates::kubelets];

/// What all generators make of the sources.
#[must_use]
pub fn generate(sources: &GenerateSources<'_>) -> GenerateOutput {
    let mut all = from_templates::templates(sources);
    // The others build on what the templates made.
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
