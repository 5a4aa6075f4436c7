//! `machinist ignition`: Ignition configs by themselves.

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

/// Give an Ignition config in another version of the specification
///
/// Converts a config of version 3.0 to 3.5 to 3.5, 3.4, 3.3, 3.2, 3.1 or 2.2, as machines with an
/// older Ignition are served. What the other version cannot say is an error. A config of version
/// 2.0 to 2.2 is converted with --upgrade.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist ignition convert --to 2.2.0 examples/motd.ign")]
pub(super) struct ConvertArgs {
    /// The version to convert to, as 3.2.0
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    to: IgnitionVersion,

    /// First lift a specification 2 config to 3.5.0, as rendering does
    #[arg(long)]
    upgrade: bool,

    /// The config: a file or -
    file: PathBuf,
}

fn parse_version(text: &str) -> Result<IgnitionVersion, String> {
    IgnitionVersion::parse(text).ok_or_else(|| "not a version: write it as 3.2.0".to_owned())
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

/// Merge Ignition configs; later ones win
///
/// The result is what Ignition itself would make of them, in version 3.5.0.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist ignition merge examples/motd.ign examples/motd-more.ign"
)]
pub(super) struct MergeArgs {
    /// The configs: files or -
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

/// The one config in a file.
fn read_one(path: &Path) -> Result<Value> {
    let mut documents = manifests::read(&[path.to_owned()])?;
    match (documents.pop(), documents.is_empty()) {
        (Some(document), true) => Ok(document.value),
        (None, _) => bail!("{}: no Ignition config in this file", path.display()),
        (Some(_), false) => bail!("{}: more than one document in this file", path.display()),
    }
}
