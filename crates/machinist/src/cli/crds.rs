//! `machinist crds`: the CustomResourceDefinitions.

use anyhow::Result;
use clap::{Args, ValueEnum};
use machinist_core::api::crds;

use super::{CommandOutcome, output};

/// Print the CustomResourceDefinitions of all kinds that Machinist serves and reads
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist crds -o name")]
pub(super) struct CrdsArgs {
    /// The output format; `name` prints only the names
    #[arg(short, long, value_enum, default_value_t = CrdsOutputFormat::Yaml)]
    output: CrdsOutputFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CrdsOutputFormat {
    Yaml,
    Json,
    Name,
}

impl CrdsArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let crds = crds::crds();
        match self.output {
            CrdsOutputFormat::Yaml => {
                for crd in &crds {
                    output::print("---\n")?;
                    output::print_yaml(crd)?;
                }
            }
            CrdsOutputFormat::Json => {
                let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": crds});
                output::print_json(&list)?;
            }
            CrdsOutputFormat::Name => {
                for crd in &crds {
                    output::print(&format!("{}\n", crd.metadata.name.as_deref().unwrap_or("")))?;
                }
            }
        }
        Ok(CommandOutcome::Done)
    }
}
