//! The answer itself: the Ignition config of a pool with everything that the server adds, in the version asked for.

use super::enrol::{self, SealingConfig};
use super::error::ServeError;
use super::first_boot::FirstBootConfig;
use super::{etcd_index, files, manifest, seal};
use crate::api::names::{annotation, path};
use crate::api::{ControllerConfig, MachineConfig};
use crate::go::escape::escape_html;
use crate::ignition::convert::from_current;
use crate::ignition::{Config, IgnitionVersion, parse_and_upgrade};
use serde_json::Value;

/// Where the answer is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServeMode {
    /// Out of the API.
    Cluster,
    /// Out of a folder, while there is no API yet.
    Bootstrap,
}

/// What an answer is made of.
#[derive(Clone, Copy)]
pub struct ServeInputs<'a> {
    /// The rendered config.
    pub machine_config: &'a MachineConfig,
    /// Whom machines trust; a home without one adds nothing.
    pub controller_config: Option<&'a ControllerConfig>,
    /// How a machine reaches the API.
    pub kubeconfig: &'a [u8],
    /// The image that was built for the pool.
    pub image: Option<&'a str>,
    /// Certificates for image registries, by the registry's name.
    pub certificates: &'a [(String, Vec<u8>)],
    /// Where the answer is given.
    pub mode: ServeMode,
    /// How the answer is split, if it is.
    pub sealing: Option<&'a SealingConfig>,
    /// How the machine completes its first boot, if the server has a say in it.
    pub first_boot: Option<&'a FirstBootConfig>,
}

impl std::fmt::Debug for ServeInputs<'_> {
    /// Names alone: the rest is not for logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inputs")
            .field("machine_config", &self.machine_config.metadata.name)
            .field("image", &self.image)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// What a client asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigRequest {
    /// The version of the Ignition specification.
    pub version: IgnitionVersion,
    /// The index of the etcd member that the machine is to be.
    pub etcd_index: Option<u16>,
    /// Which part.
    pub half: ConfigHalf,
}

/// Which part of a config. Without a split there is only the open one, and it is everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConfigHalf {
    /// What everyone gets.
    #[default]
    Public,
    /// What a machine gets that is known.
    Sealed,
}

/// Makes the answer.
///
/// # Errors
/// The config cannot be read, or cannot be said in that version.
pub fn assemble(inputs: &ServeInputs<'_>, asked: &ConfigRequest) -> Result<Vec<u8>, ServeError> {
    let raw = inputs.machine_config.spec.config.as_ref().unwrap_or(&Value::Null);
    let (mut config, _) = parse_and_upgrade(raw)?;
    let mut machine_config = inputs.machine_config.clone();
    if let Some(index) = asked.etcd_index {
        etcd_index::substitute_index(&mut config, index);
    }
    move_kernel_arguments(&mut config, &mut machine_config, &asked.version)?;
    if let Some(controller_config) = inputs.controller_config {
        files::add_ca_bundles(&mut config, controller_config);
    }
    let name = machine_config.metadata.name.clone().unwrap_or_default();
    let pre_built = pre_built_image(inputs.machine_config);
    let annotations = files::node_annotations(&name, pre_built.or(inputs.image));
    files::add_file(&mut config, path::NODE_ANNOTATIONS, &annotations);
    if let Some(image) = inputs.image {
        machine_config.spec.os_image_url = Some(image.to_owned());
        // What the tag of the other image meant counts no more.
        if let Some(annotations) = &mut machine_config.metadata.annotations {
            annotations.remove(annotation::machinist::OS_IMAGE_PINNED);
        }
    }
    files::add_file(&mut config, path::KUBECONFIG, inputs.kubeconfig);
    files::add_file(&mut config, path::SERVED_CONFIG, &manifest::dump(&machine_config)?);
    for (registry, certificate) in inputs.certificates {
        files::add_file(&mut config, &files::registry_certificate_path(registry), certificate);
    }
    let inner = match inputs.mode {
        ServeMode::Cluster => &asked.version,
        ServeMode::Bootstrap => &IgnitionVersion::MAX,
    };
    let encapsulated = manifest::encapsulated(&machine_config, inner)?;
    files::add_file(&mut config, path::ENCAPSULATED, &encapsulated);
    if let Some(first_boot) = inputs.first_boot {
        super::first_boot::add_first_boot(&mut config, first_boot);
    }
    let config = match inputs.sealing {
        Some(sealing) => select_half(config, sealing, asked)?,
        None => config,
    };
    let converted = from_current(&config, &asked.version)?;
    Ok(escape_html(serde_json::to_vec(&converted)?))
}

fn select_half(
    config: Config,
    sealing: &SealingConfig,
    asked: &ConfigRequest,
) -> Result<Config, ServeError> {
    let halves = seal::split(config, &sealing.paths)?;
    if asked.half == ConfigHalf::Sealed {
        return Ok(halves.sealed);
    }
    let mut public = halves.public;
    enrol::add_enrolment(&mut public, sealing, asked.etcd_index);
    Ok(public)
}

fn pre_built_image(config: &MachineConfig) -> Option<&str> {
    let annotations = config.metadata.annotations.as_ref()?;
    annotations.get(annotation::PRE_BUILT_IMAGE).map(String::as_str).filter(|it| !it.is_empty())
}

/// Before 3.3 Ignition knows no kernel arguments: the daemon sets them then, as it does those of the MachineConfig.
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
