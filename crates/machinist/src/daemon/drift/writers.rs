//! Which process touched a name: fanotify reports the process, inotify does not.
//!
//! It needs root, a kernel from 5.9 on and a file system with file handles; in a container the processes of
//! the host have to be visible. Without these, drift is reported without its writer.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;

use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use rustix::io::{Errno, read};

/// `FAN_REPORT_DIR_FID` and `FAN_REPORT_NAME`: names in directories instead of open files.
const REPORT_NAMES: u32 = 0x0000_0400 | 0x0000_0800;
/// `FAN_EVENT_INFO_TYPE_DFID_NAME`: a directory and a name in it.
const NAME_RECORD: u8 = 2;
/// The maximum number of names that are remembered between two checks.
const MAX_REMEMBERED: usize = 4096;

/// A process that touched something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WriterProcess {
    /// The process ID.
    pub(crate) pid: i32,
    /// Its command, unless it ended before it could be looked up.
    pub(crate) command: Option<String>,
    /// Its user ID.
    pub(crate) uid: Option<u32>,
    /// The ID of the user who logged in, before any sudo or su.
    pub(crate) login_uid: Option<u32>,
    /// The systemd unit it belongs to.
    pub(crate) unit: Option<String>,
}

impl fmt::Display for WriterProcess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, command, uid, login_uid: login, .. } = self;
        let command = command.as_deref().unwrap_or("a process that has ended");
        write!(formatter, "{command} (pid {pid}")?;
        if let Some(uid) = uid {
            write!(formatter, ", user {uid}")?;
        }
        if let Some(login) = login {
            write!(formatter, ", logged in as {login}")?;
        }
        formatter.write_str(")")
    }
}

/// Listens for processes that touch names in directories.
#[derive(Debug)]
pub(super) struct WriterTracker {
    fanotify: Option<Fanotify>,
    /// The last process for each name.
    by_path: HashMap<String, WriterProcess>,
}

impl WriterTracker {
    pub(super) fn new() -> Self {
        let flags = InitFlags::FAN_CLASS_NOTIF
            | InitFlags::FAN_CLOEXEC
            | InitFlags::FAN_NONBLOCK
            | InitFlags::from_bits_retain(REPORT_NAMES);
        let fanotify = Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC);
        Self { fanotify: fanotify.ok(), by_path: HashMap::new() }
    }

    /// Whether the kernel reports processes.
    #[cfg(test)]
    pub(super) fn is_available(&self) -> bool {
        self.fanotify.is_some()
    }

    /// Stops listening in all directories.
    pub(super) fn clear(&mut self) {
        if let Some(fanotify) = &self.fanotify {
            let root: Option<&Path> = None;
            let _ =
                fanotify.mark(MarkFlags::FAN_MARK_FLUSH, MaskFlags::empty(), rustix::fs::CWD, root);
        }
    }

    /// Starts listening in a directory.
    pub(super) fn add(&mut self, directory: BorrowedFd<'_>) {
        let Some(fanotify) = &self.fanotify else { return };
        let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_ONLYDIR;
        let events = MaskFlags::FAN_CREATE
            | MaskFlags::FAN_MODIFY
            | MaskFlags::FAN_ATTRIB
            | MaskFlags::FAN_DELETE
            | MaskFlags::FAN_MOVED_FROM
            | MaskFlags::FAN_MOVED_TO
            | MaskFlags::FAN_EVENT_ON_CHILD
            | MaskFlags::FAN_ONDIR;
        let itself: Option<&Path> = None;
        // A file system without support is skipped.
        let _ = fanotify.mark(flags, events, directory, itself);
    }

    /// Reads pending events. It must be called soon after they happen: a process that has ended has no name.
    pub(super) fn read_events(&mut self) {
        let Some(fanotify) = &self.fanotify else { return };
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let mut processes: HashMap<i32, WriterProcess> = HashMap::new();
        let mut buffer = vec![0; 16 << 10];
        loop {
            let count = match read(fanotify, &mut buffer) {
                Ok(0) => return,
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            for (pid, name) in parse_events(&buffer[..count]) {
                if pid > 0 && pid != own && self.by_path.len() < MAX_REMEMBERED {
                    let writer = processes.entry(pid).or_insert_with(|| process_info(pid));
                    self.by_path.insert(name, writer.clone());
                }
            }
        }
    }

    /// The process that last touched a path, or the nearest directory above it.
    pub(super) fn writer_of(&self, path: &str) -> Option<&WriterProcess> {
        path.rsplit('/').find_map(|name| self.by_path.get(name))
    }

    /// Forgets all processes.
    pub(super) fn forget_writers(&mut self) {
        self.by_path.clear();
    }
}

