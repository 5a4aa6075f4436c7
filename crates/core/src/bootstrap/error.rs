//! Why a first control plane cannot be started.

use crate::api::names::object;
use crate::generated_config::GenerateError;

/// Why a first control plane cannot be started: which object, where in it, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    /// There are no facts to fill the templates in with.
    #[error(
        "ControllerConfig {} is not among the manifests: templates cannot be filled in without it; add its manifest",
        object::CONTROLLER_CONFIG
    )]
    NoControllerConfig,
    /// No pool is left.
    #[error(
        "no MachineConfigPool has any MachineConfig: the templates make none for the roles master and worker; add MachineConfigs, or use other templates"
    )]
    NoPools,
    /// A pool whose name no object can have.
    #[error(
        "MachineConfigPool {0:?}: metadata.name: not a name (use lower case letters, digits, '-' and '.', beginning and ending with a letter or digit)"
    )]
    InvalidPoolName(String),
    /// The same pool twice, and neither comes with every system.
    #[error("MachineConfigPool {name} is given twice: in {first} and in {second}; remove one")]
    DuplicatePool {
        /// The pool.
        name: String,
        /// Where it is.
        first: String,
        /// Where it is once more.
        second: String,
    },
    /// More than one settings object for a pool.
    #[error(
        "{kind} {}: spec.machineConfigPoolSelector: all of them are for MachineConfigPool {pool}, and which one counts is decided by their age, which they do not have yet; keep one, or create the others once the cluster is there",
        names.join(", ")
    )]
    MultipleSettings {
        /// Their kind.
        kind: &'static str,
        /// The pool.
        pool: String,
        /// Their names.
        names: Vec<String>,
    },
    /// An object that nothing can be generated from.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// A pool that cannot be rendered.
    #[error("MachineConfigPool {pool}: {error}")]
    Render {
        /// The pool.
        pool: String,
        /// Why.
        error: String,
    },
}
