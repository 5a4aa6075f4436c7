//! The audit log: one JSON line per write request and per backup, with the user, address, verb, object and status code.
//!
//! Never records object contents. Each class of users has a file of its own: what machines and tokens do must not push
//! the events of administrators out of the log; and each machine and token has a budget of lines. Called by the router
//! after each write and before each backup.

mod line_budget;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use self::line_budget::LineBudgets;
use crate::auth::{ADMIN_GROUP, CONTROLLER_GROUP, NODE_GROUP};
use crate::failure_log::FailureLog;

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

/// An event as it is written.
#[derive(Debug, Serialize)]
struct AuditLine<'a> {
    #[serde(flatten)]
    event: AuditEvent<'a>,
    /// How many events of this user were not written before this one, because there were too many.
    #[serde(skip_serializing_if = "is_zero")]
    omitted: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
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

/// Whose events share a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AuditClass {
    Administrators,
    Controllers,
    Machines,
    /// Bootstrap tokens, viewers and whoever has no rights.
    Others,
}

impl AuditClass {
    const ALL: [Self; 4] = [Self::Administrators, Self::Controllers, Self::Machines, Self::Others];

    /// The class of the user who made the request, whoever it was made as.
    fn of(groups: &[String]) -> Self {
        let is_in = |group: &str| groups.iter().any(|own| own == group);
        if is_in(ADMIN_GROUP) {
            Self::Administrators
        } else if is_in(CONTROLLER_GROUP) {
            Self::Controllers
        } else if is_in(NODE_GROUP) {
            Self::Machines
        } else {
            Self::Others
        }
    }

    /// What the name of the file has after `audit`.
    fn suffix(self) -> &'static str {
        match self {
            Self::Administrators => "",
            Self::Controllers => "-controllers",
            Self::Machines => "-machines",
            Self::Others => "-others",
        }
    }

    /// Whether each user of the class has a budget of lines.
    fn is_limited(self) -> bool {
        matches!(self, Self::Machines | Self::Others)
    }

    /// The file is rotated at this size; one old file is kept.
    fn rotate_at(self) -> u64 {
        match self {
            Self::Administrators => 64 << 20,
            _ => 32 << 20,
        }
    }
}

/// Writes audit events. A clone writes to the same files.
#[derive(Debug, Clone, Default)]
pub struct AuditLog {
    sinks: Option<Arc<AuditSinks>>,
    failures: FailureLog,
}

#[derive(Debug)]
struct AuditSinks {
    files: [Mutex<AuditFile>; AuditClass::ALL.len()],
    budgets: Mutex<LineBudgets>,
}

#[derive(Debug)]
struct AuditFile {
    path: PathBuf,
    /// Opened by the first line.
    file: Option<File>,
    size: u64,
    rotate_at: u64,
}

impl AuditLog {
    /// Discards all events.
    #[must_use]
    pub fn disabled() -> Self {
        Self::default()
    }

    /// Appends the events of administrators to this file, and those of others to files next to it. Only their owner
    /// can read them.
    ///
    /// # Errors
    /// The file of administrators cannot be opened. The others are made when they are needed: a hub must start on a
    /// full disk, too.
    pub fn to_file(path: &Path) -> std::io::Result<Self> {
        Self::with_sizes(path, AuditClass::rotate_at)
    }

    fn with_sizes(path: &Path, rotate_at: impl Fn(AuditClass) -> u64) -> std::io::Result<Self> {
        let new = |class| AuditFile::new(path_of(path, class), rotate_at(class));
        let mut files = AuditClass::ALL.map(new);
        files[AuditClass::Administrators as usize].open()?;
        let sinks = AuditSinks { files: files.map(Mutex::new), budgets: Mutex::default() };
        Ok(Self { sinks: Some(Arc::new(sinks)), failures: FailureLog::default() })
    }

    /// Reports lines that cannot be written to the log of the process.
    #[must_use]
    pub fn reporting_to(self, failures: FailureLog) -> Self {
        Self { failures, ..self }
    }

    /// Writes one line. A failure is only reported: the audited request has already been committed.
    pub fn log(&self, line: &AuditEvent<'_>) {
        let Some(sinks) = &self.sinks else { return };
        let class = AuditClass::of(line.groups);
        let admitted = if class.is_limited() { sinks.budgets.lock().admit(line) } else { Some(0) };
        let Some(omitted) = admitted else { return };
        let event = AuditEvent {
            namespace: line.namespace.map(shortened),
            name: line.name.map(shortened),
            ..*line
        };
        let line = AuditLine { event, omitted };
        let Ok(mut bytes) = serde_json::to_vec(&line) else { return };
        bytes.push(b'\n');
        let mut sink = sinks.files[class as usize].lock();
        let written = sink.write(&bytes);
        let path = sink.path.display().to_string();
        drop(sink);
        self.failures.record("write the audit log", &path, written);
    }
}

