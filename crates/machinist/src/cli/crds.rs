//! `machinist crds`: the CRD manifests.

use anyhow::Result;
use clap::{Args, ValueEnum};
use machinist_core::api::crds;

use super::{Outcome, output};

/// Print the CustomResourceDefinitions of all kinds that Machinist serves and reads
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist crds -o name")]
pub(super) struct Crds {
    /// The form of the manifests; `name` is only their names
    #[arg(short, long, value_enum, default_value_t = Form::Yaml)]
    output: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Yaml,
    Json,
    Name,
}

impl Crds {
    pub(super) fn run(&self) -> Result<Outcome> {
        let crds = crds::crds();
        match self.output {
            Form::Yaml => {
                for crd in &crds {
                    output::print("---\n")?;
                    output::print_yaml(crd)?;
                }
            }
            Form::Json => {
                let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": crds});
                output::print_json(&list)?;
            }
            Form::Name => {
                for crd in &crds {
                    output::print(&format!("{}\n", crd.metadata.name.as_deref().unwrap_or("")))?;
                }
            }
        }
        Ok(Outcome::Done)
    }
}
