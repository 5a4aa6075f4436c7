//! Assembles the response: a pool's Ignition config with everything that the server adds, in the
//! requested version.

use super::enrol::{self, SealingConfig};
use super::error::ServeError;
use super::first_boot::FirstBootConfig;
use super::{files, manifest, seal};
use crate::api::names::{annotation, path};
use crate::api::{ControllerConfig, MachineConfig};
use crate::go::escape::escape_html;
use crate::ignition::convert::from_current;
use crate::ignition::etcd_index::substitute_index;
use crate::ignition::unpacked_size::check_unpacked_sizes;
use crate::ignition::{Config, IgnitionVersion, parse_and_upgrade};
use serde_json::Value;

/// Where the server gets its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServeMode {
    /// From the API server.
    Cluster,
    /// From a directory, before there is an API server.
    Bootstrap,
}

/// The inputs of a response.
#[derive(Clone, Copy)]
pub struct ServeInputs<'a> {
    /// The rendered config.
    pub machine_config: &'a MachineConfig,
    /// The CA certificates for machines; nothing is added without it.
    pub controller_config: Option<&'a ControllerConfig>,
    /// The machine's kubeconfig.
    pub kubeconfig: &'a [u8],
    /// The image that was built for the pool.
    pub image: Option<&'a str>,
    /// Certificates for image registries, by the registry's name.
    pub certificates: &'a [(String, Vec<u8>)],
    /// Where the server gets its objects.
    pub mode: ServeMode,
    /// How the response is split, if it is.
    pub sealing: Option<&'a SealingConfig>,
    /// How the machine completes its first boot, if the server provides the binary.
    pub first_boot: Option<&'a FirstBootConfig>,
}

impl std::fmt::Debug for ServeInputs<'_> {
    /// Only names: the rest may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServeInputs")
            .field("machine_config", &self.machine_config.metadata.name)
            .field("image", &self.image)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// What a client requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigRequest {
    /// The version of the Ignition specification.
    pub version: IgnitionVersion,
    /// The index of the machine's etcd member.
    pub etcd_index: Option<u16>,
    /// Which half of the config.
    pub half: ConfigHalf,
}

/// A half of a config. A config that is not split consists of the public half only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConfigHalf {
    /// For everyone.
    #[default]
    Public,
    /// For enrolled machines.
    Sealed,
}

/// Assembles the response.
///
/// # Errors
/// The config cannot be parsed, or cannot be expressed in the requested version.
pub fn assemble(inputs: &ServeInputs<'_>, request: &ConfigRequest) -> Result<Vec<u8>, ServeError> {
    let raw = inputs.machine_config.spec.config.as_ref().unwrap_or(&Value::Null);
    let (mut config, _) = parse_and_upgrade(raw)?;
    // No controller of this version renders such a config, but an older one, or a person, may have.
    check_unpacked_sizes(&config)?;
    let mut machine_config = inputs.machine_config.clone();
    if let Some(index) = request.etcd_index {
        substitute_index(&mut config, index);
        // Later configs have the variable again: the daemon replaces it.
        files::add_file(&mut config, path::ETCD_INDEX, format!("{index}\n").as_bytes());
    }
    move_kernel_arguments(&mut config, &mut machine_config, &request.version)?;
    if let Some(controller_config) = inputs.controller_config {
        files::add_ca_bundles(&mut config, controller_config);
    }
    let name = machine_config.metadata.name.clone().unwrap_or_default();
    let pre_built = pre_built_image(inputs.machine_config);
    let annotations = files::node_annotations(&name, pre_built.or(inputs.image));
    files::add_file(&mut config, path::NODE_ANNOTATIONS, &annotations);
    if let Some(image) = inputs.image {
        machine_config.spec.os_image_url = Some(image.to_owned());
        // The digest belongs to the image that was just replaced.
        if let Some(annotations) = &mut machine_config.metadata.annotations {
            annotations.remove(annotation::machinist::OS_IMAGE_PINNED);
        }
    }
    files::add_file(&mut config, path::KUBECONFIG, inputs.kubeconfig);
    files::add_file(
        &mut config,
        path::SERVED_CONFIG,
        &manifest::dump(&machine_config, inputs.mode)?,
    );
    for (registry, certificate) in inputs.certificates {
        files::add_file(&mut config, &files::registry_certificate_path(registry), certificate);
    }
    let inner = match inputs.mode {
        ServeMode::Cluster => &request.version,
        ServeMode::Bootstrap => &IgnitionVersion::MAX,
    };
    let encapsulated = manifest::encapsulated(&machine_config, inner, inputs.mode)?;
    files::add_file(&mut config, path::ENCAPSULATED, &encapsulated);
    if let Some(first_boot) = inputs.first_boot {
        super::first_boot::add_first_boot(&mut config, first_boot);
    }
    let config = match inputs.sealing {
        Some(sealing) => select_half(config, sealing, request)?,
        None => config,
    };
    let converted = from_current(&config, &request.version)?;
    Ok(escape_html(serde_json::to_vec(&converted)?))
}

fn select_half(
    config: Config,
    sealing: &SealingConfig,
    request: &ConfigRequest,
) -> Result<Config, ServeError> {
    let halves = seal::split(config, &sealing.paths)?;
    if request.half == ConfigHalf::Sealed {
        return Ok(halves.sealed);
    }
    let mut public = halves.public;
    enrol::add_enrolment(&mut public, sealing, request.etcd_index);
    Ok(public)
}

fn pre_built_image(config: &MachineConfig) -> Option<&str> {
    let annotations = config.metadata.annotations.as_ref()?;
    annotations.get(annotation::PRE_BUILT_IMAGE).map(String::as_str).filter(|it| !it.is_empty())
}

/// Ignition before 3.3 has no kernel arguments. The daemon sets them instead, like those of the
/// MachineConfig.
fn move_kernel_arguments(
    config: &mut Config,
    machine_config: &mut MachineConfig,
    version: &IgnitionVersion,
) -> Result<(), ServeError> {
    if (version.major, version.minor) >= (3, 3) {
        return Ok(());
    }
    let arguments = std::mem::take(&mut config.kernel_arguments);
    if !arguments.should_not_exist.is_empty() {
        return Err(ServeError::KernelArgumentsUnsupported(version.clone()));
    }
    if !arguments.should_exist.is_empty() {
        let known = machine_config.spec.kernel_arguments.get_or_insert_default();
        known.extend(arguments.should_exist.iter().cloned());
    }
    Ok(())
}
