//! Whether one MachineConfig is valid on its own.
//!
//! `render` refuses a pool with an invalid MachineConfig, `lint` reports it to its author, and
//! `reconcile_check` repeats the checks before a machine applies a config.

use crate::api::MachineConfigSpec;
use crate::ignition::path_limits::{PathTooLong, check_path_lengths};
use crate::ignition::unpacked_size::{UnpackedTooLarge, check_unpacked_sizes};
use crate::ignition::{self, Config, IgnitionError, IgnitionReport, ParsedConfig};
use crate::own_files::{OwnFileProblem, check_own_files, check_own_kernel_arguments};

/// The extensions that MCO knows.
pub const KNOWN_EXTENSIONS: [&str; 7] = [
    "ipsec",
    "kerberos",
    "kernel-devel",
    "sandboxed-containers",
    "sysstat",
    "two-node-ha",
    "usbguard",
];

/// The kernel types other than the default.
pub const SPECIAL_KERNELS: [&str; 2] = ["realtime", "64k-pages"];

/// Why one MachineConfig is invalid.
#[derive(Debug, thiserror::Error)]
pub enum MachineConfigProblem {
    /// An unknown kernel type.
    #[error("spec.kernelType: kernelType={0} is invalid (use default, realtime or 64k-pages)")]
    UnknownKernelType(String),
    /// Unknown extensions.
    #[error("spec.extensions: invalid extensions found: [{}] (known: {})", .0.join(" "), KNOWN_EXTENSIONS.join(", "))]
    UnknownExtensions(Vec<String>),
    /// A file mode with more than permission bits.
    #[error("spec.config: invalid mode {mode:#o} for {path}, cannot exceed 0o777")]
    UnsupportedMode {
        /// The mode.
        mode: i64,
        /// The file.
        path: String,
    },
    /// The contents of files exceed a limit.
    #[error("spec.config: {0}")]
    UnpackedTooLarge(#[from] UnpackedTooLarge),
    /// It would change Machinist itself.
    #[error("spec.config: {0}")]
    OwnFile(#[from] OwnFileProblem),
    /// A kernel argument would mask Machinist itself.
    #[error("spec.kernelArguments: {0}")]
    OwnKernelArgument(OwnFileProblem),
    /// A path is longer than Linux allows.
    #[error("spec.config: {0}")]
    PathTooLong(#[from] PathTooLong),
    /// The Ignition config is not valid.
    #[error("spec.config: failed to parse Ignition config: {0}")]
    Ignition(#[from] IgnitionError),
}

/// Checks a MachineConfig and returns its Ignition config, upgraded to 3.5.0, with the warnings.
/// `None` if it has no Ignition config.
pub fn validate_spec(
    spec: &MachineConfigSpec,
) -> Result<Option<(Config, IgnitionReport)>, MachineConfigProblem> {
    let kernel = spec.kernel_type.as_deref().unwrap_or_default();
    if !matches!(kernel, "" | "default") && !SPECIAL_KERNELS.contains(&kernel) {
        return Err(MachineConfigProblem::UnknownKernelType(kernel.to_owned()));
    }
    check_kernel_arguments(spec)?;
    let Some(raw) = spec.config.as_ref().filter(|raw| !raw.is_null()) else { return Ok(None) };
    let (parsed, report) = ignition::parse(raw)?;
    check_parsed(&parsed)?;
    // MCO checks extensions only if there is an Ignition config.
    check_extensions(spec)?;
    let config = ignition::parse::upgrade(parsed)?;
    check_unpacked_sizes(&config)?;
    check_own_files(&config)?;
    check_path_lengths(&config)?;
    Ok(Some((config, report)))
}

/// Checks that the kernel arguments leave Machinist itself alone.
pub fn check_kernel_arguments(spec: &MachineConfigSpec) -> Result<(), MachineConfigProblem> {
    let arguments = spec.kernel_arguments.iter().flatten().map(String::as_str);
    check_own_kernel_arguments(arguments).map_err(MachineConfigProblem::OwnKernelArgument)
}

/// Checks that all extensions are known.
pub fn check_extensions(spec: &MachineConfigSpec) -> Result<(), MachineConfigProblem> {
    let unknown: Vec<String> = spec
        .extensions
        .iter()
        .flatten()
        .filter(|name| !KNOWN_EXTENSIONS.contains(&name.as_str()))
        .cloned()
        .collect();
    if unknown.is_empty() { Ok(()) } else { Err(MachineConfigProblem::UnknownExtensions(unknown)) }
}

fn check_parsed(parsed: &ParsedConfig) -> Result<(), MachineConfigProblem> {
    match parsed {
        ParsedConfig::V3(config) => check_modes(config),
        ParsedConfig::V2(config) => {
            let report = ignition::v2::validate(config);
            if report.is_fatal() {
                return Err(IgnitionError::InvalidV2 { report }.into());
            }
            let mut files = config.storage.files.iter();
            files.try_for_each(|file| check_mode(file.mode, &file.path))
        }
    }
}

/// Checks that file modes are permission bits only: the daemon does not set setuid, setgid or sticky.
pub fn check_modes(config: &Config) -> Result<(), MachineConfigProblem> {
    config.storage.files.iter().try_for_each(|file| check_mode(file.mode, &file.path))
}

fn check_mode(mode: Option<i64>, path: &str) -> Result<(), MachineConfigProblem> {
    match mode {
        Some(mode) if !(0..=0o777).contains(&mode) => {
            Err(MachineConfigProblem::UnsupportedMode { mode, path: path.to_owned() })
        }
        _ => Ok(()),
    }
}
