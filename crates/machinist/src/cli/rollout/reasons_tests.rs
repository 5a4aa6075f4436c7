//! Every reason and its text.

use serde_json::{Value, json};

use super::*;

fn time(text: &str) -> Time {
    serde_json::from_value(json!(text)).unwrap()
}

fn drift(paths: &Value) -> WaitReason {
    WaitReason::Drifted { paths: serde_json::from_value(paths.clone()).unwrap() }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn every_reason_says_what_happens_and_what_to_do() {
    let now = time("2026-11-15T10:00:00Z");
    let later = time("2026-11-15T12:30:00Z");
    let text = str::to_owned;
    let table = [
        (WaitReason::PoolPaused, "the pool is paused"),
        (WaitReason::NothingRendered, "the pool has no rendered config yet"),
        (WaitReason::Working { state: text("Done") }, "has not started yet"),
        (WaitReason::Working { state: text("Working") }, "is updating (Working)"),
        (WaitReason::Working { state: text("Degraded") }, "tries again"),
        (WaitReason::Failing { message: text("disk full") }, "failed on this config: disk full"),
        (
            drift(&json!([{"path": "/etc/motd", "kind": "content"}])),
            "degraded: /etc/motd was changed by hand; `machinist heal w1`",
        ),
        (
            drift(&json!([
                {"path": "/etc/motd", "kind": "missing", "by": "rm (pid 812, user 0)"},
                {"path": "/etc/issue", "kind": "unreadable"},
            ])),
            "degraded: /etc/motd was removed by rm (pid 812, user 0); /etc/issue cannot be read; `machinist heal w1`",
        ),
        (WaitReason::Degraded { message: text("why") }, "degraded: why"),
        (WaitReason::Held { because: text("") }, "is held; `machinist release w1`"),
        (
            WaitReason::Held { because: text("a disk is replaced") },
            "is held (a disk is replaced); `machinist release w1`",
        ),
        (WaitReason::Superseded { config: text("old") }, "is still busy with old"),
        (WaitReason::Superseded { config: text("") }, "is busy with its first config"),
        (
            WaitReason::NotReady { because: NotReady::NotReady(text("Unknown")) },
            "is not ready (Ready=Unknown)",
        ),
        (WaitReason::NotReady { because: NotReady::Unschedulable }, "is cordoned"),
        (
            WaitReason::NoCapacity { max_unavailable: 2, away: names(&["w1", "w2"]).into() },
            "waits for w2",
        ),
        (
            WaitReason::NoCapacity { max_unavailable: 0, away: names(&[]).into() },
            "waits: the pool allows 0 unavailable machines",
        ),
        (
            WaitReason::NoCapacity {
                max_unavailable: 7,
                away: names(&["a", "b", "c", "d", "e", "f", "g"]).into(),
            },
            "waits for a, b, c, d, e and 2 more",
        ),
        (WaitReason::NotItsTurn { ahead: 1 }, "waits for its turn; 1 machine is before it"),
        (WaitReason::NotItsTurn { ahead: 3 }, "waits for its turn; 3 machines are before it"),
        (
            WaitReason::OutsideWindow { opens: later.clone() },
            "waits for the maintenance window, which opens in 150m (Sun 2026-11-15 12:30 UTC)",
        ),
        (
            WaitReason::Canary { machines: names(&["a", "b"]).into() },
            "waits for the canary machines: a, b",
        ),
        (
            WaitReason::Soaking { until: later.clone() },
            "waits to see whether the canary machines stay healthy; they are watched for another 150m",
        ),
        (
            WaitReason::Refused { because: text("it was made by kubeadm") },
            "would refuse the config: it was made by kubeadm",
        ),
        (
            WaitReason::Image { because: text("it is built") },
            "waits for the OS image of the pool: it is built",
        ),
        (WaitReason::BadConfig { config: text("x") }, "too many machines failed on x"),
        (
            WaitReason::RestartPending { opens: Some(later.clone()) },
            "needs a reboot; the maintenance window opens in 150m (Sun 2026-11-15 12:30 UTC)",
        ),
        (
            WaitReason::RestartPending { opens: None },
            "waits for permission to reboot; `machinist reboot w1`",
        ),
        (WaitReason::Draining { blockers: Vec::new() }, "is being drained"),
    ];
    for (reason, expected) in table {
        assert_eq!(waiting_reason("w1", &reason, &now), expected);
    }
}

#[test]
fn a_stopped_pool_says_what_to_do() {
    let now = time("2026-11-15T10:00:00Z");
    let later = time("2026-11-15T10:05:00Z");
    let table = [
        (RolloutHalted::NothingRendered, "the pool has no rendered config yet"),
        (RolloutHalted::Paused, "the pool is paused; run `machinist resume worker` to continue"),
        (
            RolloutHalted::BadConfig { config: "x".to_owned(), failed: names(&["a"]) },
            "x is marked as bad (failed on a); run `machinist rollback worker`, or remove it from the annotation machinist.dev/bad-configs to retry",
        ),
        (
            RolloutHalted::OutsideWindow { opens: later.clone() },
            "the maintenance window is closed; it opens in 5m (Sun 2026-11-15 10:05 UTC)",
        ),
        (
            RolloutHalted::Soaking { until: later },
            "the canary machines must stay healthy for another 5m",
        ),
        (
            RolloutHalted::RestartsPending { machines: names(&["a", "b"]) },
            "the remaining machines wait for permission to reboot; run `machinist reboot` for a, b",
        ),
    ];
    for (halted, expected) in table {
        assert_eq!(halted_reason("worker", &halted, &now), expected);
    }
}
