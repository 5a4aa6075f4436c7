//! Why a pool cannot be rendered.

use crate::api::selector::SelectorError;
use crate::ignition::IgnitionError;

use super::go_yaml::Refusal;

/// Why a pool cannot be rendered. Every variant that is about a MachineConfig names it.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The pool's selector is not one.
    #[error("MachineConfigPool {pool}: spec.machineConfigSelector: {source}")]
    Selector {
        /// The pool.
        pool: String,
        /// What is wrong with it.
        source: SelectorError,
    },
    /// The pool selects everything or nothing by leaving its selector empty.
    #[error(
        "MachineConfigPool {pool}: spec.machineConfigSelector is empty: a non-empty selector is required, for example matchLabels with machineconfiguration.openshift.io/role: {pool}"
    )]
    EmptySelector {
        /// The pool.
        pool: String,
    },
    /// Nothing is selected.
    #[error(
        "couldn't find any MachineConfigs for pool: {pool} (none of the {given} given has labels that spec.machineConfigSelector matches)"
    )]
    NothingSelected {
        /// The pool.
        pool: String,
        /// How many MachineConfigs there are in all.
        given: usize,
    },
    /// A MachineConfig has no labels at all.
    #[error("cannot find label in MachineConfig {machine_config}")]
    NoLabels {
        /// The MachineConfig.
        machine_config: String,
    },
    /// A MachineConfig is not valid.
    #[error("MachineConfig {machine_config}: {source}")]
    Invalid {
        /// The MachineConfig.
        machine_config: String,
        /// What is wrong with it.
        source: Problem,
    },
    /// An extension that only works with the default kernel.
    #[error(
        "installing kernel-devel extension is not supported with kernelType: {kernel_type} (extension from MachineConfig {extension_from}, kernel from MachineConfig {kernel_from})"
    )]
    KernelDevel {
        /// The kernel type.
        kernel_type: String,
        /// Who asks for the extension.
        extension_from: String,
        /// Who asks for the kernel.
        kernel_from: String,
    },
    /// Two ways to choose the OS image at once.
    #[error(
        "cannot override MachineConfig osImageURL and set MachineConfigPool spec.osImageStream.name simultaneously (osImageURL from MachineConfig {machine_config}; remove one of the two)"
    )]
    ImageAndStream {
        /// Who sets the image.
        machine_config: String,
    },
    /// A character that no rendered config can hold: the hash is made over YAML, and the real
    /// system's YAML reader refuses it.
    #[error("the rendered config cannot be written: {refusal} (remove it from the MachineConfigs)")]
    Unwritable {
        /// What it holds.
        refusal: Refusal,
    },
    /// The result is larger than the API can store.
    #[error(
        "rendered MachineConfig {name} is too large ({size} bytes, max {max} bytes). This will exceed etcd's size limit. Consider reducing the number or size of MachineConfigs, particularly large registry mirror configurations (ImageDigestMirrorSet/ImageContentSourcePolicy)"
    )]
    TooLarge {
        /// The name it would have.
        name: String,
        /// Its size.
        size: usize,
        /// The largest size.
        max: usize,
    },
}

/// What is wrong with one MachineConfig.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A kernel that is not known.
    #[error("spec.kernelType: kernelType={0} is invalid (use default, realtime or 64k-pages)")]
    KernelType(String),
    /// Extensions that are not known.
    #[error("spec.extensions: invalid extensions found: [{}] (known: {})", .0.join(" "), super::check::EXTENSIONS.join(", "))]
    Extensions(Vec<String>),
    /// A file mode with more than permissions.
    #[error("spec.config: invalid mode {mode:#o} for {path}, cannot exceed 0o777")]
    Mode {
        /// The mode.
        mode: i64,
        /// The file.
        path: String,
    },
    /// The Ignition config is not valid.
    #[error("spec.config: failed to parse Ignition config: {0}")]
    Ignition(#[from] IgnitionError),
}
