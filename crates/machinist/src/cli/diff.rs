//! `machinist diff`: the differences of two MachineConfigs, and whether a running machine would accept
//! the change.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anstyle::Style;
use anyhow::{Result, bail};
use clap::{ArgGroup, Args};
use machinist_core::api::MachineConfig;
use machinist_core::api::operator::{
    DisruptionAction, DisruptionActionType, NodeDisruptionPolicy, ServiceReference,
};
use machinist_core::diff::{
    self, ChangeKind, ContentChange, DiffLine, DiffLineKind, ItemChange, ListChange, ShownContents,
};
use machinist_core::disruption::{Disruption, DisruptionRules, disruption, system_policy};
use machinist_core::duration::parse_duration;
use machinist_core::reconcile_check::{ValidationOverrides, check_reconcilable};
use serde::Serialize;

use super::cluster::session::SessionArgs;
use super::output::{ADDED, DIMMED, ERROR, HEADING, OutputFormat, REMOVED};
use super::{CommandOutcome, diff_inputs, live_diff, output};

/// Show the differences of two MachineConfigs, and whether a running machine would accept the change
///
/// Contents are decoded and secrets are masked. The cost for a running machine (nothing, a reload, a
/// drain, a reboot) follows from the node disruption policy. The exit code is 0 if a running machine would
/// accept the change, and 3 if it would refuse it.
///
/// Without files, the API server is asked: OLD and NEW may be names of MachineConfigs, and --pool compares the config
/// that the machines of a pool have with the one that they get. --live compares the disk of a machine with its
/// config; the exit code is 3 if it differs.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("compared").required(true).args(["old", "pool", "live"]),
    after_help = "Example:\n  machinist diff examples/chrony.yaml examples/chrony-and-hugepages.yaml\n\n\
        More examples:\n  machinist diff --pool worker\n  machinist diff --live worker-1"
)]
pub(super) struct DiffArgs {
    /// The current MachineConfig of the machine: a file, - for standard input, or a name in the API server
    #[arg(requires = "new")]
    old: Option<PathBuf>,

    /// The new MachineConfig: a file, - for standard input, or a name in the API server
    new: Option<PathBuf>,

    /// Compare the config that the machines of this pool have with the one that they get
    #[arg(long, value_name = "NAME", conflicts_with = "new")]
    pool: Option<String>,

    /// Show what differs on the disk of this machine from its config
    #[arg(long, value_name = "NODE", conflicts_with_all = ["new", "policy"])]
    live: Option<String>,

    /// With --live: how long to wait for the machine
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,

    /// A file with the MachineConfiguration whose spec.nodeDisruptionPolicy applies [default: that of the API
    /// server if it is asked, otherwise the built-in policy]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,

    #[command(flatten)]
    session: SessionArgs,
}

#[derive(Serialize)]
struct DiffReport {
    reconcilable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(flatten)]
    disruption: Option<Disruption>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<diff::ConfigDiff>,
}

impl DiffArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        if let Some(node) = &self.live {
            return live_diff::run(&self.session, node, self.timeout, self.output);
        }
        let inputs = match (&self.old, &self.new, &self.pool) {
            (Some(old), Some(new), _) => diff_inputs::read_pair(old, new, &self.session)?,
            (_, _, Some(pool)) => diff_inputs::of_pool(pool, &self.session)?,
            _ => bail!("name two MachineConfigs, --pool or --live"),
        };
        let policy = match &self.policy {
            Some(path) => diff_inputs::read_policy(path)?,
            None => inputs.policy.unwrap_or_else(system_policy),
        };
        let name = |config: &MachineConfig| config.metadata.name.clone().unwrap_or_default();
        if let Some(pool) = self.pool.as_ref().filter(|_| name(&inputs.old) == name(&inputs.new))
            && self.output == OutputFormat::Text
        {
            let has = name(&inputs.new);
            output::print(&format!("No differences: the machines of {pool} have {has}.\n"))?;
            return Ok(CommandOutcome::Done);
        }
        let report = report(&inputs.old, &inputs.new, &policy);
        match self.output {
            OutputFormat::Json => output::print_json(&report)?,
            OutputFormat::Text => output::print(&text(&report))?,
        }
        Ok(if report.reconcilable { CommandOutcome::Done } else { CommandOutcome::Refused })
    }
}

fn report(old: &MachineConfig, new: &MachineConfig, policy: &NodeDisruptionPolicy) -> DiffReport {
    let verdict = check_reconcilable(old, new, ValidationOverrides::default());
    let reason = verdict.as_ref().err().map(ToString::to_string);
    // A refused change is still shown, if both configs can be parsed.
    let change = verdict.ok().or_else(|| diff::parse_both(old, new));
    let diff = change.as_ref().map(|change| diff::diff(old, new, change));
    let reconcilable = reason.is_none();
    let disruption =
        change.as_ref().zip(diff.as_ref()).filter(|_| reconcilable).map(|(change, diff)| {
            disruption(change, diff.flags, &DisruptionRules::new(policy, old, new, None))
        });
    DiffReport { reconcilable, reason, disruption, diff }
}

fn text(report: &DiffReport) -> String {
    let mut text = String::new();
    if let Some(diff) = &report.diff {
        show_diff(&mut text, diff);
    }
    match &report.reason {
        None => {
            text.push_str("A running machine would accept this change.\n");
            let actions =
                report.disruption.as_ref().map(|disruption| disruption.actions.as_slice());
            let _ = writeln!(text, "It costs: {}", cost(actions.unwrap_or_default()));
        }
        Some(reason) => {
            let _ = writeln!(
                text,
                "{ERROR}A running machine would refuse this change:{ERROR:#} {reason}"
            );
        }
    }
    text
}