/// Command and user of a process.
fn process_info(pid: i32) -> WriterProcess {
    let text = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    let status = text("status").unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next());
    let login: Option<u32> = text("loginuid").and_then(|text| text.trim().parse().ok());
    WriterProcess {
        pid,
        command: text("comm").map(|text| text.trim().to_owned()),
        uid: uid.and_then(|uid| uid.parse().ok()),
        // All bits set: no login.
        login_uid: login.filter(|login| *login != u32::MAX),
        unit: text("cgroup").and_then(|text| unit_of_cgroup(&text)),
    }
}

/// The unit in `/proc/PID/cgroup`: the innermost service or scope.
fn unit_of_cgroup(text: &str) -> Option<String> {
    let is_systemd = |line: &&str| line.starts_with("0::") || line.contains(":name=systemd:");
    let is_unit = |name: &&str| name.ends_with(".service") || name.ends_with(".scope");
    let name = text.lines().filter(is_systemd).find_map(|line| line.rsplit('/').find(is_unit));
    name.map(str::to_owned)
}

/// A process that has a file open for writing, for machines where the kernel does not report writers.
pub(super) fn writing_process(path: &Path) -> Option<WriterProcess> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_writing = |pid: &i32| {
        let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        files.flatten().any(|file| {
            let info = format!("/proc/{pid}/fdinfo/{}", file.file_name().display());
            fs::read_link(file.path()).is_ok_and(|target| target == path)
                && fs::read_to_string(info).is_ok_and(|info| is_open_for_writing(&info))
        })
    };
    pids.filter(|pid| *pid != own).find(is_writing).map(process_info)
}

/// Whether the flags in `/proc/PID/fdinfo/FD` include `O_WRONLY` or `O_RDWR`.
fn is_open_for_writing(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u64::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & 0o3 != 0)
}

/// A unit with a process whose command line names a path. Only a hint: the process may only read it.
pub(crate) fn suspect_unit(path: &str) -> Option<String> {
    let own = std::process::id().to_string();
    let is_end = |byte: Option<&u8>| {
        byte.is_none_or(|byte| !byte.is_ascii_alphanumeric() && !b"/-_.".contains(byte))
    };
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        if !is_process || name.to_str() == Some(&own) {
            continue;
        }
        let Ok(command) = fs::read(entry.path().join("cmdline")) else { continue };
        let names_it = command.windows(path.len()).enumerate().any(|(at, part)| {
            part == path.as_bytes()
                && is_end(command.get(at + path.len()))
                && is_end(at.checked_sub(1).and_then(|before| command.get(before)))
        });
        let cgroup = || fs::read_to_string(entry.path().join("cgroup")).ok();
        if names_it && let Some(unit) = cgroup().and_then(|text| unit_of_cgroup(&text)) {
            return Some(unit);
        }
    }
    None
}