/// The file of a class: `audit.log` is that of administrators, `audit-machines.log` that of machines.
fn path_of(administrators: &Path, class: AuditClass) -> PathBuf {
    let text = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = (text(administrators.file_stem()), text(administrators.extension()));
    administrators.with_file_name(format!("{stem}{}", class.suffix())).with_extension(extension)
}

impl AuditFile {
    fn new(path: PathBuf, rotate_at: u64) -> Self {
        Self { path, file: None, size: 0, rotate_at }
    }

    fn open(&mut self) -> std::io::Result<()> {
        let file = open(&self.path)?;
        self.size = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if self.size > self.rotate_at {
            let mut aside = self.path.clone().into_os_string();
            aside.push(".1");
            std::fs::rename(&self.path, aside)?;
            self.file = None;
        }
        if self.file.is_none() {
            self.open()?;
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        if let Err(error) = file.write_all(bytes) {
            // On a full disk a part of the line may fit. The next line must not continue it.
            let _ = file.set_len(self.size);
            return Err(error);
        }
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

    pub(super) fn event<'a>(user: &'a str, groups: &'a [String]) -> AuditEvent<'a> {
        AuditEvent {
            time: "t",
            user,
            groups,
            impersonated_user: None,
            source_ip: Some(IpAddr::from([10, 0, 0, 7])),
            verb: "create",
            group: "",
            resource: "nodes",
            namespace: None,
            name: Some("a"),
            dry_run: false,
            includes_secrets: false,
            code: 201,
        }
    }

    #[test]
    fn each_write_is_logged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let groups = [ADMIN_GROUP.to_owned()];
        let impersonated_user = Some(ImpersonatedUser { username: "v", groups: &[] });
        let line = AuditEvent { impersonated_user, ..event("u", &groups) };
        for _ in 0..2 {
            AuditLog::to_file(&path).unwrap().log(&line);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = r#"{"time":"t","user":"u","groups":["system:masters"],"impersonatedUser":{"username":"v","groups":[]},"sourceIP":"10.0.0.7","verb":"create","group":"","resource":"nodes","name":"a","code":201}"#;
        assert_eq!(text, format!("{expected}\n{expected}\n"));
        AuditLog::disabled().log(&line);
    }

    /// A flood of every other identity, many times the size of its file: the events of an administrator stay, and
    /// all files together stay bounded.
    #[test]
    fn a_flood_of_one_class_keeps_the_events_of_the_others() {
        const SIZE: u64 = 16 << 10;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = AuditLog::with_sizes(&path, |_| SIZE).unwrap();
        let users = [
            ("admin", vec![ADMIN_GROUP.to_owned(), "system:authenticated".to_owned()], "audit.log"),
            ("controller", vec![CONTROLLER_GROUP.to_owned()], "audit-controllers.log"),
            ("system:node:a", vec![NODE_GROUP.to_owned()], "audit-machines.log"),
            ("token", vec![crate::auth::BOOTSTRAP_GROUP.to_owned()], "audit-others.log"),
            ("viewer", vec![crate::auth::VIEWER_GROUP.to_owned()], "audit-others.log"),
            ("system:anonymous", vec!["system:unauthenticated".to_owned()], "audit-others.log"),
        ];
        let lines = |name: &str, user: &str| {
            let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
            text.matches(&format!("\"user\":\"{user}\"")).count()
        };
        for (user, groups, file) in &users {
            log.log(&event(user, groups));
            assert_eq!(lines(file, user), 1, "{user}");
        }
        for (user, groups, _) in &users[1..] {
            (0..1000).for_each(|_| log.log(&event(user, groups)));
        }
        assert_eq!(lines("audit.log", "admin"), 1);
        let sizes = std::fs::read_dir(dir.path()).unwrap();
        let sizes: Vec<u64> = sizes.map(|file| file.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(sizes.len(), 7, "the file of administrators is not rotated");
        assert!(sizes.iter().all(|size| *size < SIZE + 1024), "{sizes:?}");
    }

    /// One machine writes what is refused, a hundred thousand times: what another machine did stays.
    #[test]
    fn a_flood_of_one_machine_keeps_the_events_of_another() {
        let dir = tempfile::tempdir().unwrap();
        let log = AuditLog::with_sizes(&dir.path().join("audit.log"), |_| 256 << 10).unwrap();
        let groups = [NODE_GROUP.to_owned()];
        log.log(&event("system:node:a", &groups));
        let refused = AuditEvent { code: 403, ..event("system:node:b", &groups) };
        (0..100_000).for_each(|_| log.log(&refused));
        log.log(&event("system:node:b", &groups));
        let text = std::fs::read_to_string(dir.path().join("audit-machines.log")).unwrap();
        assert!(text.starts_with(r#"{"time":"t","user":"system:node:a""#), "{text:.200}");
        assert!(
            text.ends_with("\"code\":201,\"omitted\":99500}\n"),
            "{}",
            text.lines().last().unwrap()
        );
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(shortened("a"), "a");
        assert_eq!(shortened(&"ä".repeat(2_000_000)).len(), 252);
    }
}
