//! Which daemon a machine should run, and which it runs: two annotations of its Node. An administrator or the controller
//! writes the first, the daemon the second.
//!
//! Either may be hostile, so a reader trusts neither size nor characters.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::{NodeView, excerpt};
use crate::api::names::annotation::machinist;

/// A longer annotation is not read.
const MAX_ANNOTATION_BYTES: usize = 4096;
/// The longest reason that is written or read, in characters.
pub const MAX_UPGRADE_REASON_CHARS: usize = 500;
/// The largest binary.
pub const MAX_DAEMON_BYTES: u64 = 512 << 20;
/// The longest version and identifier that is read.
const MAX_WORD_BYTES: usize = 64;

/// Which binary machines should run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeRequest {
    /// Which request it is. A machine tries each one once.
    pub id: String,
    /// The SHA-256 digest of the binary, in lower-case hex.
    pub sha256: String,
    /// Its size.
    pub size: u64,
    /// The architecture that it is for, as a Node names it; not known of a file that is no ELF binary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Whether it may have an older version than the running daemon.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_downgrade: bool,
}

/// Why a request is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("annotation {}: {problem}: run `machinist upgrade` again", machinist::UPGRADE)]
pub struct UpgradeRequestError {
    /// What is wrong.
    pub problem: &'static str,
}

/// Whether a text is a digest as [`UpgradeRequest::sha256`] has it.
#[must_use]
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_word(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_');
    !text.is_empty() && text.len() <= MAX_WORD_BYTES && text.chars().all(is_plain)
}

impl UpgradeRequest {
    /// Reads the annotation.
    ///
    /// # Errors
    /// It is too long, or no request.
    pub fn parse(text: &str) -> Result<Self, UpgradeRequestError> {
        let error = |problem| UpgradeRequestError { problem };
        if text.len() > MAX_ANNOTATION_BYTES {
            return Err(error("it is too long"));
        }
        let request: Self = serde_json::from_str(text).map_err(|_| error("it cannot be read"))?;
        if !is_sha256(&request.sha256) {
            return Err(error("it has no SHA-256 digest"));
        }
        if request.size == 0 || request.size > MAX_DAEMON_BYTES {
            return Err(error("the size of the binary is out of range"));
        }
        if !is_word(&request.id) || !request.architecture.as_deref().is_none_or(is_word) {
            return Err(error("it has an invalid id or architecture"));
        }
        Ok(request)
    }
}

/// Which daemon a machine runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonReport {
    /// Its version.
    pub version: String,
    /// The digest of its binary.
    pub sha256: String,
    /// Since when it works.
    pub since: Time,
    /// The architecture of the host.
    pub architecture: String,
    /// Why it cannot upgrade itself, with the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_upgrade: Option<String>,
    /// The last request, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedUpgrade>,
}

/// A request that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedUpgrade {
    /// The request.
    pub id: String,
    /// Why.
    pub reason: String,
}

impl DaemonReport {
    /// Reads the annotation of a Node; none if it is no report.
    #[must_use]
    pub fn of(view: NodeView<'_>) -> Option<Self> {
        let text = view.annotation(machinist::DAEMON)?;
        if text.len() > MAX_ANNOTATION_BYTES {
            return None;
        }
        let mut report: Self = serde_json::from_str(text).ok()?;
        let is_valid =
            is_sha256(&report.sha256) && is_word(&report.version) && is_word(&report.architecture);
        let shorten = |text: &mut String| {
            *text = excerpt(text, MAX_UPGRADE_REASON_CHARS).to_owned();
        };
        report.cannot_upgrade.iter_mut().for_each(shorten);
        report.failed.iter_mut().for_each(|failed| shorten(&mut failed.reason));
        is_valid.then_some(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use serde_json::{Value, json};

    #[test]
    fn a_request_is_read_back_and_checked() {
        let good = json!({"id": "2026-01-01T00.00.00Z", "sha256": "a".repeat(64), "size": 7});
        let with = |key: &str, value: Value| {
            let mut all = good.clone();
            all[key] = value;
            all.to_string()
        };
        let request = UpgradeRequest::parse(&good.to_string()).unwrap();
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(UpgradeRequest::parse(&text), Ok(request));
        for (text, part) in [
            ("{".to_owned(), "cannot be read"),
            (with("x", json!("y".repeat(MAX_ANNOTATION_BYTES))), "too long"),
            (with("sha256", json!("A".repeat(64))), "no SHA-256"),
            (with("sha256", json!("../../etc/passwd")), "no SHA-256"),
            (with("size", json!(0)), "out of range"),
            (with("size", json!(MAX_DAEMON_BYTES + 1)), "out of range"),
            (with("id", json!("a b")), "invalid id"),
            (with("architecture", json!("\u{1b}[2J")), "invalid id"),
        ] {
            let error = UpgradeRequest::parse(&text).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("machinist upgrade"), "{error}");
        }
    }

    #[test]
    fn a_report_of_a_hostile_machine_is_bounded() {
        let node = |report: &str| -> Node {
            let annotations = json!({machinist::DAEMON: report});
            serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
        };
        let report = |reason: &str, version: &str| {
            json!({
                "version": version, "sha256": "b".repeat(64), "since": "2026-01-01T00:00:00Z",
                "architecture": "amd64", "failed": {"id": "1", "reason": reason},
            })
            .to_string()
        };
        let long = node(&report(&"é".repeat(1000), "0.1.0"));
        let failed = DaemonReport::of(NodeView(&long)).unwrap().failed.unwrap();
        assert_eq!(failed.reason.chars().count(), MAX_UPGRADE_REASON_CHARS);
        for bad in ["", "{", &report("x", "1\n2"), &report(&"x".repeat(9000), "1")] {
            assert_eq!(DaemonReport::of(NodeView(&node(bad))), None, "{bad}");
        }
    }
}