/// The process and the name of each event, in the layout of fanotify(7).
fn parse_events(mut bytes: &[u8]) -> Vec<(i32, String)> {
    let mut all = Vec::new();
    while let Some((event, rest)) = split_event(bytes) {
        bytes = rest;
        let Some(pid) = i32_at(event, 20) else { continue };
        let head = event.get(6..8).map_or(24, |two| u16::from_ne_bytes([two[0], two[1]]).into());
        let mut records = event.get(head..).unwrap_or_default();
        while let Some((record, rest)) = split_record(records) {
            records = rest;
            // The name follows the handle of the directory, which is preceded by its length.
            let handle = i32_at(record, 12).and_then(|length| usize::try_from(length).ok());
            let name = handle.and_then(|length| record.get(20_usize.checked_add(length)?..));
            if record[0] == NAME_RECORD
                && let Some(name) = name
            {
                let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                all.push((pid, String::from_utf8_lossy(&name[..end]).into_owned()));
            }
        }
    }
    all
}

/// The first event, and the rest.
fn split_event(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::try_from(i32_at(bytes, 0)?).ok().filter(|length| *length >= 24)?;
    bytes.split_at_checked(length)
}

/// The first record of an event, and the rest.
fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = bytes.get(2..4).map(|two| u16::from_ne_bytes([two[0], two[1]]))?;
    bytes.split_at_checked(length.into()).filter(|_| length >= 4)
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(i32::from_ne_bytes(four.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_are_read_as_the_kernel_writes_them() {
        let record = |name: &str| {
            let mut record = vec![2, 0, 0, 0];
            record.extend([0; 8]);
            record.extend(8_i32.to_ne_bytes());
            record.extend([0; 4]);
            record.extend([9; 8]);
            record.extend(name.as_bytes());
            record.push(0);
            while record.len() % 4 != 0 {
                record.push(0);
            }
            let length = u16::try_from(record.len()).unwrap().to_ne_bytes();
            record[2..4].copy_from_slice(&length);
            record
        };
        let event = |pid: i32, records: &[u8]| {
            let length = u32::try_from(24 + records.len()).unwrap();
            let mut event = length.to_ne_bytes().to_vec();
            event.extend([3, 0]);
            event.extend(24_u16.to_ne_bytes());
            event.extend([0; 8]);
            event.extend((-1_i32).to_ne_bytes());
            event.extend(pid.to_ne_bytes());
            event.extend(records);
            event
        };
        let bytes = [event(7, &record("motd")), event(8, &[]), event(9, &record("a b"))].concat();
        assert_eq!(parse_events(&bytes), [(7, "motd".to_owned()), (9, "a b".to_owned())]);
    }

    #[test]
    fn the_unit_of_a_process_is_the_innermost_service_or_scope() {
        for (text, expected) in [
            ("0::/system.slice/fighter.service\n", Some("fighter.service")),
            ("0::/system.slice/fighter.service/payload\n", Some("fighter.service")),
            ("0::/user.slice/user-0.slice/session-3.scope\n", Some("session-3.scope")),
            ("4:cpu:/x.service\n1:name=systemd:/system.slice/a.service\n", Some("a.service")),
            ("0::/user.slice/user-1.slice/user@1.service/app.slice/b.service\n", Some("b.service")),
            ("0::/\n", None),
            ("", None),
        ] {
            assert_eq!(unit_of_cgroup(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_process_that_only_reads_is_no_writer() {
        assert!(is_open_for_writing("pos:\t0\nflags:\t0100001\nmnt_id:\t1\n"));
        assert!(is_open_for_writing("flags:\t02\n"));
        assert!(!is_open_for_writing("pos:\t0\nflags:\t0100000\n"));
        assert!(!is_open_for_writing(""));
    }

    #[test]
    fn a_writer_is_described_in_a_line() {
        let mut writer = WriterProcess {
            pid: 7,
            command: Some("vi".to_owned()),
            uid: Some(0),
            login_uid: Some(1000),
            unit: None,
        };
        assert_eq!(writer.to_string(), "vi (pid 7, user 0, logged in as 1000)");
        (writer.command, writer.uid, writer.login_uid) = (None, None, None);
        assert_eq!(writer.to_string(), "a process that has ended (pid 7)");
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_are_they_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_events(&bytes);
        }
    }
}
