//! How far a pool is, for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_core::rollout::WaitReason;
use machinist_hub::table::human_duration;

use super::reasons;
use super::report::{MachineCounts, PendingMachine, PoolReport, PoolState};
use crate::cli::output::{ADDED, DIMMED, ERROR, HEADING, WARNING};

/// How wide the progress bar is.
const BAR_WIDTH: usize = 24;
/// How many machines are named that wait for the same.
const MAX_NAMED_MACHINES: usize = 5;

/// Everything about a pool; with a progress bar where somebody looks at it.
pub(super) fn render(report: &PoolReport, with_bar: bool, now: &Time) -> String {
    let target = report.target.as_deref().unwrap_or("(nothing rendered yet)");
    let mut text = format!("{HEADING}{}{HEADING:#} → {target}\n", report.pool);
    let bar = if with_bar { format!("{} ", bar(&report.machines)) } else { String::new() };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  {bar}{}", render_line(report, Some(now)));
    if let Some(from) = &report.rolled_back_from {
        let _ = writeln!(
            text,
            "  rolled back from {from}; go forward again with `machinist rollback {} --undo`",
            report.pool
        );
    }
    for problem in &report.problems {
        let _ = writeln!(text, "  {ERROR}stands still:{ERROR:#} {problem}");
    }
    for warning in &report.warnings {
        let _ = writeln!(text, "  {WARNING}warning:{WARNING:#} {warning}");
    }
    if let Some(halted) = &report.halted {
        let why = reasons::halted_reason(&report.pool, halted);
        let _ = writeln!(text, "  {WARNING}stands still:{WARNING:#} {why}");
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

/// A pool in one line; without times where lines are compared.
pub(super) fn render_line(report: &PoolReport, now: Option<&Time>) -> String {
    let counts = &report.machines;
    let mut text = format!("{} of {} machines updated", counts.updated, counts.total);
    for (count, word) in [
        (counts.working, "working"),
        (counts.reboot_pending, "waiting for a restart"),
        (counts.degraded, "failing"),
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
        PoolState::Halted => "standing still",
        PoolState::Invalid => "standing still until somebody acts",
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
    // A pool without machines is through.
    let part = |count: usize| (count * BAR_WIDTH).checked_div(counts.total).unwrap_or(BAR_WIDTH);
    let done = part(counts.updated);
    // Whoever is at work is seen, however large the pool is.
    let away = part(counts.working).max(usize::from(counts.working > 0)).min(BAR_WIDTH - done);
    let rest = BAR_WIDTH - done - away;
    format!(
        "{ADDED}{}{ADDED:#}{WARNING}{}{WARNING:#}{DIMMED}{}{DIMMED:#}",
        "█".repeat(done),
        "▒".repeat(away),
        "░".repeat(rest)
    )
}

/// Machines that wait for the same, together.
fn groups(pending: &[PendingMachine], now: &Time) -> Vec<(String, Vec<String>)> {
    let mut groups: BTreeMap<(u8, String), Vec<String>> = BTreeMap::new();
    for one in pending {
        groups.entry(described(one, now)).or_default().push(one.machine.clone());
    }
    groups.into_iter().map(|((_, what), machines)| (what, machines)).collect()
}

/// What a machine waits for, and its place among the groups: first those that need somebody.
fn described(pending: &PendingMachine, now: &Time) -> (u8, String) {
    let Some(waiting) = &pending.waiting else { return (3, "goes now".to_owned()) };
    let (place, mut text) = match waiting {
        // Its place in the queue is in the JSON.
        WaitReason::NotItsTurn { .. } => (5, "waits its turn".to_owned()),
        WaitReason::Failing { .. } | WaitReason::BadConfig { .. } => {
            (0, reasons::waiting_reason(waiting, now))
        }
        WaitReason::RestartPending { .. } | WaitReason::NotReady { .. } => {
            (1, reasons::waiting_reason(waiting, now))
        }
        WaitReason::Working { .. } | WaitReason::Draining { .. } => {
            (2, reasons::waiting_reason(waiting, now))
        }
        _ => (4, reasons::waiting_reason(waiting, now)),
    };
    if let Some(drain) = &pending.drain {
        let _ = write!(text, ": {drain}");
    }
    // Those who wait for others do so since the rollout began, which is said above.
    if let Some(since) = pending.since.as_ref().filter(|_| place <= 2) {
        let _ = write!(text, ", for {}", human_duration(now.0.duration_since(since.0)));
    }
    (place, text)
}
