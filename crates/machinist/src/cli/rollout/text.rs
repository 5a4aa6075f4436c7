//! The report of a pool as text for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_core::rollout::WaitReason;
use machinist_hub::table::human_duration;

use super::reasons;
use super::report::{MachineCounts, PendingMachine, PoolReport, PoolState};
use crate::cli::output::{ADDED, DIMMED, ERROR, HEADING, WARNING};

/// The width of the progress bar.
const BAR_WIDTH: usize = 24;
/// At most this many machines with the same reason are named.
const MAX_NAMED_MACHINES: usize = 5;

/// The whole report of a pool, with a progress bar on terminals.
pub(super) fn render(report: &PoolReport, with_bar: bool, now: &Time) -> String {
    let target = report.target.as_deref().unwrap_or("(no rendered config)");
    let mut text = format!("{HEADING}{}{HEADING:#} → {target}\n", report.pool);
    let bar = if with_bar { format!("{} ", bar(&report.machines)) } else { String::new() };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  {bar}{}", render_line(report, Some(now)));
    if let Some(from) = &report.rolled_back_from {
        let _ = writeln!(
            text,
            "  rolled back from {from}; to undo the rollback, run `machinist rollback {} --undo`",
            report.pool
        );
    }
    for problem in &report.problems {
        let _ = writeln!(text, "  {ERROR}stopped:{ERROR:#} {problem}");
    }
    for warning in &report.warnings {
        let _ = writeln!(text, "  {WARNING}warning:{WARNING:#} {warning}");
    }
    if let Some(halted) = &report.halted {
        let why = reasons::halted_reason(&report.pool, halted, now);
        let _ = writeln!(text, "  {WARNING}stopped:{WARNING:#} {why}");
    }
    for (what, machines) in groups(&report.pending, now) {
        let more = machines.len().saturating_sub(MAX_NAMED_MACHINES);
        let mut names = machines[..machines.len().min(MAX_NAMED_MACHINES)].join(", ");
        if more > 0 {
            let _ = write!(names, " and {more} more");
        }
        let _ = writeln!(text, "  {names}: {DIMMED}{what}{DIMMED:#}");
    }
    text
}

/// A pool in one line, without times if lines are compared.
pub(super) fn render_line(report: &PoolReport, now: Option<&Time>) -> String {
    let counts = &report.machines;
    let mut text = format!("{} of {} machines updated", counts.updated, counts.total);
    for (count, word) in [
        (counts.working, "working"),
        (counts.reboot_pending, "waiting for a reboot"),
        (counts.degraded, "failed"),
        (counts.held, "held"),
        (counts.not_ready, "not ready"),
        (counts.waiting, "waiting"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {word}");
        }
    }
    let word = match report.state {
        PoolState::Updated => "updated",
        PoolState::Updating => "updating",
        PoolState::Rendering => "about to get a new config",
        PoolState::Paused => "paused",
        PoolState::Halted => "stopped for now",
        PoolState::Invalid | PoolState::Stuck => "stopped until you act",
        PoolState::Empty => "nothing to roll out",
    };
    let _ = write!(text, "; {word}");
    let Some(now) = now else { return text };
    let shows_time = matches!(report.state, PoolState::Updated | PoolState::Updating);
    if let Some(since) = report.since.as_ref().filter(|_| shows_time) {
        let _ = write!(text, " for {}", human_duration(now.0.duration_since(since.0)));
    }
    if let Some(estimate) = &report.estimate {
        let left = human_duration(estimate.end.0.duration_since(now.0));
        let _ = write!(text, ", about {left} left");
    }
    text
}

fn bar(counts: &MachineCounts) -> String {
    // A pool without machines is complete.
    let part = |count: usize| (count * BAR_WIDTH).checked_div(counts.total).unwrap_or(BAR_WIDTH);
    let done = part(counts.updated);
    // Updating machines stay visible, however large the pool is.
    let updating = part(counts.working).max(usize::from(counts.working > 0)).min(BAR_WIDTH - done);
    let rest = BAR_WIDTH - done - updating;
    format!(
        "{ADDED}{}{ADDED:#}{WARNING}{}{WARNING:#}{DIMMED}{}{DIMMED:#}",
        "█".repeat(done),
        "▒".repeat(updating),
        "░".repeat(rest)
    )
}

/// Machines with the same reason, together. A remedy names the machine if it is the only one.
fn groups(pending: &[PendingMachine], now: &Time) -> Vec<(String, Vec<String>)> {
    let mut groups: BTreeMap<(u8, String), Vec<&PendingMachine>> = BTreeMap::new();
    for one in pending {
        groups.entry(described(one, "NODE", now)).or_default().push(one);
    }
    let text = |what: String, machines: &[&PendingMachine]| match machines {
        [one] => described(one, &one.machine, now).1,
        _ => what,
    };
    groups
        .into_iter()
        .map(|((_, what), machines)| {
            let names = machines.iter().map(|one| one.machine.clone()).collect();
            (text(what, &machines), names)
        })
        .collect()
}

/// The reason of a machine, and the rank of its group: machines that need an administrator come first.
fn described(pending: &PendingMachine, machine: &str, now: &Time) -> (u8, String) {
    let Some(waiting) = &pending.waiting else { return (3, "updates now".to_owned()) };
    let (rank, mut text) = match waiting {
        // Its position in the queue is in the JSON.
        WaitReason::NotItsTurn { .. } => (5, "waits for its turn".to_owned()),
        WaitReason::Failing { .. }
        | WaitReason::BadConfig { .. }
        | WaitReason::Drifted { .. }
        | WaitReason::Degraded { .. } => (0, reasons::waiting_reason(machine, waiting, now)),
        WaitReason::RestartPending { .. }
        | WaitReason::NotReady { .. }
        | WaitReason::Refused { .. }
        | WaitReason::Held { .. } => (1, reasons::waiting_reason(machine, waiting, now)),
        WaitReason::Working { .. }
        | WaitReason::Draining { .. }
        | WaitReason::Superseded { .. } => (2, reasons::waiting_reason(machine, waiting, now)),
        _ => (4, reasons::waiting_reason(machine, waiting, now)),
    };
    if let Some(drain) = &pending.drain {
        let _ = write!(text, ": {drain}");
    }
    // The others have waited since the rollout began, which the first line shows.
    if let Some(since) = pending.since.as_ref().filter(|_| rank <= 2) {
        let _ = write!(text, ", for {}", human_duration(now.0.duration_since(since.0)));
    }
    (rank, text)
}
