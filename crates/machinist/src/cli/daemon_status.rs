//! `machinist daemon status`, `plan` and `watchdog`: the state of this machine, what a config would change on
//! it, and whether its daemon can run.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use machinist_core::api::operator::MachineConfiguration;
use machinist_core::daemon::actions;

use super::connection_args::ConnectionArgs;
use super::daemon::host_name;
use super::log_args::LogArgs;
use super::once::printable;
use super::output::{DIMMED, ERROR, OutputFormat, WARNING};
use super::{CommandOutcome, once, output};
use crate::daemon::join::{self, paths::JoinPaths};
use crate::daemon::preview::{self, ChangePreview};
use crate::daemon::status::{self, DaemonNote};
use crate::daemon::watchdog;
use crate::manifests;

/// Show the config of this machine and what its daemon does, without the API server
///
/// The exit code is 3 if the daemon cannot run, the machine is degraded, a change was interrupted or could
/// not be undone, or the disk differs from the config.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist daemon status -o json")]
pub(super) struct DaemonStatusArgs {
    /// The root directory of the machine
    #[arg(long, value_name = "DIR", default_value = "/", alias = "root-mount")]
    root: PathBuf,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

impl DaemonStatusArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let status = runtime()?.block_on(status::gather(&self.root))?;
        match self.output {
            OutputFormat::Json => output::print_json(&status)?,
            OutputFormat::Text => output::print(&text(&status))?,
        }
        let bad = |note: &DaemonNote| {
            matches!(note.state.as_str(), "Degraded" | "Unreconcilable") || note.refused.is_some()
        };
        let is_bad = status.interrupted
            || !status.quarantined.is_empty()
            || status.mismatch.is_some()
            || status.damage.is_some()
            || status.service_problem.is_some()
            || status.daemon.as_ref().is_some_and(bad);
        Ok(if is_bad { CommandOutcome::Refused } else { CommandOutcome::Done })
    }
}

fn os_rows(os: &status::MachineOsStatus) -> Vec<(&'static str, String)> {
    let mut rows = vec![("OS", format!("{}: {}", os.backend, printable(&os.reason)))];
    rows.extend(os.problem.as_deref().map(|problem| ("OS PROBLEM", printable(problem))));
    let Some(status) = &os.status else { return rows };
    rows.push(("BOOTED", printable(&status.booted.to_string())));
    rows.extend(status.next.as_ref().map(|next| ("NEXT BOOT", printable(&next.to_string()))));
    rows.extend(status.kept.iter().map(|kept| ("KEPT", printable(&kept.to_string()))));
    rows
}

fn text(status: &status::MachineStatus) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    match &status.daemon {
        Some(note) => {
            rows.push(("NODE", note.node.clone()));
            rows.push(("STATE", note.state.clone()));
            if !note.reason.is_empty() {
                rows.push(("REASON", printable(&note.reason)));
            }
            rows.extend(note.refused.as_deref().map(|reason| ("REFUSED", printable(reason))));
            rows.push(("DESIRED", note.desired.clone()));
            rows.extend(note.held.clone().map(|why| ("HELD", why)));
            rows.extend(note.waiting.clone().map(|waiting| ("WAITING FOR", waiting)));
        }
        None if !status.joined => {
            rows.push((
                "STATE",
                "this machine has not joined, or it has left: `machinist join`".into(),
            ));
        }
        None => rows.push(("STATE", "the daemon has not run since the last boot".into())),
    }
    rows.extend(status.service.clone().map(|service| ("SERVICE", service)));
    rows.extend(status.service_problem.clone().map(|problem| ("CANNOT RUN", problem)));
    rows.push(("CURRENT", status.damage.as_deref().map_or(status.current.clone(), printable)));
    rows.extend(os_rows(&status.os));
    if let Some(pending) = &status.pending {
        let left = if pending.actions.is_empty() { "only to report" } else { &pending.actions };
        rows.push(("PENDING", format!("{} (remaining: {left})", pending.config)));
        rows.push(("PREVIOUS", pending.previous.clone()));
    }
    if status.interrupted {
        rows.push((
            "INTERRUPTED",
            "a change is in progress, or was interrupted and will be recovered".into(),
        ));
    }
    rows.extend(status.quarantined.iter().map(|path| ("SET ASIDE", printable(path))));
    if status.force_rewrite {
        rows.push(("FORCE", "every file is written again".into()));
    }
    rows.extend(status.failed_config.as_deref().map(|failed| ("ROLLED BACK", printable(failed))));
    let disk = status.mismatch.as_deref().map_or_else(|| "matches the config".into(), printable);
    rows.push(("DISK", disk));
    let mut text = String::new();
    for (name, value) in rows {
        let _ = writeln!(text, "{name:<12} {value}");
    }
    text
}

