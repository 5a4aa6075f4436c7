//! The audit log: one JSON line per write request and per backup, with the user, address, verb, object and status code.
//!
//! Never records object contents. Called by the router after each write and before each backup.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent<'a> {
    /// Time, in RFC 3339.
    pub time: &'a str,
    /// User name.
    pub user: &'a str,
    /// Groups of the user.
    pub groups: &'a [String],
    /// The user as whom the request was made, if not that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonated_user: Option<ImpersonatedUser<'a>>,
    /// The address of the client; none for a component in the same process.
    #[serde(rename = "sourceIP", skip_serializing_if = "Option::is_none")]
    pub source_ip: Option<IpAddr>,
    /// Verb.
    pub verb: &'a str,
    /// API group of the object.
    pub group: &'a str,
    /// Resource, with its subresource.
    pub resource: &'a str,
    /// Namespace of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<&'a str>,
    /// Name of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'a str>,
    /// Whether the request was a dry run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Whether the response contains Secrets: only a backup says so, because it is no request for one object.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub includes_secrets: bool,
    /// HTTP status code of the response.
    pub code: u16,
}

/// The user of an impersonated request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ImpersonatedUser<'a> {
    /// User name.
    pub username: &'a str,
    /// Groups of the user.
    pub groups: &'a [String],
}

/// The longest valid name. A refused request may have sent any, and must not push other events out of the log.
const MAX_NAME_BYTES: usize = 253;

fn shortened(name: &str) -> &str {
    let ends = name.char_indices().map(|(at, letter)| at + letter.len_utf8());
    &name[..ends.take_while(|end| *end <= MAX_NAME_BYTES).last().unwrap_or(0)]
}

/// The file is rotated at this size; one old file is kept.
const ROTATE_AT_BYTES: u64 = 64 << 20;

/// Writes audit events. A clone writes to the same file.
#[derive(Debug, Clone, Default)]
pub struct AuditLog {
    sink: Option<Arc<Mutex<AuditFile>>>,
}

#[derive(Debug)]
struct AuditFile {
    path: PathBuf,
    file: File,
    size: u64,
}

impl AuditLog {
    /// Discards all events.
    #[must_use]
    pub fn disabled() -> Self {
        Self::default()
    }

    /// Appends to a file that only its owner can read.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn to_file(path: &Path) -> std::io::Result<Self> {
        let file = open(path)?;
        let size = file.metadata()?.len();
        let sink = AuditFile { path: path.to_owned(), file, size };
        Ok(Self { sink: Some(Arc::new(Mutex::new(sink))) })
    }

    /// Writes one line. A failure is only logged: the audited request has already been committed.
    pub fn log(&self, line: &AuditEvent<'_>) {
        let Some(sink) = &self.sink else { return };
        let line = AuditEvent {
            namespace: line.namespace.map(shortened),
            name: line.name.map(shortened),
            ..*line
        };
        let Ok(mut bytes) = serde_json::to_vec(&line) else { return };
        bytes.push(b'\n');
        if let Err(error) = sink.lock().write(&bytes) {
            tracing::warn!(%error, "cannot write the audit log");
        }
    }
}

impl AuditFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if self.size > ROTATE_AT_BYTES {
            let mut aside = self.path.clone().into_os_string();
            aside.push(".1");
            std::fs::rename(&self.path, aside)?;
            self.file = open(&self.path)?;
            self.size = 0;
        }
        self.file.write_all(bytes)?;
        self.size += bytes.len() as u64;
        Ok(())
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_write_is_logged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let line = AuditEvent {
            time: "t",
            user: "u",
            groups: &["g".to_owned()],
            impersonated_user: Some(ImpersonatedUser { username: "v", groups: &[] }),
            source_ip: Some(IpAddr::from([10, 0, 0, 7])),
            verb: "create",
            group: "",
            resource: "nodes",
            namespace: None,
            name: Some("a"),
            dry_run: false,
            includes_secrets: false,
            code: 201,
        };
        for _ in 0..2 {
            AuditLog::to_file(&path).unwrap().log(&line);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = r#"{"time":"t","user":"u","groups":["g"],"impersonatedUser":{"username":"v","groups":[]},"sourceIP":"10.0.0.7","verb":"create","group":"","resource":"nodes","name":"a","code":201}"#;
        assert_eq!(text, format!("{expected}\n{expected}\n"));
        AuditLog::disabled().log(&line);
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(shortened("a"), "a");
        assert_eq!(shortened(&"ä".repeat(2_000_000)).len(), 252);
    }
}
