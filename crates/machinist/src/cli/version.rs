//! `machinist version`.

use anyhow::Result;
use clap::Args;
use machinist_core::ignition::parse::SUPPORTED_VERSIONS;

use super::output::OutputFormat;
use super::{CommandOutcome, output};

/// Print the version of machinist and of the Ignition specifications that it supports
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist version -o json")]
pub(super) struct VersionArgs {
    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

impl VersionArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let version = env!("CARGO_PKG_VERSION");
        let specs: Vec<&str> = SUPPORTED_VERSIONS.split(',').collect();
        match self.output {
            OutputFormat::Json => {
                let report = serde_json::json!({"version": version, "ignitionSpecs": specs});
                output::print_json(&report)?;
            }
            OutputFormat::Text => {
                let specs = specs.join(", ");
                output::print(&format!("machinist {version} (Ignition specs {specs})\n"))?;
            }
        }
        Ok(CommandOutcome::Done)
    }
}
