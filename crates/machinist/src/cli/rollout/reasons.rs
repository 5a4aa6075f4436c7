//! What a machine waits for and why a pool is stopped, as text with cause and remedy.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_core::node::NotReady;
use machinist_core::rollout::{RolloutHalted, WaitReason};

/// What a machine waits for.
pub(super) fn waiting_reason(reason: &WaitReason, now: &Time) -> String {
    match reason {
        WaitReason::PoolPaused => "the pool is paused".to_owned(),
        WaitReason::NothingRendered => "the pool has no rendered config yet".to_owned(),
        // The daemon has not seen the new config: its state is still that of the old one.
        WaitReason::Working { state } if matches!(state.as_str(), "" | "Done") => {
            "has not started yet".to_owned()
        }
        WaitReason::Working { state } => format!("is updating ({state})"),
        WaitReason::Failing { message } => format!("failed on this config: {message}"),
        WaitReason::NotReady { because } => match because {
            NotReady::NotReady(status) => format!("is not ready (Ready={status})"),
            NotReady::DiskPressure(status) => format!("has DiskPressure={status}"),
            NotReady::NetworkUnavailable(status) => format!("has NetworkUnavailable={status}"),
            NotReady::Unschedulable => "is cordoned".to_owned(),
        },
        WaitReason::NoCapacity { away, .. } => format!("waits for {}", away.join(", ")),
        WaitReason::NotItsTurn { ahead } => {
            format!("waits for its turn; {ahead} machines are before it")
        }
        WaitReason::OutsideWindow { opens } => {
            format!("waits for the maintenance window, which opens at {}", opens.0)
        }
        WaitReason::Canary { machines } => {
            format!("waits for the canary machines: {}", machines.join(", "))
        }
        WaitReason::Soaking { until } => {
            format!("waits until {} to see whether the canary machines stay healthy", until.0)
        }
        WaitReason::Image { because } => format!("waits for the OS image of the pool: {because}"),
        WaitReason::BadConfig { config } => format!("too many machines failed on {config}"),
        WaitReason::RestartPending { opens: Some(opens) } => {
            format!("needs a reboot, which is allowed from {} on", opens.0)
        }
        WaitReason::RestartPending { opens: None } => {
            "waits for permission to reboot; allow it with `machinist reboot`".to_owned()
        }
        WaitReason::Draining { blockers } if blockers.is_empty() => "is being drained".to_owned(),
        WaitReason::Draining { blockers } => {
            let messages: Vec<String> = blockers.iter().map(|b| b.message_at(now)).collect();
            format!("is being drained: {}", messages.join(", "))
        }
    }
}

/// Why the whole pool is stopped, and what to do about it.
pub(super) fn halted_reason(pool: &str, halted: &RolloutHalted) -> String {
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
            format!("the maintenance window is closed; it opens at {}", opens.0)
        }
        RolloutHalted::Soaking { until } => {
            format!("the canary machines must stay healthy until {}", until.0)
        }
        RolloutHalted::RestartsPending { machines } => format!(
            "the remaining machines wait for permission to reboot; run `machinist reboot` for {}",
            machines.join(", ")
        ),
    }
}
