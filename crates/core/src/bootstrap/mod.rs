//! Bootstrap of the first control plane: the configs of its machines before there is an API server.
//!
//! ```text
//! manifests + templates ─ generate ─► MachineConfigs ─ render ─► pools and rendered configs ─ layout ─► files
//! ```
//!
//! The generators and the renderer are those of the controller, so the rendered configs have the
//! names that the controller gives them later: a machine that booted with one finds it in the API
//! server.

mod error;
mod layout;
mod pools;
mod pre_built;
mod pull_secret;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt as _};

pub use error::BootstrapError;
pub use layout::{BootstrapFile, DIRECTORIES, files};
pub use pools::{DeclaredPool, built_in_pool, choose_pools};
pub use pull_secret::{PullSecretError, pull_secret};

use crate::api::config::{APIServer, Feature};
use crate::api::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfig, MachineConfigPool,
    OSImageStream, PoolConfiguration,
};
use crate::generate::{GenerateSources, generate};
use crate::generated_config::naming::{ConfigNaming, NamedSource};
use crate::generated_config::reconcile::is_generated;
use crate::render::{ImageSources, MAX_RENDERED_BYTES, RenderError, render};
use crate::{container_runtime, kubelet};

/// The result of a bootstrap.
#[derive(Debug, Clone, PartialEq)]
pub struct BootstrapOutput {
    /// The pools, each pointing to its rendered config.
    pub pools: Vec<MachineConfigPool>,
    /// The rendered configs.
    pub rendered: Vec<MachineConfig>,
    /// The facts that they were rendered with.
    pub controller_config: ControllerConfig,
    /// The settings of the API server, if there are any: the server uses its TLS profile.
    pub api_server: Option<APIServer>,
    /// Problems that are not errors.
    pub warnings: Vec<String>,
}

