//! Parses a config from JSON: finds the version, decodes what that version knows, validates it by
//! the rules of that version, and upgrades it to the internal version 3.5.0.

use serde_json::Value;

use super::config_part::{ConfigDecoder, ConfigPart, shape};
use super::report::{ConfigPath, IgnitionReport};
use super::schema::{Config, Resource};
use super::v2;
use super::validate::validate;
use super::version::IgnitionVersion;

/// The supported versions, as error texts list them.
pub const SUPPORTED_VERSIONS: &str = "2.2,3.0,3.1,3.2,3.3,3.4,3.5";

/// A parsed config; a specification 2 config is not upgraded to 3 yet.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedConfig {
    /// A specification 3 config, upgraded to 3.5.0.
    V3(Box<Config>),
    /// A specification 2 config, upgraded to 2.2.0.
    V2(Box<v2::Config>),
}

/// Why a config cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IgnitionError {
    /// The version is missing or malformed.
    #[error(
        "parsing Ignition config failed: invalid version. Supported spec versions: {SUPPORTED_VERSIONS}"
    )]
    InvalidVersion,
    /// The version is not supported.
    #[error(
        "parsing Ignition config failed: unknown version. Supported spec versions: {SUPPORTED_VERSIONS}"
    )]
    UnknownVersion {
        /// The version.
        version: Box<IgnitionVersion>,
    },
    /// Ignition refuses the config.
    #[error(
        "parsing Ignition config spec v3 failed with error: config is not valid\nReport: {report}"
    )]
    Invalid {
        /// The findings.
        report: IgnitionReport,
    },
    /// Ignition refuses the specification 2 config.
    #[error("parsing Ignition spec v2 failed with error: config is not valid\nReport: {report}")]
    InvalidV2 {
        /// The findings.
        report: IgnitionReport,
    },
    /// A specification 2 config that has no equivalent in specification 3.
    #[error(transparent)]
    Upgrade(#[from] v2::UpgradeError),
}

impl IgnitionError {
    /// The findings of the error, if it has any.
    #[must_use]
    pub fn report(&self) -> Option<&IgnitionReport> {
        match self {
            Self::Invalid { report } | Self::InvalidV2 { report } => Some(report),
            Self::InvalidVersion | Self::UnknownVersion { .. } | Self::Upgrade(_) => None,
        }
    }
}

shape! {
    /// The part of a config that holds its version.
    Stub, merge by_field {
        /// The `ignition` section.
        ignition: StubIgnition = "ignition";
    }
}

shape! {
    /// The part of the `ignition` section that holds the version.
    StubIgnition, merge by_field {
        /// The version.
        version: String = "version";
    }
}

/// The version that a config declares.
pub fn version_of(raw: &Value) -> Result<IgnitionVersion, IgnitionError> {
    let mut cx = ConfigDecoder::new(0);
    let mut stub = Stub::default();
    stub.decode(raw, &mut cx);
    if cx.report.is_fatal() {
        cx.report.entries.retain(|entry| entry.severity == super::report::ReportSeverity::Error);
        return Err(IgnitionError::Invalid { report: cx.report });
    }
    IgnitionVersion::parse(&stub.ignition.version).ok_or(IgnitionError::InvalidVersion)
}

/// Parses a config of any supported version. The report holds the warnings.
pub fn parse(raw: &Value) -> Result<(ParsedConfig, IgnitionReport), IgnitionError> {
    let version = version_of(raw)?;
    if let Some(minor) = version.published_minor(3, 5) {
        let (config, report) = parse_v3(raw, minor)?;
        return Ok((ParsedConfig::V3(Box::new(config)), report));
    }
    if let Some(minor) = version.published_minor(2, 2) {
        let (config, report) =
            v2::parse(raw, minor).map_err(|report| IgnitionError::InvalidV2 { report })?;
        return Ok((ParsedConfig::V2(Box::new(config)), report));
    }
    Err(IgnitionError::UnknownVersion { version: Box::new(version) })
}

/// Parses a config of any supported version and upgrades it to 3.5.0. Duplicates in a specification
/// 2 config are removed. The report holds the warnings.
pub fn parse_and_upgrade(raw: &Value) -> Result<(Config, IgnitionReport), IgnitionError> {
    let (parsed, report) = parse(raw)?;
    Ok((upgrade(parsed)?, report))
}

/// Upgrades a parsed config to 3.5.0.
pub fn upgrade(parsed: ParsedConfig) -> Result<Config, IgnitionError> {
    match parsed {
        ParsedConfig::V3(config) => Ok(*config),
        ParsedConfig::V2(config) => Ok(v2::to_v3(&v2::remove_duplicates(*config)?)?),
    }
}

fn parse_v3(raw: &Value, minor: u8) -> Result<(Config, IgnitionReport), IgnitionError> {
    let mut cx = ConfigDecoder::new(minor);
    let mut config = Config::default();
    config.decode(raw, &mut cx);
    if minor == 0 {
        drop_compression_of_references(&mut config);
    }
    let mut report = validate(&config, minor);
    // A value that could not be decoded must not also be reported as missing.
    report.entries.retain(|found| !cx.report.errors().any(|unread| unread.path == found.path));
    report.merge(cx.report);
    if report.is_fatal() {
        return Err(IgnitionError::Invalid { report });
    }
    lift_version(&mut config, minor);
    Ok((config, report))
}

/// In 3.0 only file contents could be compressed.
fn drop_compression_of_references(config: &mut Config) {
    let ignition = &mut config.ignition;
    let references: Vec<&mut Resource> = ignition
        .config
        .merge
        .iter_mut()
        .chain(ignition.security.tls.certificate_authorities.iter_mut())
        .chain([&mut ignition.config.replace])
        .collect();
    for reference in references {
        reference.compression = None;
    }
}

/// What Ignition's translators between the minor versions change besides the version.
fn lift_version(config: &mut Config, from: u8) {
    if from == 5 {
        return;
    }
    config.ignition.version = IgnitionVersion::MAX.to_string();
    for luks in config.storage.luks.iter_mut() {
        for tang in luks.clevis.tang.iter_mut() {
            tang.advertisement = None; // lost between 3.4 and 3.5, as in Ignition's translator
        }
        let custom = &mut luks.clevis.custom;
        if from <= 2 && !custom.is_zero() {
            custom.pin.get_or_insert_default();
            custom.config.get_or_insert_default();
        }
    }
    if from <= 2 {
        // Plain strings in the old version, optional ones in the new.
        for link in config.storage.links.iter_mut() {
            link.target.get_or_insert_default();
        }
        for raid in config.storage.raid.iter_mut() {
            raid.level.get_or_insert_default();
        }
    }
}

/// An empty config.
#[must_use]
pub fn empty_config() -> Config {
    let mut config = Config::default();
    config.ignition.version = IgnitionVersion::MAX.to_string();
    config
}

/// Merges configs of the internal version; later ones win.
#[must_use]
pub fn merge(configs: Vec<Config>) -> Config {
    Config::merge_all(configs)
}