/// The actions after a change, as text.
pub(super) fn cost(actions: &[DisruptionAction]) -> String {
    let name = |service: &Option<ServiceReference>| {
        service.as_ref().map(|service| service.service_name.clone()).unwrap_or_default()
    };
    let text = |action: &DisruptionAction| match &action.type_ {
        DisruptionActionType::Reboot => "a drain and a reboot".to_owned(),
        DisruptionActionType::Drain => "a drain".to_owned(),
        DisruptionActionType::Reload => format!("a reload of {}", name(&action.reload)),
        DisruptionActionType::Restart => format!("a restart of {}", name(&action.restart)),
        DisruptionActionType::Run => format!("a run of {}", action.run.join(" ")),
        DisruptionActionType::DaemonReload => "a reload of systemd".to_owned(),
        DisruptionActionType::None => "nothing".to_owned(),
        DisruptionActionType::Special => {
            "a reload of crio, and a drain unless mirrors were only added".to_owned()
        }
        DisruptionActionType::Unknown(other) => other.clone(),
    };
    actions.iter().map(text).collect::<Vec<_>>().join(", then ")
}

pub(super) fn show_diff(text: &mut String, diff: &diff::ConfigDiff) {
    if diff.is_empty() {
        text.push_str("No differences.\n");
    }
    for (name, change) in &diff.fields {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        show_value(text, "", name, old, new);
    }
    show_list(text, "kernel argument", &diff.kernel_arguments);
    show_list(text, "extension", &diff.extensions);
    show_items(text, "file", &diff.files);
    show_items(text, "unit", &diff.units);
    show_items(text, "drop-in", &diff.dropins);
    show_items(text, "user", &diff.users);
    show_list(text, "ssh key of core", &diff.ssh_keys);
    for section in &diff.other_sections {
        let _ = writeln!(text, "{HEADING}~ section {section}{HEADING:#} differs");
    }
}

pub(super) fn show_value(
    text: &mut String,
    indent: &str,
    name: &str,
    old: Option<&str>,
    new: Option<&str>,
) {
    let shown = |value: Option<&str>| value.unwrap_or("(unset)").to_owned();
    let _ = writeln!(text, "{indent}~ {name}: {} → {}", shown(old), shown(new));
}

fn show_list(text: &mut String, what: &str, change: &ListChange) {
    for entry in &change.removed {
        let _ = writeln!(text, "{REMOVED}- {what} {entry}{REMOVED:#}");
    }
    for entry in &change.added {
        let _ = writeln!(text, "{ADDED}+ {what} {entry}{ADDED:#}");
    }
    if change.reordered {
        let _ = writeln!(text, "~ {what}s in another order");
    }
}

fn show_items(text: &mut String, what: &str, items: &[ItemChange]) {
    for item in items {
        let (sign, style): (&str, Style) = match item.verb {
            ChangeKind::Added => ("+", ADDED),
            ChangeKind::Removed => ("-", REMOVED),
            ChangeKind::Changed => ("~", HEADING),
        };
        let _ = writeln!(text, "{style}{sign} {what} {}{style:#}", item.name);
        for (name, change) in &item.fields {
            show_value(text, "    ", name, change.old.as_deref(), change.new.as_deref());
        }
        if let Some(contents) = &item.contents {
            show_contents(text, contents);
        }
    }
}

fn show_contents(text: &mut String, change: &ContentChange) {
    let as_text = |shown: &ShownContents| match shown {
        ShownContents::Nothing => Some(String::new()),
        ShownContents::Text { text } => Some(text.clone()),
        ShownContents::Binary { .. }
        | ShownContents::Secret
        | ShownContents::Undecodable { .. } => None,
    };
    match (as_text(&change.old), as_text(&change.new)) {
        (Some(old), Some(new)) => show_lines(text, &diff::line_diff(&old, &new, 3)),
        _ => show_digests(text, change),
    }
}

/// Contents that are not shown line by line.
pub(super) fn show_digests(text: &mut String, change: &ContentChange) {
    let line = format!("contents: {} → {}", label(&change.old), label(&change.new));
    let _ = writeln!(text, "    {DIMMED}{}{DIMMED:#}", printable(&line));
}

pub(super) fn show_lines(text: &mut String, lines: &[DiffLine]) {
    for line in lines {
        let (sign, style) = match line.kind {
            DiffLineKind::Added => ("+", ADDED),
            DiffLineKind::Removed => ("-", REMOVED),
            DiffLineKind::Context => (" ", Style::new()),
            DiffLineKind::Gap => (" ", DIMMED),
        };
        let _ = writeln!(text, "    {style}{sign}{}{style:#}", printable(&line.text));
    }
}

/// Replaces control characters: file contents could drive the terminal.
fn printable(line: &str) -> String {
    let replace = |c: char| if c.is_control() && c != '\t' { '\u{fffd}' } else { c };
    line.chars().map(replace).collect()
}

fn label(shown: &ShownContents) -> String {
    match shown {
        ShownContents::Nothing => "(none)".to_owned(),
        ShownContents::Text { text } => format!("({} bytes of text)", text.len()),
        ShownContents::Binary { size, sha256 } => {
            format!("({size} bytes, sha256 {})", sha256.get(..12).unwrap_or(sha256))
        }
        ShownContents::Secret => "(secret)".to_owned(),
        ShownContents::Undecodable { reason } => format!("({reason})"),
    }
}
