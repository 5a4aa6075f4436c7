//! `machinist managed`: which paths of this machine are Machinist's.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use machinist_core::apply::{EMPTY_CONFIG_NAME, PathBefore};

use super::once::printable;
use super::output::{OutputFormat, format_columns};
use super::{CommandOutcome, output};
use crate::daemon::owned::{self, OwnedEntry, OwnedReport};

/// List what Machinist has written on this machine, from which MachineConfig, and what was there before
///
/// `machinist leave` takes all of it back. Nothing is written, and no API server is asked.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist managed --root /tmp/machine")]
pub(super) struct ManagedArgs {
    /// The root directory of the machine
    #[arg(long, value_name = "DIR", default_value = "/", alias = "root-mount")]
    root: PathBuf,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

impl ManagedArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let report = owned::gather(&self.root)?;
        match self.output {
            OutputFormat::Json => output::print_json(&report)?,
            OutputFormat::Text => output::print(&text(&report))?,
        }
        Ok(CommandOutcome::Done)
    }
}

fn text(report: &OwnedReport) -> String {
    if report.paths.is_empty() && report.own.is_empty() {
        return "Nothing on this machine is Machinist's.\n".to_owned();
    }
    let mut text = match report.config.as_str() {
        EMPTY_CONFIG_NAME => "The machine has no config.\n".to_owned(),
        name => format!("The machine has {}.\n", printable(name)),
    };
    if !report.paths.is_empty() {
        let mut rows = vec![["PATH".to_owned(), "FROM".to_owned(), "BEFORE".to_owned()]];
        rows.extend(report.paths.iter().map(row));
        text.push('\n');
        text.push_str(&format_columns(&rows));
    }
    if !report.own.is_empty() {
        let _ = writeln!(text, "\nMachinist itself:");
        for path in &report.own {
            let _ = writeln!(text, "{}", printable(path));
        }
    }
    text
}

fn row(owned: &OwnedEntry) -> [String; 3] {
    let from = match (&owned.machine_config, &owned.item) {
        (Some(config), _) => config.clone(),
        // A directory, or the path of an earlier config.
        (None, None) => "-".to_owned(),
        (None, Some(item)) if *item == owned.path => "the config".to_owned(),
        (None, Some(item)) => item.clone(),
    };
    let before = match &owned.before {
        PathBefore::Nothing => "nothing".to_owned(),
        PathBefore::File { kept } => format!("a file, kept as {kept}"),
        PathBefore::Link { target } => format!("a link to {target}"),
        PathBefore::Permissions { mode } => format!("permissions {mode:04o}"),
    };
    [&owned.path, &from, &before].map(|text| printable(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_a_line() {
        let entry = |path: &str, from: Option<&str>, before: PathBefore| OwnedEntry {
            path: path.into(),
            item: from.map(|_| path.to_owned()),
            machine_config: from.map(str::to_owned),
            before,
        };
        let kept = "/etc/machine-config-daemon/orig/etc/motd.mcdorig".to_owned();
        let report = OwnedReport {
            config: "rendered-worker-1".into(),
            paths: vec![
                entry("/etc/motd", Some("50-motd"), PathBefore::File { kept }),
                entry("/etc/new", None, PathBefore::Nothing),
            ],
            own: vec!["/var/lib/machinist".into()],
        };
        assert_eq!(
            text(&report),
            "The machine has rendered-worker-1.\n\n\
             PATH       FROM     BEFORE\n\
             /etc/motd  50-motd  a file, kept as /etc/machine-config-daemon/orig/etc/motd.mcdorig\n\
             /etc/new   -        nothing\n\n\
             Machinist itself:\n/var/lib/machinist\n"
        );
        let empty = OwnedReport { paths: Vec::new(), own: Vec::new(), ..report };
        assert_eq!(text(&empty), "Nothing on this machine is Machinist's.\n");
    }
}
