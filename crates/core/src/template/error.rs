//! Why templates could not be turned into MachineConfigs.

/// Why templates could not be turned into MachineConfigs. Messages name the file; they hold no
/// text of it once it is filled in, for that may hold secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A folder that has to be there is not.
    #[error("templates: the folder {0:?} is not there")]
    NoDirectory(String),
    /// A file where a folder has to be.
    #[error("expected template directory, {0:?} is not a directory")]
    NotADirectory(String),
    /// A template is not text.
    #[error("template {0}: the file is not UTF-8 text")]
    NotText(String),
    /// The ControllerConfig does not say where the cluster runs.
    #[error(
        "cannot generate MachineConfigs when no platformStatus.type is set (ControllerConfig, \
         spec.infra.status.platformStatus.type)"
    )]
    NoPlatform,
    /// The platform has the name of the folder that holds for all platforms.
    #[error("platform _base unsupported")]
    BasePlatform,
    /// The pull secret is not JSON.
    #[error("couldn't compact pullsecret: it is not valid JSON at line {line}, column {column}")]
    PullSecret {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// A template cannot be read.
    #[error("failed to parse template {file}: {message}")]
    Parse {
        /// The template.
        file: String,
        /// What is wrong.
        message: String,
    },
    /// A template cannot be filled in.
    #[error("failed to execute template {file}: {message}")]
    Execute {
        /// The template.
        file: String,
        /// What is wrong.
        message: String,
    },
    /// What a template makes is no file or unit.
    #[error("template {file} does not make a {kind}: {message}")]
    Transpile {
        /// The template.
        file: String,
        /// `file` or `unit`.
        kind: &'static str,
        /// What is wrong.
        message: String,
    },
}
