//! MachineConfigs that are made out of something easier to write.
//!
//! A generator is a pure function from objects and pools to [`Generated`] MachineConfigs: image
//! mirrors and policies, container runtime settings, kubelet settings, templates. The controller
//! writes what they return; `machinist generate` shows it.

mod error;
mod file;
mod from_templates;
mod generators;
pub mod legacy_names;
pub mod naming;
pub mod overridden;
pub mod reconcile;
pub mod status;

pub use error::GenerateError;
pub use file::{GeneratedFile, decoded_files, machine_config};
pub use generators::{GENERATORS, GenerateOutput, GenerateSources, Generator, generate};

pub use from_templates::{missing_base_error, template_error};

use serde::Serialize;

use crate::api::MachineConfig;

/// One generated MachineConfig and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GeneratedConfig {
    /// The MachineConfig, as it is to be written.
    pub machine_config: MachineConfig,
    /// The objects it comes from, each as `Kind name`.
    pub from: Vec<String>,
    /// What is odd but no error: entries left out, settings without effect.
    pub warnings: Vec<String>,
}
