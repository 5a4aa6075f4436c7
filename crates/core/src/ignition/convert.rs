//! Converts a config from the internal version 3.5.0 to what an older machine understands, one step
//! at a time. Each step refuses what the version below cannot express:
//! `3.5 → 3.4 → 3.3 → 3.2 → 3.1`, and `3.2 → 2.2`.

use serde_json::Value;

use super::config_part::{ConfigDecoder, ConfigPart as _};
use super::parse::{IgnitionError, ParsedConfig, parse};
use super::report::IgnitionReport;
use super::schema::{Config, Resource};
use super::v2;
use super::validate::validate;
use super::version::IgnitionVersion;
use crate::go::url;

/// Why a config cannot be converted to another version.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The config cannot be read.
    #[error(transparent)]
    Parse(#[from] IgnitionError),
    /// A specification 2 config is only upgraded on request.
    #[error(
        "parsing Ignition config failed with error: unsupported config version (a spec 2 config cannot be converted directly; upgrade it to 3.5.0 first with --upgrade)"
    )]
    SourceIsV2,
    /// The conversion between these versions is not supported.
    #[error(
        "conversion for source version {from} to target version {to} is not supported the requested conversion is not supported"
    )]
    Unsupported {
        /// The version of the source.
        from: Box<IgnitionVersion>,
        /// The requested version.
        to: Box<IgnitionVersion>,
    },
    /// The config contains something that the version below cannot express.
    #[error("{0}")]
    NotInTarget(String),
    /// The config is not valid in an intermediate version.
    #[error("converted spec has unexpected fatal error in {version}:\n{report}")]
    Invalid {
        /// The intermediate version.
        version: Box<IgnitionVersion>,
        /// The findings.
        report: IgnitionReport,
    },
    /// The conversion to specification 2 failed.
    #[error(transparent)]
    Downgrade(#[from] v2::DowngradeError),
}

/// A config in the requested version.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub enum ConvertedConfig {
    /// A specification 3 config.
    V3(Box<Config>),
    /// A specification 2.2 config.
    V2(Box<v2::Config>),
}

/// Reads a specification 3 config of any version and converts it to another one, as the Machine
/// Config Operator serves it to machines.
pub fn convert(raw: &Value, target: &IgnitionVersion) -> Result<ConvertedConfig, ConvertError> {
    match parse(raw)? {
        (ParsedConfig::V3(config), _) => from_current(&config, target),
        (ParsedConfig::V2(_), _) => Err(ConvertError::SourceIsV2),
    }
}

/// Converts a config of the internal version to another one.
pub fn from_current(
    config: &Config,
    target: &IgnitionVersion,
) -> Result<ConvertedConfig, ConvertError> {
    let mut config = without_empty_lists(config);
    check(&config, 5)?;
    if *target == IgnitionVersion::MAX {
        return Ok(ConvertedConfig::V3(Box::new(config)));
    }
    let down_to = target.published_minor(3, 4).filter(|minor| *minor >= 1);
    let is_v2 = *target == IgnitionVersion::new(2, 2);
    if down_to.is_none() && !is_v2 {
        let (from, to) = (Box::new(IgnitionVersion::MAX), Box::new(target.clone()));
        return Err(ConvertError::Unsupported { from, to });
    }
    let lowest = down_to.unwrap_or(2);
    for minor in (lowest..5).rev() {
        step_down(&mut config, minor)?;
        config.ignition.version = IgnitionVersion::new(3, i64::from(minor)).to_string();
        check(&config, minor)?;
    }
    if is_v2 {
        return Ok(ConvertedConfig::V2(Box::new(v2::from_v3(&config)?)));
    }
    Ok(ConvertedConfig::V3(Box::new(config)))
}

/// MCO serializes and parses the config before it converts it, which drops lists that are set but
/// empty.
fn without_empty_lists(config: &Config) -> Config {
    let mut read = Config::default();
    let written = serde_json::to_value(config).unwrap_or_default();
    read.decode(&written, &mut ConfigDecoder::new(5));
    read
}

