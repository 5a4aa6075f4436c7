//! What a machine waits for and why a pool is stopped, as text with cause and remedy. All commands that
//! explain machines use these texts; the reasons are decided in core.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_core::node::{DriftKind, DriftedPath, NotReady};
use machinist_core::rollout::{RolloutHalted, WaitReason};
use machinist_hub::table::human_duration;

/// At most this many machines or paths are named.
const MAX_NAMED: usize = 5;

/// What a machine waits for.
pub(in crate::cli) fn waiting_reason(machine: &str, reason: &WaitReason, now: &Time) -> String {
    match reason {
        WaitReason::PoolPaused => "the pool is paused".to_owned(),
        WaitReason::NothingRendered => "the pool has no rendered config yet".to_owned(),
        // The daemon has not seen the new config: its state is still that of the old one.
        WaitReason::Working { state } if matches!(state.as_str(), "" | "Done") => {
            "has not started yet".to_owned()
        }
        // It failed on an earlier config, and stays degraded until it has succeeded with this one.
        WaitReason::Working { state } if state == "Degraded" || state == "Unreconcilable" => {
            "tries again".to_owned()
        }
        WaitReason::Working { state } => format!("is updating ({state})"),
        WaitReason::Failing { message } => format!("failed on this config: {message}"),
        WaitReason::Drifted { paths } => format!(
            "degraded: {}; `machinist heal {machine}`",
            list(paths.iter().map(drifted).collect(), "; ")
        ),
        WaitReason::Degraded { message } => format!("degraded: {message}"),
        WaitReason::Held { because } if because.is_empty() => {
            format!("is held; `machinist release {machine}`")
        }
        WaitReason::Held { because } => {
            format!("is held ({because}); `machinist release {machine}`")
        }
        WaitReason::Superseded { config } if config.is_empty() => {
            "is busy with its first config".to_owned()
        }
        WaitReason::Superseded { config } => format!("is still busy with {config}"),
        WaitReason::NotReady { because } => match because {
            NotReady::NotReady(status) => format!("is not ready (Ready={status})"),
            NotReady::DiskPressure(status) => format!("has DiskPressure={status}"),
            NotReady::NetworkUnavailable(status) => format!("has NetworkUnavailable={status}"),
            NotReady::Unschedulable => "is cordoned".to_owned(),
        },
        WaitReason::NoCapacity { away, max_unavailable } => {
            let others: Vec<String> = away.iter().filter(|it| *it != machine).cloned().collect();
            if others.is_empty() {
                format!("waits: the pool allows {max_unavailable} unavailable machines")
            } else {
                format!("waits for {}", list(others, ", "))
            }
        }
        WaitReason::NotItsTurn { ahead: 1 } => "waits for its turn; 1 machine is before it".into(),
        WaitReason::NotItsTurn { ahead } => {
            format!("waits for its turn; {ahead} machines are before it")
        }
        WaitReason::OutsideWindow { opens } => {
            format!("waits for the maintenance window, which opens {}", moment(opens, now))
        }
        WaitReason::Canary { machines } => {
            format!("waits for the canary machines: {}", list(machines.to_vec(), ", "))
        }
        WaitReason::Soaking { until } => format!(
            "waits to see whether the canary machines stay healthy; they are watched for another {}",
            left(until, now)
        ),
        WaitReason::Refused { because } => format!("would refuse the config: {because}"),
        WaitReason::Image { because } => format!("waits for the OS image of the pool: {because}"),
        WaitReason::BadConfig { config } => format!("too many machines failed on {config}"),
        WaitReason::RestartPending { opens: Some(opens) } => {
            format!("needs a reboot; the maintenance window opens {}", moment(opens, now))
        }
        WaitReason::RestartPending { opens: None } => {
            format!("waits for permission to reboot; `machinist reboot {machine}`")
        }
        WaitReason::Observing { would } if would.is_empty() => {
            "is only observed, and has not compared itself yet".to_owned()
        }
        WaitReason::Observing { would } => format!("is only observed: {would}"),
        WaitReason::Draining { blockers } if blockers.is_empty() => "is being drained".to_owned(),
        WaitReason::Draining { blockers } => {
            let messages: Vec<String> = blockers.iter().map(|b| b.message_at(now)).collect();
            format!("is being drained: {}", messages.join(", "))
        }
    }
}

/// What happened to a path.
fn drifted(path: &DriftedPath) -> String {
    let DriftedPath { path, kind, by } = path;
    let what = match kind {
        DriftKind::Content | DriftKind::Mode | DriftKind::Owner => "was changed",
        DriftKind::Missing => "was removed",
        DriftKind::Link => "was replaced by a link",
        DriftKind::Type => "was replaced by something that is not a file",
        DriftKind::Masked => "was masked",
        DriftKind::Unmasked => "was unmasked",
        DriftKind::Unexpected => "was created",
        DriftKind::Enablement => "was enabled or disabled",
        DriftKind::Unreadable => return format!("{path} cannot be read"),
    };
    match by {
        Some(by) => format!("{path} {what} by {by}"),
        None => format!("{path} {what} by hand"),
    }
}

/// A bounded list.
fn list(mut items: Vec<String>, separator: &str) -> String {
    let more = items.len().saturating_sub(MAX_NAMED);
    items.truncate(MAX_NAMED);
    let mut text = items.join(separator);
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// How long until a moment.
fn left(until: &Time, now: &Time) -> String {
    human_duration(until.0.duration_since(now.0))
}

/// A moment to come.
fn moment(at: &Time, now: &Time) -> String {
    format!("in {} ({})", left(at, now), at.0.strftime("%a %Y-%m-%d %H:%M UTC"))
}

/// Why the whole pool is stopped, and what to do about it.
pub(in crate::cli) fn halted_reason(pool: &str, halted: &RolloutHalted, now: &Time) -> String {
    match halted {
        RolloutHalted::NothingRendered => "the pool has no rendered config yet".to_owned(),
        RolloutHalted::Paused => {
            format!("the pool is paused; run `machinist resume {pool}` to continue")
        }
        RolloutHalted::BadConfig { config, failed } => {
            let who = if failed.is_empty() {
                "no machine fails on it now".to_owned()
            } else {
                format!("failed on {}", failed.join(", "))
            };
            format!(
                "{config} is marked as bad ({who}); run `machinist rollback {pool}`, or remove it from the annotation machinist.dev/bad-configs to retry"
            )
        }
        RolloutHalted::OutsideWindow { opens } => {
            format!("the maintenance window is closed; it opens {}", moment(opens, now))
        }
        RolloutHalted::Soaking { until } => {
            format!("the canary machines must stay healthy for another {}", left(until, now))
        }
        RolloutHalted::Observing { .. } => format!(
            "the machines are only observed; set machinist.dev/mode to enforce on the pool {pool} or on a Node to update them"
        ),
        RolloutHalted::RestartsPending { machines } => format!(
            "the remaining machines wait for permission to reboot; run `machinist reboot` for {}",
            list(machines.clone(), ", ")
        ),
    }
}

#[cfg(test)]
#[path = "reasons_tests.rs"]
mod tests;