/// Show what a config would change on this machine, and whether it needs a reload, a restart or a reboot
///
/// Without -f, it is the config that the machine's Node names, read with the machine's own identity if it has
/// joined. Nothing is written. The exit code is 3 if
/// the machine would refuse the config.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist daemon plan --root /tmp/machine -f examples/chrony.yaml"
)]
pub(super) struct DaemonPlanArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    /// A MachineConfig or an Ignition config: a file, or - for standard input
    #[arg(short, long, alias = "file", value_name = "PATH")]
    filename: Option<PathBuf>,

    /// With -f: a file with the MachineConfiguration whose node disruption policy applies
    #[arg(long, value_name = "FILE", requires = "filename")]
    policy: Option<PathBuf>,

    /// The name of this machine's Node [default: $NODE_NAME, else the host name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: Option<String>,

    /// The root directory of the machine
    #[arg(long, value_name = "DIR", default_value = "/", alias = "root-mount")]
    root: PathBuf,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

impl DaemonPlanArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let (config, settings) = match &self.filename {
            Some(file) => (once::read_config(file)?, self.settings()?),
            None => self.desired()?,
        };
        let preview = preview::preview(&self.root, &config, settings.as_ref())?;
        match self.output {
            OutputFormat::Json => output::print_json(&preview)?,
            OutputFormat::Text => output::print(&plan_text(&preview))?,
        }
        Ok(if preview.refused.is_some() { CommandOutcome::Refused } else { CommandOutcome::Done })
    }

    fn settings(&self) -> Result<Option<MachineConfiguration>> {
        let Some(path) = &self.policy else { return Ok(None) };
        let documents = manifests::read(std::slice::from_ref(path))?;
        let found = documents.iter().find(|document| document.kind() == "MachineConfiguration");
        let found = found.with_context(|| {
            format!("--policy {}: no MachineConfiguration in this file", path.display())
        })?;
        found.typed().map(Some)
    }

    fn desired(
        &self,
    ) -> Result<(machinist_core::api::MachineConfig, Option<MachineConfiguration>)> {
        runtime()?.block_on(async {
            // A machine that has joined may read its own config, under the name that it joined with.
            let joined = join::joined_name(&self.root);
            let name = self.node_name.clone().or(joined).map_or_else(host_name, Ok)?;
            let own = JoinPaths::new(&self.root).kubeconfig();
            preview::desired(&self.connection.or_kubeconfig(&own).client().await?, &name).await
        })
    }
}

/// Restore the daemon's unit and binary if it cannot run; machinist-watchdog.timer runs this every minute
///
/// A daemon that completed a pass stores its binary and unit in /var/lib/machinist/last-good. Restored are
/// a unit that is missing, empty, masked or disabled, a missing binary, and after a crash loop both, up to
/// three times. A service that an administrator stopped is left alone.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist daemon watchdog")]
pub(super) struct DaemonWatchdogArgs {
    /// The root directory of the machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    #[command(flatten)]
    log: LogArgs,
}

impl DaemonWatchdogArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        self.log.init();
        runtime()?.block_on(watchdog::run(&self.root))?;
        Ok(CommandOutcome::Done)
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().context("cannot start the async runtime")
}

fn plan_text(preview: &ChangePreview) -> String {
    let mut text = format!("{} → {}\n", preview.from, preview.to);
    if let Some(reason) = &preview.refused {
        let _ = writeln!(text, "{ERROR}Refused:{ERROR:#} {reason}");
        return text;
    }
    for line in &preview.os_changes {
        let _ = writeln!(text, "  {:<14} {}", "system", printable(line));
    }
    for change in &preview.changes {
        let _ = writeln!(text, "  {:<14} {}", once::verb(change.action), printable(&change.path));
    }
    for note in &preview.notes {
        let _ = writeln!(text, "{DIMMED}note:{DIMMED:#} {}", printable(note));
    }
    let drain = if preview.needs_drain { ", after a drain" } else { "" };
    let _ = writeln!(
        text,
        "{WARNING}then:{WARNING:#} {}{drain}",
        actions::actions_summary(&preview.actions)
    );
    text
}
