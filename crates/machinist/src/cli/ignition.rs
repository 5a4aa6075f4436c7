//! `machinist ignition`: converts and merges Ignition configs.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use machinist_core::ignition::convert::{convert, from_current};
use machinist_core::ignition::{IgnitionVersion, merge, parse_and_upgrade, report::IgnitionReport};
use serde_json::Value;

use super::{CommandOutcome, output};
use crate::manifests;

/// Convert and merge Ignition configs
#[derive(Debug, Subcommand)]
pub(super) enum IgnitionCommand {
    Convert(ConvertArgs),
    Merge(MergeArgs),
}

impl IgnitionCommand {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        match self {
            Self::Convert(command) => command.run(),
            Self::Merge(command) => command.run(),
        }
    }
}

/// Convert an Ignition config to another version of the specification
///
/// Converts a config of version 3.0 to 3.5 to version 3.5, 3.4, 3.3, 3.2, 3.1 or 2.2, as the server does
/// for machines with an older Ignition. It is an error if the target version cannot express the config.
/// A config of version 2.0 to 2.2 needs --upgrade.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist ignition convert --to 2.2.0 examples/motd.ign")]
pub(super) struct ConvertArgs {
    /// The target version, such as 3.2.0
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    to: IgnitionVersion,

    /// First upgrade a config of specification 2 to 3.5.0, as rendering does
    #[arg(long)]
    upgrade: bool,

    /// The config: a file, or - for standard input
    file: PathBuf,
}

fn parse_version(text: &str) -> Result<IgnitionVersion, String> {
    IgnitionVersion::parse(text).ok_or_else(|| "not a version: write it like 3.2.0".to_owned())
}

impl ConvertArgs {
    fn run(&self) -> Result<CommandOutcome> {
        let raw = read_one(&self.file)?;
        let name = self.file.display();
        let converted = if self.upgrade {
            let (config, report) = parse_and_upgrade(&raw).with_context(|| name.to_string())?;
            show_warnings(&self.file, &report);
            from_current(&config, &self.to)
        } else {
            convert(&raw, &self.to)
        };
        output::print_json(&converted.with_context(|| name.to_string())?)?;
        Ok(CommandOutcome::Done)
    }
}

/// Merge Ignition configs; later ones override earlier ones
///
/// The result is the same as that of Ignition's own merge, in version 3.5.0.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist ignition merge examples/motd.ign examples/motd-more.ign"
)]
pub(super) struct MergeArgs {
    /// The configs: files, or - for standard input
    #[arg(required = true, num_args = 1..)]
    files: Vec<PathBuf>,
}

impl MergeArgs {
    fn run(&self) -> Result<CommandOutcome> {
        let mut configs = Vec::new();
        for file in &self.files {
            let raw = read_one(file)?;
            let (config, report) =
                parse_and_upgrade(&raw).with_context(|| file.display().to_string())?;
            show_warnings(file, &report);
            configs.push(config);
        }
        output::print_json(&merge(configs))?;
        Ok(CommandOutcome::Done)
    }
}

fn show_warnings(file: &Path, report: &IgnitionReport) {
    for entry in &report.entries {
        output::print_warning(&format!("{}: {entry}", file.display()));
    }
}

/// Reads the only config in a file.
fn read_one(path: &Path) -> Result<Value> {
    let mut documents = manifests::read(&[path.to_owned()])?;
    match (documents.pop(), documents.is_empty()) {
        (Some(document), true) => Ok(document.value),
        (None, _) => bail!("{}: no Ignition config in this file", path.display()),
        (Some(_), false) => bail!("{}: more than one document in this file", path.display()),
    }
}
