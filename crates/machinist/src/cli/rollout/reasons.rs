//! What a machine waits for, and why a pool stands still, in words.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_core::node::NotReady;
use machinist_core::rollout::{RolloutHalted, WaitReason};

/// What a machine waits for.
pub(super) fn waiting_reason(reason: &WaitReason, now: &Time) -> String {
    match reason {
        WaitReason::PoolPaused => "the pool is paused".to_owned(),
        WaitReason::NothingRendered => "the pool has no rendered config yet".to_owned(),
        // It has been told, and says that it is done: with what it had before.
        WaitReason::Working { state } if matches!(state.as_str(), "" | "Done") => {
            "has not started yet".to_owned()
        }
        WaitReason::Working { state } => format!("is at it ({state})"),
        WaitReason::Failing { message } => format!("failed on this config: {message}"),
        WaitReason::NotReady { because } => match because {
            NotReady::NotReady(status) => format!("is not ready (Ready={status})"),
            NotReady::DiskPressure(status) => format!("has DiskPressure={status}"),
            NotReady::NetworkUnavailable(status) => format!("has NetworkUnavailable={status}"),
            NotReady::Unschedulable => "is cordoned".to_owned(),
        },
        WaitReason::NoCapacity { away, .. } => format!("waits for {}", away.join(", ")),
        WaitReason::NotItsTurn { ahead } => format!("waits its turn; {ahead} go before it"),
        WaitReason::OutsideWindow { opens } => {
            format!("waits for the maintenance window, which opens at {}", opens.0)
        }
        WaitReason::Canary { machines } => {
            format!("waits until the first machines are through: {}", machines.join(", "))
        }
        WaitReason::Soaking { until } => {
            format!("waits until {} to see whether the first machines stay well", until.0)
        }
        WaitReason::Image { because } => format!("waits for the image of the pool: {because}"),
        WaitReason::BadConfig { config } => format!("too many machines failed on {config}"),
        WaitReason::RestartPending { opens: Some(opens) } => {
            format!("needs a restart, and may from {} on", opens.0)
        }
        WaitReason::RestartPending { opens: None } => {
            "needs a restart, and waits for permission (`machinist reboot`)".to_owned()
        }
        WaitReason::Draining { blockers } if blockers.is_empty() => {
            "is being emptied of its pods".to_owned()
        }
        WaitReason::Draining { blockers } => {
            let sentences: Vec<String> = blockers.iter().map(|b| b.message_at(now)).collect();
            format!("is being emptied of its pods: {}", sentences.join(", "))
        }
    }
}

/// Why the whole pool stands still, and what to do about it.
pub(super) fn halted_reason(pool: &str, halted: &RolloutHalted) -> String {
    match halted {
        RolloutHalted::NothingRendered => "the pool has no rendered config yet".to_owned(),
        RolloutHalted::Paused => {
            format!("the pool is paused; go on with `machinist resume {pool}`")
        }
        RolloutHalted::BadConfig { config, failed } => {
            let who = if failed.is_empty() {
                "no machine fails on it now".to_owned()
            } else {
                format!("failed on {}", failed.join(", "))
            };
            format!(
                "{config} is remembered as bad ({who}); go back with `machinist rollback {pool}`, or take it out of the annotation machinist.dev/bad-configs"
            )
        }
        RolloutHalted::OutsideWindow { opens } => {
            format!("the maintenance window is closed; it opens at {}", opens.0)
        }
        RolloutHalted::Soaking { until } => {
            format!("the first machines have to stay well until {}", until.0)
        }
        RolloutHalted::RestartsPending { machines } => format!(
            "all that is left are restarts that a person has to allow: `machinist reboot` {}",
            machines.join(", ")
        ),
    }
}
