//! When a failed drain is retried, and when it raises events and the alert. It never gives up.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The timeout of one attempt.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(90);
/// The delay before a refused eviction is retried.
pub const EVICTION_RETRY: Duration = Duration::from_secs(5);
/// The delay between a failed attempt and the next one.
pub const DRAIN_RETRY: Duration = Duration::from_secs(60);
/// The same, for a drain that has been failing for [`FAILING_AFTER`].
pub const SLOW_DRAIN_RETRY: Duration = Duration::from_secs(300);
/// After this time a drain counts as failing: an event is written and attempts become less frequent.
pub const FAILING_AFTER: Duration = Duration::from_secs(600);
/// After this time a drain raises the alert.
pub const ALERT_AFTER: Duration = Duration::from_secs(3600);
/// The delays between the five attempts to cordon or uncordon a machine.
pub const CORDON_DELAYS: [Duration; 4] = [
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(40),
    Duration::from_secs(80),
];

/// A `Warning` event about the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainWarning {
    /// The machine-readable reason.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

/// What follows from a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainRetry {
    /// The delay before the next attempt.
    pub after: Duration,
    /// The events to write.
    pub warnings: Vec<DrainWarning>,
    /// Whether the gauge `mcc_drain_err` of the machine is 1.
    pub alert: bool,
}

/// What follows from a failed attempt of a drain that began at `started`, the time of its first
/// cordon. The caller must keep that time across restarts, or the alert would never be raised.
#[must_use]
pub fn after_failure(node: &str, error: &str, started: &Time, now: &Time) -> DrainRetry {
    let failing: Duration = now.0.duration_since(started.0).try_into().unwrap_or_default();
    let mut warnings = Vec::new();
    let alert = failing > ALERT_AFTER;
    if alert {
        let message =
            format!("node {node}: drain exceeded timeout: 1h0m0s. Will continue to retry.");
        warnings.push(DrainWarning { reason: "DrainFailed", message });
    }
    if failing <= FAILING_AFTER {
        return DrainRetry { after: DRAIN_RETRY, warnings, alert };
    }
    let message = format!(
        "Drain failed. Drain has been failing for more than {} minutes. Waiting {} minutes then retrying. Error message from drain: {error}",
        FAILING_AFTER.as_secs() / 60,
        SLOW_DRAIN_RETRY.as_secs() / 60,
    );
    warnings.push(DrainWarning { reason: "DrainThresholdExceeded", message });
    DrainRetry { after: SLOW_DRAIN_RETRY, warnings, alert }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn attempts_back_off_and_events_are_sent() {
        let started: Time = serde_json::from_value(json!("2026-11-15T10:00:00Z")).unwrap();
        let (threshold, failed) = ("DrainThresholdExceeded", "DrainFailed");
        let cases: [(&str, u64, &[&str], bool); 7] = [
            ("09:00:00", 60, &[], false),
            ("10:00:00", 60, &[], false),
            ("10:10:00", 60, &[], false),
            ("10:10:01", 300, &[threshold], false),
            ("11:00:00", 300, &[threshold], false),
            ("11:00:01", 300, &[failed, threshold], true),
            ("23:00:00", 300, &[failed, threshold], true),
        ];
        for (clock, after, reasons, alert) in cases {
            let now = serde_json::from_value(json!(format!("2026-11-15T{clock}Z"))).unwrap();
            let retry = after_failure("n1", "no", &started, &now);
            let found: Vec<&str> = retry.warnings.iter().map(|warning| warning.reason).collect();
            assert_eq!((retry.after.as_secs(), retry.alert), (after, alert), "{clock}");
            assert_eq!(found, reasons, "{clock}");
            for warning in retry.warnings {
                let expected = if warning.reason == failed {
                    "node n1: drain exceeded timeout: 1h0m0s. Will continue to retry."
                } else {
                    "Drain failed. Drain has been failing for more than 10 minutes. Waiting 5 minutes then retrying. Error message from drain: no"
                };
                assert_eq!(warning.message, expected);
            }
        }
    }
}
