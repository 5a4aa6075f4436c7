//! What blocks a drain: refused evictions as messages.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::Status;
use serde::Serialize;

use super::PodRef;

/// Why the API server refused an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictionRefusal {
    /// The pod no longer exists.
    AlreadyGone,
    /// Not now: retry after [`EVICTION_RETRY`](super::EVICTION_RETRY).
    Blocked {
        /// The disruption budget that would be violated, if that is the reason.
        budget: Option<String>,
        /// The server's message.
        message: String,
    },
    /// The namespace is being deleted, and the pod with it: retry, or wait if the pod is terminating.
    NamespaceTerminating,
    /// A retry will not help.
    Failed {
        /// The server's message.
        message: String,
    },
}

/// Why the API server refused an eviction.
#[must_use]
pub fn eviction_refusal(status: &Status) -> EvictionRefusal {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    if status.is_not_found() {
        return EvictionRefusal::AlreadyGone;
    }
    if status.code == 429 || status.reason == "TooManyRequests" {
        let cause = causes.clone().find(|cause| cause.reason == "DisruptionBudget");
        let message = cause.map_or(&status.message, |cause| &cause.message).clone();
        let budget = cause.and_then(|cause| budget_in(&cause.message));
        return EvictionRefusal::Blocked { budget, message };
    }
    if status.is_forbidden() && causes.clone().any(|cause| cause.reason == "NamespaceTerminating") {
        return EvictionRefusal::NamespaceTerminating;
    }
    EvictionRefusal::Failed { message: status.message.clone() }
}

/// The name in `The disruption budget NAME needs 2 healthy pods and has 1 currently`. The response
/// has no field for it.
fn budget_in(message: &str) -> Option<String> {
    let rest = message.strip_prefix("The disruption budget ")?;
    rest.split(' ').next().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// A pod that blocks the drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DrainBlocker {
    /// The pod.
    pub pod: PodRef,
    /// The disruption budget that protects it, if that is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// When its eviction was first refused.
    pub since: Time,
    /// The server's message.
    pub message: String,
}

impl DrainBlocker {
    /// The message: `pod ns/name blocked by budget NAME for 4 m`.
    #[must_use]
    pub fn message_at(&self, now: &Time) -> String {
        let time = minutes(now.0.duration_since(self.since.0).try_into().unwrap_or_default());
        match &self.budget {
            Some(budget) => format!("pod {} blocked by budget {budget} for {time}", self.pod),
            None => format!("pod {} blocked for {time}: {}", self.pod, self.message),
        }
    }
}

/// Whole minutes: the message is in a status, and seconds would mean a write every second.
fn minutes(time: Duration) -> String {
    match time.as_secs() / 60 {
        0 => "less than 1 m".to_owned(),
        minutes @ 1..60 => format!("{minutes} m"),
        minutes => format!("{} h {} m", minutes / 60, minutes % 60),
    }
}

/// The pods that block the drain now, with the latest reason. A pod that blocked it before keeps its
/// time, even if the reason has changed.
#[must_use]
pub fn blockers(
    before: &[DrainBlocker],
    found: impl IntoIterator<Item = (PodRef, Option<String>, String)>,
    now: &Time,
) -> Vec<DrainBlocker> {
    let mut blockers: Vec<DrainBlocker> = found
        .into_iter()
        .map(|(pod, budget, message)| {
            let known = before.iter().find(|blocker| blocker.pod == pod);
            let since = known.map_or(now, |blocker| &blocker.since).clone();
            DrainBlocker { pod, budget, since, message }
        })
        .collect();
    blockers.sort_by(|a, b| a.since.cmp(&b.since).then_with(|| a.pod.cmp(&b.pod)));
    blockers
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn status(value: Value) -> Status {
        serde_json::from_value(value).unwrap()
    }

    fn time(text: &str) -> Time {
        serde_json::from_value(json!(text)).unwrap()
    }

    fn pod(name: &str) -> PodRef {
        PodRef { namespace: "ns".to_owned(), name: name.to_owned(), uid: name.to_owned() }
    }

    /// Responses of a kube-apiserver.
    #[test]
    fn refusals_are_classified() {
        let budget = |text: &str| {
            json!({"status": "Failure", "code": 429, "reason": "TooManyRequests",
                   "message": "Cannot evict pod as it would violate the pod's disruption budget.",
                   "details": {"causes": [{"reason": "DisruptionBudget", "message": text}]}})
        };
        let blocked = |budget: Option<&str>, message: &str| EvictionRefusal::Blocked {
            budget: budget.map(str::to_owned),
            message: message.to_owned(),
        };
        let needs = "The disruption budget web needs 2 healthy pods and has 2 currently";
        let busy = "The disruption budget web is still being processed by the server.";
        let several = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        for (value, expected) in [
            (budget(needs), blocked(Some("web"), needs)),
            (budget(busy), blocked(Some("web"), busy)),
            (budget("something else"), blocked(None, "something else")),
            (
                json!({"code": 429, "reason": "TooManyRequests", "message": "too many requests"}),
                blocked(None, "too many requests"),
            ),
            (
                json!({"code": 404, "reason": "NotFound", "message": "gone"}),
                EvictionRefusal::AlreadyGone,
            ),
            (
                json!({"code": 403, "reason": "Forbidden", "message": "no",
                       "details": {"causes": [{"reason": "NamespaceTerminating", "message": "x"}]}}),
                EvictionRefusal::NamespaceTerminating,
            ),
            (
                json!({"code": 403, "reason": "Forbidden", "message": "no"}),
                EvictionRefusal::Failed { message: "no".to_owned() },
            ),
            (
                json!({"code": 500, "status": "Failure", "message": several}),
                EvictionRefusal::Failed { message: several.to_owned() },
            ),
        ] {
            assert_eq!(eviction_refusal(&status(value.clone())), expected, "{value}");
        }
    }

    #[test]
    fn blockers_keep_their_time() {
        let (first, later) = (time("2026-11-15T10:00:00Z"), time("2026-11-15T10:04:30Z"));
        let reason = |name: &str| (pod(name), Some("web".to_owned()), "no".to_owned());
        let before = blockers(&[], [reason("a")], &first);
        let now = blockers(&before, [reason("b"), reason("a")], &later);
        let sentences: Vec<String> = now.iter().map(|blocker| blocker.message_at(&later)).collect();
        assert_eq!(
            sentences,
            [
                "pod ns/a blocked by budget web for 4 m",
                "pod ns/b blocked by budget web for less than 1 m"
            ]
        );
        assert!(blockers(&now, [], &later).is_empty());
        let other = blockers(&before, [(pod("a"), None, "server busy".to_owned())], &later);
        assert_eq!(other[0].message_at(&later), "pod ns/a blocked for 4 m: server busy");
        let hours = time("2026-11-15T11:05:00Z");
        assert_eq!(now[0].message_at(&hours), "pod ns/a blocked by budget web for 1 h 5 m");
        // A clock that was set back.
        assert_eq!(now[1].message_at(&first), "pod ns/b blocked by budget web for less than 1 m");
    }
}
