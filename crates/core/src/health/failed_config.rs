//! The record of a config that a machine rolled back from. The machine does not try it again on its own.

use serde::{Deserialize, Serialize};

use super::FailedCheck;
use crate::api::names::annotation::machinist::RETRY;
use crate::versioned::{self, VersionedFileError};

/// The file.
pub const FAILED_CONFIG_PATH: &str = "/etc/machine-config-daemon/machinist-failed.json";
/// The version of the file that this version writes.
const VERSION: u32 = 1;

/// A config that a machine rolled back from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedConfig {
    /// The config.
    pub config: String,
    /// The config that it returned to.
    pub previous: String,
    /// The layered image that came with it; empty if there was none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The check that failed.
    pub failing: FailedCheck,
}

impl FailedConfig {
    /// Why the machine is degraded.
    #[must_use]
    pub fn reason(&self) -> String {
        let Self { config, previous, failing, .. } = self;
        format!(
            "health check failed on {config}: {failing}; the machine rolled back to {previous} and does not try again on its own: correct the config, or set the annotation {RETRY}={config} on the Node"
        )
    }

    /// The contents of the file.
    ///
    /// # Errors
    /// The record cannot be written as JSON.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        versioned::to_json(VERSION, self)
    }

    /// Reads the contents of the file.
    ///
    /// # Errors
    /// The file is damaged, or a newer Machinist wrote it.
    pub fn from_json(bytes: &[u8]) -> Result<Self, VersionedFileError> {
        versioned::from_json(FAILED_CONFIG_PATH, VERSION, bytes)
    }
}

/// Whether a config may be tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetryDecision {
    /// It did not fail. The record of another config is removed.
    Allowed,
    /// It failed, and a person asks to try it again. The annotation is removed, so that it is tried once.
    RetryRequested,
    /// It failed, and nobody asks to try it again.
    Denied {
        /// Why the machine is degraded.
        reason: String,
    },
}

/// Decides whether a machine may try a config. `retry` is the annotation of its Node that names the
/// config to try again; the force file has the same meaning.
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
        // The same config with another image is another config.
        let other = may_try(marker, ("rendered-new", "image"), None, false);
        assert_eq!(other, RetryDecision::Allowed);
        let RetryDecision::Denied { reason } = no else { return };
        assert_eq!(
            reason,
            "health check failed on rendered-new: unit a.service: is failed; the machine rolled back to rendered-old and does not try again on its own: correct the config, or set the annotation machinist.dev/retry=rendered-new on the Node"
        );
    }

    #[test]
    fn a_file_of_the_first_release_is_read() {
        let old =
            r#"{"config":"b","previous":"a","failing":{"check":"API","problem":"no answer"}}"#;
        let read = FailedConfig::from_json(old.as_bytes()).unwrap();
        assert_eq!((read.config.as_str(), read.image.as_str()), ("b", ""));
        let written = read.to_json().unwrap();
        assert!(written.starts_with(br#"{"version":1,"#));
        assert_eq!(FailedConfig::from_json(&written), Ok(read));
        assert!(FailedConfig::from_json(br#"{"version":2}"#).is_err());
    }
}
