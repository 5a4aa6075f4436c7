//! `machinist once`: applies one config to a root directory, without an API server.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use machinist_core::api::MachineConfig;
use machinist_core::apply::{self, ObstructedPath};

use super::output::{DIMMED, ERROR, OutputFormat};
use super::{CommandOutcome, output};
use crate::daemon::HostRoot;
use crate::daemon::once::{OnceReport, apply_once};
use crate::daemon::transaction::{self, FsAction, Recovered, Recovery};
use crate::manifests::{self, ManifestDocument};

/// Apply the files, units and keys of a config to a root directory, completely or not at all
///
/// DIR is the root directory of a machine or of an image that is being built; / is this machine. Files
/// that a config no longer contains become what they were before. A change that fails is undone. The
/// next run undoes or finishes a change that a crash or a power loss interrupted. The exit code is 3 if
/// the change is refused; nothing is written then. Nothing is reloaded or restarted.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  mkdir -p /tmp/machine/etc\n  machinist once --root /tmp/machine -f examples/chrony.yaml"
)]
pub(super) struct OnceArgs {
    /// The root directory of the machine
    #[arg(long, value_name = "DIR")]
    root: PathBuf,

    /// A MachineConfig or an Ignition config: a file, or - for standard input
    #[arg(short, long, alias = "file", value_name = "PATH", required_unless_present = "recover")]
    filename: Option<PathBuf>,

    /// Only undo or finish a change that was interrupted
    #[arg(long, conflicts_with = "filename")]
    recover: bool,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

impl OnceArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let config = self.filename.as_deref().map(read_config).transpose()?;
        let root = HostRoot::open(&self.root)?;
        let Some(config) = config else {
            let recovered = transaction::recover(&root)?;
            return self.recover(&recovered, &transaction::quarantined(&root)?);
        };
        let report = apply_once(&root, &config)?;
        match self.output {
            OutputFormat::Json => output::print_json(&report)?,
            OutputFormat::Text => output::print(&text(&report))?,
        }
        Ok(if report.refused.is_some() { CommandOutcome::Refused } else { CommandOutcome::Done })
    }

    fn recover(&self, recovered: &Recovered, left: &[ObstructedPath]) -> Result<CommandOutcome> {
        match self.output {
            OutputFormat::Json => {
                let left: Vec<String> = left.iter().map(ToString::to_string).collect();
                let unreadable: Vec<String> =
                    recovered.unreadable.iter().map(ToString::to_string).collect();
                let report = serde_json::json!({
                    "recovered": recovered.change, "quarantined": left, "unreadable": unreadable,
                });
                output::print_json(&report)?;
            }
            OutputFormat::Text => {
                let change = recovered.change.as_ref();
                let mut text =
                    change.map_or_else(|| "Nothing was interrupted.\n".to_owned(), recovery);
                for file in &recovered.unreadable {
                    let _ = writeln!(text, "Unreadable: {}", printable(&file.to_string()));
                }
                for path in left {
                    let _ = writeln!(text, "Not restored: {}", printable(&path.to_string()));
                }
                output::print(&text)?;
            }
        }
        let is_complete = left.is_empty() && recovered.unreadable.is_empty();
        Ok(if is_complete { CommandOutcome::Done } else { CommandOutcome::Refused })
    }
}

/// Reads the only config in a file.
pub(super) fn read_config(path: &Path) -> Result<MachineConfig> {
    let documents = manifests::read(&[path.to_owned()])?;
    let is_machine_config = |document: &&ManifestDocument| document.kind() == "MachineConfig";
    let is_ignition = |document: &&ManifestDocument| document.value.get("ignition").is_some();
    let machine_configs: Vec<&ManifestDocument> =
        documents.iter().filter(is_machine_config).collect();
    match machine_configs.as_slice() {
        [one] if one.name().is_empty() => {
            bail!("{}: metadata.name: the MachineConfig has no name: add one", one.origin)
        }
        [one] => one.typed().map(apply::with_ignition_config),
        [] => match documents.iter().filter(is_ignition).collect::<Vec<_>>().as_slice() {
            [one] => Ok(apply::from_ignition(one.value.clone())),
            _ => bail!("{}: no MachineConfig and no Ignition config in this file", path.display()),
        },
        many => bail!(
            "{}: {} MachineConfigs in this file; a machine has one config: render the pool first",
            path.display(),
            many.len()
        ),
    }
}

fn text(report: &OnceReport) -> String {
    let mut text = report.recovered.as_ref().map(recovery).unwrap_or_default();
    if let Some(reason) = &report.refused {
        let _ = writeln!(text, "{ERROR}Refused, nothing was written:{ERROR:#} {reason}");
        return text;
    }
    for change in &report.changes {
        let _ = writeln!(text, "{} {}", past_verb(change.action), printable(&change.path));
    }
    for note in &report.notes {
        let _ = writeln!(text, "{DIMMED}note:{DIMMED:#} {}", printable(note));
    }
    let _ = match report.changes.len() {
        0 => writeln!(text, "Nothing to do: the root directory has {}.", report.to),
        count => writeln!(
            text,
            "The root directory now has {} (before: {}): {count} changes.",
            report.to, report.from
        ),
    };
    text
}

fn past_verb(action: FsAction) -> &'static str {
    match action {
        FsAction::MakeDirectory => "created directory",
        FsAction::Create => "wrote",
        FsAction::Replace => "replaced",
        FsAction::Link => "linked",
        FsAction::SetPermissions => "set permissions of",
        FsAction::Remove => "removed",
    }
}

/// The verb for an action that has not happened.
pub(super) fn verb(action: FsAction) -> &'static str {
    match action {
        FsAction::MakeDirectory => "create directory",
        FsAction::Create => "write",
        FsAction::Replace => "replace",
        FsAction::Link => "link",
        FsAction::SetPermissions => "set permissions",
        FsAction::Remove => "remove",
    }
}

fn recovery(recovered: &Recovery) -> String {
    format!("Recovered: {}.\n", printable(&recovered.to_string()))
}

/// Escapes control characters: a path may contain any byte but zero, and could drive the terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}