fn check(config: &Config, minor: u8) -> Result<(), ConvertError> {
    let mut report = validate(config, minor);
    if report.is_fatal() {
        report.entries.retain(|entry| entry.severity == super::report::ReportSeverity::Error);
        let version = Box::new(IgnitionVersion::new(3, i64::from(minor)));
        return Err(ConvertError::Invalid { version, report });
    }
    Ok(())
}

/// Removes what `3.<to>` does not know, or refuses the config if that would lose something.
fn step_down(config: &mut Config, to: u8) -> Result<(), ConvertError> {
    match to {
        4 => {
            for luks in config.storage.luks.iter_mut() {
                luks.cex = super::schema::Cex::default(); // MCO's check for this is never reached
                for tang in luks.clevis.tang.iter_mut() {
                    tang.advertisement = None;
                }
            }
            Ok(())
        }
        3 => step_to_3(config),
        2 => {
            let kargs = &config.kernel_arguments;
            if !kargs.should_exist.is_empty() || !kargs.should_not_exist.is_empty() {
                return not_in_target("KernelArguments is not supported on 3.2");
            }
            config.kernel_arguments = super::schema::KernelArguments::default();
            Ok(())
        }
        _ => step_to_1(config),
    }
}

fn not_in_target(text: &str) -> Result<(), ConvertError> {
    Err(ConvertError::NotInTarget(text.to_owned()))
}

fn step_to_3(config: &mut Config) -> Result<(), ConvertError> {
    for luks in config.storage.luks.iter_mut() {
        if luks.clevis.tang.iter().any(|t| t.advertisement.as_ref().is_some_and(|a| !a.is_empty()))
        {
            return not_in_target(
                "Invalid input config: tang offline provisioning is not supported in spec v3.3",
            );
        }
        if luks.discard == Some(true) {
            return not_in_target(
                "Invalid input config: luks discard is not supported in spec v3.3",
            );
        }
        if !luks.open_options.is_empty() {
            return not_in_target(
                "Invalid input config: luks openOptions is not supported in spec v3.3",
            );
        }
        luks.discard = None;
        luks.open_options = super::keyed_list::Keyed::default();
    }
    let special = |mode: Option<i64>| mode.is_some_and(|mode| mode & 0o7000 != 0);
    let storage = &config.storage;
    if storage.files.iter().any(|file| special(file.mode))
        || storage.directories.iter().any(|directory| special(directory.mode))
    {
        return not_in_target(
            "Invalid input config: special mode bits are not supported in spec v3.3",
        );
    }
    let is_arn = |resource: &Resource| {
        let source = resource.source.as_deref().unwrap_or_default();
        url::parse(source).is_ok_and(|url| url.scheme == "arn")
    };
    if resources(config).any(is_arn) {
        return not_in_target(
            "Invalid input config: arn: scheme for s3 is not supported in spec v3.3",
        );
    }
    Ok(())
}

fn resources(config: &Config) -> impl Iterator<Item = &Resource> {
    let ignition = &config.ignition;
    let files = config.storage.files.iter();
    ignition
        .config
        .merge
        .iter()
        .chain([&ignition.config.replace])
        .chain(&ignition.security.tls.certificate_authorities)
        .chain(files.flat_map(|file| file.append.iter().chain([&file.contents])))
        .chain(config.storage.luks.iter().map(|luks| &luks.key_file))
}

fn step_to_1(config: &mut Config) -> Result<(), ConvertError> {
    if !config.storage.luks.is_empty() {
        return not_in_target("LUKS is not supported on 3.1");
    }
    config.storage.luks = super::keyed_list::Keyed::default();
    for user in config.passwd.users.iter_mut() {
        if user.should_exist.take() == Some(false) {
            return not_in_target("ShouldExist in Passwd.Users is not supported on 3.1");
        }
    }
    for group in config.passwd.groups.iter_mut() {
        if group.should_exist.take() == Some(false) {
            return not_in_target("ShouldExist in Passwd.Groups is not supported on 3.1");
        }
    }
    for disk in config.storage.disks.iter_mut() {
        for partition in disk.partitions.iter_mut() {
            if partition.resize.take() == Some(true) {
                return not_in_target("Resize in Storage.Disks.Partitions is not supported on 3.1");
            }
        }
    }
    Ok(())
}
