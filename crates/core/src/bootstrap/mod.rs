//! The first control plane: what its machines get before there is an API to ask.
//!
//! ```text
//! manifests + templates ─ generate ─► MachineConfigs ─ render ─► pools and rendered configs ─ layout ─► files
//! ```
//!
//! The generators and the renderer are those of the controller, so the names are the ones that it
//! gives once the cluster is there: a machine that boots with the one finds the other.

mod error;
mod layout;
mod pools;
mod pull_secret;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt as _};

pub use error::BootstrapError;
pub use layout::{BootstrapFile, DIRECTORIES, files};
pub use pools::{DeclaredPool, built_in_pool, choose_pools};
pub use pull_secret::{PullSecretError, pull_secret};

use crate::api::config::APIServer;
use crate::api::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfig, MachineConfigPool,
    OSImageStream, PoolConfiguration,
};
use crate::generate::{GenerateSources, generate};
use crate::generated_config::naming::{ConfigNaming, NamedSource};
use crate::generated_config::reconcile::is_generated;
use crate::render::{ImageSources, MAX_RENDERED_BYTES, RenderError, render};
use crate::{container_runtime, kubelet};

/// Everything that a first control plane starts from.
#[derive(Debug, Clone, PartialEq)]
pub struct BootstrapOutput {
    /// The pools, each pointing at its rendered config.
    pub pools: Vec<MachineConfigPool>,
    /// The rendered configs.
    pub rendered: Vec<MachineConfig>,
    /// The facts that they were made with.
    pub controller_config: ControllerConfig,
    /// The settings of the API server, where there are any: its TLS profile is the server's.
    pub api_server: Option<APIServer>,
    /// What is odd but no error.
    pub warnings: Vec<String>,
}

/// Renders all pools from what they are declared with, as the controller named by `version` does.
/// A pool that comes with every system and that nothing was declared for is left out.
///
/// # Errors
/// All that is wrong with the inputs.
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
    // What generators made once they make anew; in a cluster it would be replaced.
    let mut sources = sources.clone();
    sources.machine_configs.retain(|config| !is_generated(config));
    let made = generate(&sources);
    errors.extend(made.errors.into_iter().map(BootstrapError::Generate));
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
            "MachineConfig {}: what is generated under this name takes its place; give yours another",
            config.name_any()
        )
    }));
    let all: Vec<&MachineConfig> =
        given.into_iter().chain(made.generated.iter().map(|made| &made.machine_config)).collect();
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
        warnings.push(format!("{name} has {size} of at most {MAX_RENDERED_BYTES} bytes"));
    }
    pool.spec.configuration = Some(configuration.clone());
    // Nobody has anything else yet: the machines that are about to come will have this.
    pool.status.get_or_insert_default().configuration = Some(configuration);
    Ok((pool, object))
}

/// An object as somebody writes it: without what a cluster that it may come from put into it.
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

/// Names become the names of files.
fn invalid_names(sources: &GenerateSources<'_>) -> Vec<BootstrapError> {
    let names = sources.pools.iter().map(|pool| pool.name_any());
    let wrong = names.filter(|name| !layout::is_object_name(name));
    wrong.map(BootstrapError::InvalidPoolName).collect()
}

/// Of several settings objects for a pool the youngest counts; before they are created, none is.
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
        // A selector that is wrong is told by the generator.
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
