//! What every generator of MachineConfigs shares: the result, its names, its owner and its errors.
//!
//! `template`, `kubelet` and `container_runtime` return [`GeneratedConfig`]s; `generate` runs them all.
//! This module knows no generator.

mod error;
mod file;
pub mod legacy_names;
pub mod naming;
pub mod reconcile;
pub mod status;

pub use error::{GenerateError, SourceRef};
pub use file::{GeneratedFile, decoded_files, machine_config};

use serde::Serialize;

use crate::api::MachineConfig;

/// One generated MachineConfig and its sources.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GeneratedConfig {
    /// The MachineConfig to write.
    pub machine_config: MachineConfig,
    /// The objects it is generated from, each as `Kind name`.
    pub from: Vec<String>,
    /// Problems that are not errors: skipped entries, settings without effect.
    pub warnings: Vec<String>,
}
