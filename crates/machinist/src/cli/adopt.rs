//! `machinist adopt`: checks whether Machinist can take over a running cluster.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use machinist_core::adopt::{self, AdoptionVerdict};
use machinist_core::api::{ControllerConfig, MachineConfig, MachineConfigPool, OSImageStream};
use machinist_core::render::ImageSources;
use serde::Serialize;

use super::cluster::session::SessionArgs;
use super::generate_inputs::cluster_object;
use super::output::{DIMMED, ERROR, HEADING, OutputFormat};
use super::pool_inputs::of_kind;
use super::{CommandOutcome, cluster, output};
use crate::manifests::{self, ManifestDocument};

/// Check whether Machinist can take over a running cluster without changing a machine
///
/// Renders every pool as the controller would, and compares the result with the rendered config that the
/// pool has. Nothing is written. The exit code is 3 if a pool would change.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist adopt --check\n\n\
        More examples:\n  machinist adopt --check -f collected/ -o json")]
pub(super) struct AdoptArgs {
    /// Check and write nothing. Required, because it is all that this command does
    #[arg(long, required = true)]
    check: bool,

    /// Read these manifests instead of the API server: pools, MachineConfigs including rendered ones, the
    /// ControllerConfig, the OSImageStream. A file, a directory, or - for standard input (repeatable)
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    filename: Vec<PathBuf>,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,

    #[command(flatten)]
    session: SessionArgs,
}

#[derive(Serialize)]
struct AdoptReport<'a> {
    safe: bool,
    pools: &'a [AdoptionVerdict],
}

impl AdoptArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let (pools, configs, controller_config, streams) =
            if self.filename.is_empty() { self.read_cluster()? } else { self.read_manifests()? };
        if pools.is_empty() {
            bail!("there is no MachineConfigPool: nothing to take over");
        }
        let (controller_config, streams) = (controller_config.as_ref(), streams.as_ref());
        let system = ImageSources { controller_config, streams, worker: None };
        let verdicts = adopt::check(&pools, &configs, system);
        let safe = verdicts.iter().all(AdoptionVerdict::is_safe);
        match self.output {
            OutputFormat::Json => output::print_json(&AdoptReport { safe, pools: &verdicts })?,
            OutputFormat::Text => output::print(&text(&verdicts, safe))?,
        }
        Ok(if safe { CommandOutcome::Done } else { CommandOutcome::Refused })
    }

    fn read_cluster(&self) -> Result<AdoptInputs> {
        let snapshot = cluster::block_on(async { self.session.connect().await?.snapshot().await })?;
        let controller_config = snapshot.controller_config().cloned();
        Ok((snapshot.pools, snapshot.configs, controller_config, snapshot.streams))
    }

    fn read_manifests(&self) -> Result<AdoptInputs> {
        let documents = manifests::read(&self.filename)?;
        let typed = |kind| of_kind(&documents, kind);
        let pools =
            typed("MachineConfigPool").map(ManifestDocument::typed).collect::<Result<_>>()?;
        let configs = typed("MachineConfig").map(ManifestDocument::typed).collect::<Result<_>>()?;
        let controller_config = typed("ControllerConfig").next().map(ManifestDocument::typed);
        Ok((pools, configs, controller_config.transpose()?, cluster_object(&documents)?))
    }
}

type AdoptInputs =
    (Vec<MachineConfigPool>, Vec<MachineConfig>, Option<ControllerConfig>, Option<OSImageStream>);

fn text(verdicts: &[AdoptionVerdict], safe: bool) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    for verdict in verdicts {
        let now = verdict.now.as_deref().unwrap_or("nothing");
        let pool = &verdict.pool;
        let _ = match &verdict.outcome {
            adopt::AdoptionOutcome::Same => {
                writeln!(text, "{HEADING}{pool}{HEADING:#}: keeps {now}")
            }
            adopt::AdoptionOutcome::Empty => {
                writeln!(text, "{HEADING}{pool}{HEADING:#}: has no config and gets none")
            }
            adopt::AdoptionOutcome::Unrenderable { problem } => {
                writeln!(
                    text,
                    "{HEADING}{pool}{HEADING:#}: {ERROR}cannot be rendered{ERROR:#}: {problem}"
                )
            }
            adopt::AdoptionOutcome::Other { rendered, .. } => writeln!(
                text,
                "{HEADING}{pool}{HEADING:#}: {ERROR}would change{ERROR:#} from {now} to {rendered}"
            ),
        };
        if let adopt::AdoptionOutcome::Other { differences, .. } = &verdict.outcome {
            for difference in differences {
                let _ = match difference.sources.as_slice() {
                    [] => writeln!(text, "  {}", difference.what),
                    sources => writeln!(
                        text,
                        "  {} {DIMMED}(from {}){DIMMED:#}",
                        difference.what,
                        sources.join(", ")
                    ),
                };
            }
        }
    }
    text += if safe {
        "No machine would change.\n"
    } else {
        "Machines would change. Correct the sources, or pause the pools before you take over.\n"
    };
    text
}
