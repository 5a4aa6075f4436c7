//! What an administrator asks the daemon of a machine for, and how it answers: `machinist logs` and
//! `machinist diff --live`.
//!
//! A daemon only dials out, so the request is an annotation of its Node, and the answer one of its
//! MachineConfigNode. Others may read both objects: the answer is encrypted for the one who asked. Both are read
//! within limits, because either side may be hostile. Encryption and transport are in the shell.

use serde::{Deserialize, Serialize};

/// The longest request that is read.
pub const MAX_REQUEST_BYTES: usize = 1024;
/// The longest answer before it is encrypted. Encrypted and as text it fits into an annotation.
pub const MAX_REPORT_BYTES: usize = 96 << 10;
/// The longest answer that is read.
pub const MAX_ANSWER_BYTES: usize = 200 << 10;
/// The longest identifier of a request.
const MAX_ID_CHARS: usize = 64;
/// The longest position in a log.
const MAX_POSITION_CHARS: usize = 256;
/// The longest key, as text.
const MAX_RECIPIENT_CHARS: usize = 128;

/// What is asked for: the differences between disk and config.
pub const LIVE_DIFF: &str = "live-diff";
/// What is asked for: the log of the daemon.
pub const LOG: &str = "log";

/// A request to a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportRequest {
    /// Which request it is: an answer has the same.
    pub id: String,
    /// [`LIVE_DIFF`] or [`LOG`].
    pub report: String,
    /// The public key (age, X25519) for which the answer is encrypted.
    pub recipient: String,
    /// Of a log: only what comes after this position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Of a log: answer when there is something new, or after a while.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follow: bool,
}

/// The answer of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportAnswer {
    /// The request.
    pub id: String,
    /// The report, encrypted, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A part of the log of a daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogReport {
    /// The lines, oldest first.
    pub lines: Vec<String>,
    /// The position after the last line, for the next request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
}

/// Why a request or an answer is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// It is too long.
    #[error("{what} has {size} bytes; at most {max} are read")]
    TooLong {
        /// What is.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// It cannot be parsed. The message of the parser is left out: it may quote anything.
    #[error("{0} cannot be read: use the same version of machinist on both sides")]
    Invalid(&'static str),
}

fn parse<T: serde::de::DeserializeOwned>(
    what: &'static str,
    max: usize,
    text: &str,
) -> Result<T, ReportError> {
    if text.len() > max {
        return Err(ReportError::TooLong { what, size: text.len(), max });
    }
    serde_json::from_str(text).map_err(|_| ReportError::Invalid(what))
}

impl ReportRequest {
    /// Reads the annotation of a Node.
    ///
    /// # Errors
    /// It is too long, or no request.
    pub fn parse(text: &str) -> Result<Self, ReportError> {
        const WHAT: &str = "the request for a report";
        let request: Self = parse(WHAT, MAX_REQUEST_BYTES, text)?;
        let position = request.after.as_deref().unwrap_or_default();
        // A position becomes the argument of a command.
        let is_position = |c: char| c.is_ascii_alphanumeric() || matches!(c, '=' | ';' | ':');
        let is_valid = is_token(&request.id, MAX_ID_CHARS)
            && is_token(&request.recipient, MAX_RECIPIENT_CHARS)
            && position.len() <= MAX_POSITION_CHARS
            && position.chars().all(is_position);
        if is_valid { Ok(request) } else { Err(ReportError::Invalid(WHAT)) }
    }
}

fn is_token(text: &str, max: usize) -> bool {
    !text.is_empty() && text.len() <= max && text.chars().all(|c| c.is_ascii_alphanumeric())
}

impl ReportAnswer {
    /// Reads the annotation of a MachineConfigNode.
    ///
    /// # Errors
    /// It is too long, or no answer.
    pub fn parse(text: &str) -> Result<Self, ReportError> {
        parse("the answer of the machine", MAX_ANSWER_BYTES, text)
    }
}

impl LogReport {
    /// The last lines that fit into an answer. Earlier ones are left out, and a line says so.
    #[must_use]
    pub fn within_limit(mut self) -> Self {
        // What JSON adds to a line: quotes, a comma, and escapes, which a line may consist of.
        let size = |line: &String| serde_json::to_string(line).map_or(0, |text| text.len() + 1);
        let mut free = MAX_REPORT_BYTES - 1024;
        let mut first = self.lines.len();
        for (index, line) in self.lines.iter().enumerate().rev() {
            let Some(left) = free.checked_sub(size(line)) else { break };
            (free, first) = (left, index);
        }
        if first > 0 {
            self.lines.drain(..first);
            self.lines.insert(0, format!("… {first} earlier lines are left out"));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> ReportRequest {
        ReportRequest {
            id: "a1".into(),
            report: LOG.into(),
            recipient: "age1xyz".into(),
            after: Some("s=1f;i=2".into()),
            follow: true,
        }
    }

    #[test]
    fn a_request_is_read_back_and_checked() {
        let text = serde_json::to_string(&request()).unwrap();
        assert_eq!(ReportRequest::parse(&text), Ok(request()));
        let no_id = ReportRequest { id: String::new(), ..request() };
        let path = ReportRequest { recipient: "../x".into(), ..request() };
        let option = ReportRequest { after: Some("--file=/etc/shadow".into()), ..request() };
        for bad in [no_id, path, option] {
            let text = serde_json::to_string(&bad).unwrap();
            assert!(matches!(ReportRequest::parse(&text), Err(ReportError::Invalid(_))), "{text}");
        }
        let long = format!("{text}{}", " ".repeat(MAX_REQUEST_BYTES));
        let error = ReportRequest::parse(&long).unwrap_err().to_string();
        assert!(error.contains("at most 1024 are read"), "{error}");
        assert!(ReportRequest::parse("{").is_err() && ReportAnswer::parse("[]").is_err());
    }

    #[test]
    fn a_log_keeps_its_end_within_the_limit() {
        let short = LogReport { lines: vec!["a".into(), "b".into()], position: None };
        assert_eq!(short.clone().within_limit(), short);
        // Escaped, each of these characters takes six bytes.
        let line = "\u{1}".repeat(1000);
        let mut lines = vec![line; 100];
        lines.push("the end".into());
        let kept = LogReport { lines, position: Some("9".into()) }.within_limit();
        assert_eq!(kept.lines.last().unwrap(), "the end");
        assert_eq!(
            kept.lines[0],
            format!("… {} earlier lines are left out", 102 - kept.lines.len())
        );
        assert!(serde_json::to_vec(&kept).unwrap().len() <= MAX_REPORT_BYTES);
        let huge = LogReport { lines: vec!["x".repeat(MAX_REPORT_BYTES)], position: None };
        assert_eq!(huge.within_limit().lines, ["… 1 earlier lines are left out"]);
    }
}
