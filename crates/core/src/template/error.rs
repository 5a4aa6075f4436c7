//! Errors of templates.

/// Why templates could not be turned into MachineConfigs. Messages name the file. They never quote
/// rendered output, which may contain secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A required directory is missing.
    #[error("templates: directory {0:?} does not exist (create it, or name another directory)")]
    NoDirectory(String),
    /// A file is in the place of a directory.
    #[error("expected template directory, {0:?} is not a directory")]
    NotADirectory(String),
    /// A template is not UTF-8 text.
    #[error("template {0}: the file is not UTF-8 text")]
    NotText(String),
    /// The ControllerConfig does not name the platform.
    #[error(
        "cannot generate MachineConfigs when no platformStatus.type is set (ControllerConfig, \
         spec.infra.status.platformStatus.type)"
    )]
    NoPlatform,
    /// The platform is named like the directory for all platforms.
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
    /// A template cannot be parsed.
    #[error("failed to parse template {file}: {message}")]
    Parse {
        /// The template.
        file: String,
        /// What is wrong.
        message: String,
    },
    /// A template cannot be rendered.
    #[error("failed to execute template {file}: {message}")]
    Execute {
        /// The template.
        file: String,
        /// What is wrong.
        message: String,
    },
    /// The output of a template is not a file or unit.
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
