//! Why bootstrap manifests cannot be rendered.

use crate::api::names::object;
use crate::generated_config::GenerateError;

/// Why bootstrap manifests cannot be rendered: the object, the field, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    /// The facts for the templates are missing.
    #[error(
        "ControllerConfig {} is missing: the templates cannot be rendered without it; add its manifest",
        object::CONTROLLER_CONFIG
    )]
    NoControllerConfig,
    /// No pool is left.
    #[error(
        "no MachineConfigPool has any MachineConfig: the templates define none for the roles master and worker; add MachineConfigs, or use other templates"
    )]
    NoPools,
    /// A pool with an invalid name.
    #[error(
        "MachineConfigPool {0:?}: metadata.name: invalid (use lower case letters, digits, '-' and '.', beginning and ending with a letter or digit)"
    )]
    InvalidPoolName(String),
    /// A pool is declared twice, and neither declaration is the built-in one.
    #[error("MachineConfigPool {name} is declared twice: in {first} and in {second}; remove one")]
    DuplicatePool {
        /// The pool.
        name: String,
        /// The first file.
        first: String,
        /// The second file.
        second: String,
    },
    /// More than one settings object for a pool.
    #[error(
        "{kind} {}: spec.machineConfigPoolSelector: all of them select MachineConfigPool {pool}; the youngest one would apply, but before they are created they have no age; keep one, or create the others once the cluster exists",
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
    /// A MachineOSConfig whose image cannot be used.
    #[error("MachineOSConfig {name}: {field}: {message} ({remedy})")]
    MachineOsConfig {
        /// Its name.
        name: String,
        /// The field.
        field: String,
        /// What is wrong.
        message: String,
        /// What to do.
        remedy: &'static str,
    },
    /// An object from which nothing can be generated.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// A pool that cannot be rendered.
    #[error("MachineConfigPool {pool}: {error}")]
    Render {
        /// The pool.
        pool: String,
        /// The reason.
        error: String,
    },
}
