//! Errors of generators.

/// Why an object could not be turned into MachineConfigs: object, field, problem and remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field}: {message} ({remedy})")]
pub struct GenerateError {
    /// The object, as `Kind name`.
    pub object: String,
    /// The field, as a path: `spec.containerRuntimeConfig.pidsLimit`.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}
