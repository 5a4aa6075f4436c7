//! The memory of a config that did a machine no good: it is not tried again by itself.

use serde::{Deserialize, Serialize};

use super::FailedCheck;
use crate::api::names::annotation::machinist::RETRY;

/// Where a machine keeps it.
pub const FAILED_CONFIG_PATH: &str = "/etc/machine-config-daemon/machinist-failed.json";

/// A config that a machine has gone back from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedConfig {
    /// The config.
    pub config: String,
    /// The config that the machine has gone back to.
    pub previous: String,
    /// The image of the pool's own that came with it, if any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// What did not hold.
    pub failing: FailedCheck,
}

impl FailedConfig {
    /// Why the machine is degraded.
    #[must_use]
    pub fn reason(&self) -> String {
        let Self { config, previous, failing, .. } = self;
        format!(
            "health check failed on {config}: {failing}; the machine went back to {previous} and does not try again by itself: correct the config, or set the annotation {RETRY}={config} on the Node"
        )
    }
}

/// Whether a config may be tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetryDecision {
    /// Nothing speaks against it. What is kept of another config is forgotten.
    Allowed,
    /// It failed, and somebody wants it tried again: the annotation goes, so that it is once.
    RetryRequested,
    /// It failed, and nobody has said that it should be tried again.
    Denied {
        /// Why the machine is degraded.
        reason: String,
    },
}

/// Whether a machine may try a config. `retry` is the annotation of its Node that names a config to
/// be tried again; the force file means that too.
#[must_use]
pub fn may_try(
    marker: Option<&FailedConfig>,
    (desired, image): (&str, &str),
    retry: Option<&str>,
    force: bool,
) -> RetryDecision {
    match marker.filter(|marker| marker.config == desired && marker.image == image) {
        None => RetryDecision::Allowed,
        Some(_) if force || retry == Some(desired) => RetryDecision::RetryRequested,
        Some(marker) => RetryDecision::Denied { reason: marker.reason() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_config_is_retried_only_on_request() {
        let failing =
            FailedCheck { check: "unit a.service".to_owned(), problem: "is failed".to_owned() };
        let (config, previous) = ("rendered-new".to_owned(), "rendered-old".to_owned());
        let marker = FailedConfig { config, previous, image: String::new(), failing };
        let no = RetryDecision::Denied { reason: marker.reason() };
        let marker = Some(&marker);
        for (marker, desired, retry, force, expected) in [
            (None, "rendered-new", None, false, RetryDecision::Allowed),
            (marker, "rendered-old", None, false, RetryDecision::Allowed),
            (marker, "rendered-newer", Some("rendered-new"), false, RetryDecision::Allowed),
            (marker, "rendered-new", None, false, no.clone()),
            (marker, "rendered-new", Some("rendered-old"), false, no.clone()),
            (marker, "rendered-new", Some("rendered-new"), false, RetryDecision::RetryRequested),
            (marker, "rendered-new", None, true, RetryDecision::RetryRequested),
        ] {
            assert_eq!(
                may_try(marker, (desired, ""), retry, force),
                expected,
                "{desired} {retry:?}"
            );
        }
        // Another image of the same config is another thing.
        let other = may_try(marker, ("rendered-new", "image"), None, false);
        assert_eq!(other, RetryDecision::Allowed);
        let RetryDecision::Denied { reason } = no else { return };
        assert_eq!(
            reason,
            "health check failed on rendered-new: unit a.service: is failed; the machine went back to rendered-old and does not try again by itself: correct the config, or set the annotation machinist.dev/retry=rendered-new on the Node"
        );
    }
}