/// Renders all pools from their manifests, as a controller with this `version` does. A built-in
/// pool without MachineConfigs is omitted.
///
/// # Errors
/// All problems of the inputs.
pub fn bootstrap(
    sources: &GenerateSources<'_>,
    streams: Option<&OSImageStream>,
    version: &str,
) -> Result<BootstrapOutput, Vec<BootstrapError>> {
    let Some(base) = sources.templates else {
        return Err(vec![BootstrapError::NoControllerConfig]);
    };
    let controller_config = base.inputs.controller_config;
    let mut errors = invalid_names(sources);
    errors.extend(conflicting_settings(sources));
    // Generated configs are generated again; in a cluster the controller would replace them.
    let mut sources = sources.clone();
    sources.machine_configs.retain(|config| !is_generated(config));
    let made = generate(&sources);
    errors.extend(made.errors.into_iter().map(BootstrapError::Generate));
    let pre_built = pre_built::pre_built_images(&sources.machine_os_configs, &sources.pools);
    let pre_built = pre_built.unwrap_or_else(|problems| {
        errors.extend(problems);
        Vec::new()
    });
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut warnings: Vec<String> =
        made.generated.iter().flat_map(|it| it.warnings.clone()).collect();
    let names: BTreeSet<String> =
        made.generated.iter().map(|made| made.machine_config.name_any()).collect();
    let (replaced, given): (Vec<&MachineConfig>, Vec<&MachineConfig>) =
        sources.machine_configs.iter().partition(|config| names.contains(&config.name_any()));
    warnings.extend(replaced.iter().map(|config| {
        format!(
            "MachineConfig {}: replaced by a generated MachineConfig of the same name; rename yours",
            config.name_any()
        )
    }));
    let generated = made.generated.iter().map(|made| &made.machine_config);
    let all: Vec<&MachineConfig> = given.into_iter().chain(generated).chain(&pre_built).collect();
    let streams = streams.filter(|_| sources.features.is_on(Feature::OsStreams));
    let system = ImageSources { controller_config: Some(controller_config), streams, worker: None }
        .with_worker_pool(sources.pools.iter().copied());
    let (mut pools, mut rendered) = (Vec::new(), Vec::new());
    for pool in &sources.pools {
        match rendered_pool(pool, &all, system, version, &mut warnings) {
            Ok((pool, config)) => {
                pools.push(pool);
                rendered.push(config);
            }
            Err(RenderError::NothingSelected { .. }) if pools::is_built_in(pool) => {}
            Err(error) => {
                errors.push(BootstrapError::Render {
                    pool: pool.name_any(),
                    error: error.to_string(),
                });
            }
        }
    }
    if errors.is_empty() && pools.is_empty() {
        errors.push(BootstrapError::NoPools);
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    warnings.sort();
    warnings.dedup();
    Ok(BootstrapOutput {
        pools,
        rendered,
        controller_config: without_server_fields(controller_config),
        api_server: base.inputs.api_server.map(without_server_fields),
        warnings,
    })
}

fn rendered_pool(
    pool: &MachineConfigPool,
    all: &[&MachineConfig],
    system: ImageSources<'_>,
    version: &str,
    warnings: &mut Vec<String>,
) -> Result<(MachineConfigPool, MachineConfig), RenderError> {
    let mut pool = without_server_fields(pool);
    let rendered = render(&pool, all.iter().copied(), system)?;
    for (machine_config, report) in &rendered.warnings {
        let entries = report.entries.iter();
        warnings.extend(
            entries.map(|entry| format!("MachineConfig {machine_config}: spec.config: {entry}")),
        );
    }
    let source = rendered.sources.iter().map(|source| reference(source.name())).collect();
    let configuration = PoolConfiguration {
        name: Some(rendered.name.clone()),
        source: Some(source),
        ..PoolConfiguration::default()
    };
    let object = rendered.into_object(&pool, system.controller_config, version)?;
    let size = serde_json::to_vec(&object).map(|bytes| bytes.len()).unwrap_or_default();
    if size > MAX_RENDERED_BYTES / 5 * 4 {
        let name = object.name_any();
        warnings.push(format!("MachineConfig {name}: its size of {size} bytes is close to the limit of {MAX_RENDERED_BYTES}"));
    }
    pool.spec.configuration = Some(configuration.clone());
    // New machines start with this config, so it is also the current one.
    pool.status.get_or_insert_default().configuration = Some(configuration);
    Ok((pool, object))
}

/// An object without the fields that an API server added.
fn without_server_fields<K: Resource + Clone>(object: &K) -> K {
    let mut object = object.clone();
    let meta = object.meta_mut();
    *meta = ObjectMeta {
        name: meta.name.take(),
        labels: meta.labels.take(),
        annotations: meta.annotations.take(),
        ..ObjectMeta::default()
    };
    object
}

fn reference(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(MachineConfig::api_version(&()).into_owned()),
        kind: Some(MachineConfig::kind(&()).into_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// Names become file names.
fn invalid_names(sources: &GenerateSources<'_>) -> Vec<BootstrapError> {
    let names = sources.pools.iter().map(|pool| pool.name_any());
    let wrong = names.filter(|name| !layout::is_object_name(name));
    wrong.map(BootstrapError::InvalidPoolName).collect()
}

/// Of several settings objects for a pool the youngest applies; before they are created, none is.
fn conflicting_settings(sources: &GenerateSources<'_>) -> Vec<BootstrapError> {
    let kubelets = sources.kubelet_configs.iter().map(|config: &&KubeletConfig| NamedSource {
        metadata: &config.metadata,
        selector: config.spec.machine_config_pool_selector.as_ref(),
    });
    let runtimes = sources.container_runtime_configs.iter();
    let runtimes = runtimes.map(|config: &&ContainerRuntimeConfig| NamedSource {
        metadata: &config.metadata,
        selector: config.spec.machine_config_pool_selector.as_ref(),
    });
    let mut errors = conflicting_settings_of(&kubelet::KUBELET_NAMING, kubelets, sources);
    errors.extend(conflicting_settings_of(
        &container_runtime::crio_settings::CONTAINER_RUNTIME_NAMING,
        runtimes,
        sources,
    ));
    errors
}

fn conflicting_settings_of<'a>(
    family: &ConfigNaming,
    members: impl Iterator<Item = NamedSource<'a>>,
    sources: &GenerateSources<'_>,
) -> Vec<BootstrapError> {
    let mut by_pool: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for member in members {
        // The generator reports invalid selectors.
        for pool in family.pools(&member, &sources.pools).unwrap_or_default() {
            let names = by_pool.entry(pool.name_any()).or_default();
            names.push(member.metadata.name.clone().unwrap_or_default());
        }
    }
    let too_many = by_pool.into_iter().filter(|(_, names)| names.len() > 1);
    too_many
        .map(|(pool, names)| BootstrapError::MultipleSettings { kind: family.kind, pool, names })
        .collect()
}

#[cfg(test)]
mod tests;
