//! The last log lines of this process, in memory and within limits: what a daemon answers `machinist logs` with on
//! machines without a journal.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use machinist_core::machine_report::LogReport;
use parking_lot::Mutex;
use tokio::sync::watch;

/// How many bytes of lines are kept.
const MAX_KEPT_BYTES: usize = 128 << 10;
/// The longest line that is kept.
const MAX_LINE_BYTES: usize = 8 << 10;

/// The last lines of the log. Clones share them.
#[derive(Debug, Clone)]
pub struct RecentLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Which process it is: a position in the log of another one means nothing.
    process: String,
    lines: Mutex<KeptLines>,
    /// How many lines there were.
    count: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct KeptLines {
    lines: VecDeque<String>,
    bytes: usize,
    /// How many lines there were before the first that is kept.
    dropped: u64,
}

impl Default for RecentLog {
    fn default() -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let process = format!("{:x}p{:x}", started.as_millis(), std::process::id());
        let (lines, count) = (Mutex::default(), watch::Sender::new(0));
        Self(Arc::new(Inner { process, lines, count }))
    }
}

impl RecentLog {
    fn push(&self, bytes: &[u8]) {
        let end = bytes.len().min(MAX_LINE_BYTES);
        let text = String::from_utf8_lossy(&bytes[..end]);
        // Colours are for the terminal of this process.
        let text = anstream::adapter::strip_str(text.trim_end()).to_string();
        let mut kept = self.0.lines.lock();
        kept.bytes += text.len();
        kept.lines.push_back(text);
        while kept.bytes > MAX_KEPT_BYTES {
            let Some(first) = kept.lines.pop_front() else { break };
            kept.bytes -= first.len();
            kept.dropped += 1;
        }
        drop(kept);
        self.0.count.send_modify(|count| *count += 1);
    }

    /// The lines after a position; all that are kept if it is not one of this process.
    #[must_use]
    pub fn after(&self, position: Option<&str>) -> LogReport {
        let kept = self.0.lines.lock();
        let last = kept.dropped + kept.lines.len() as u64;
        let seen = position
            .and_then(|text| text.strip_prefix(&self.0.process)?.strip_prefix(':')?.parse().ok())
            .unwrap_or(0_u64);
        let skip = usize::try_from(seen.saturating_sub(kept.dropped)).unwrap_or(usize::MAX);
        LogReport {
            lines: kept.lines.iter().skip(skip).cloned().collect(),
            position: Some(format!("{}:{last}", self.0.process)),
        }
    }

    /// Changes with each line.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.count.subscribe()
    }

    /// A writer to standard error that keeps what it writes.
    pub(super) fn writer(&self) -> KeepingWriter {
        KeepingWriter(self.clone())
    }
}

/// Writes to standard error, and keeps each line.
#[derive(Debug)]
pub(super) struct KeepingWriter(RecentLog);

impl Write for KeepingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stderr().write(bytes)
    }

    /// The logger writes each line with one call.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.push(bytes);
        io::stderr().write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_continued_and_limited() {
        let log = RecentLog::default();
        log.push(b"\x1b[32mone\x1b[0m\n");
        log.push(b"two\n");
        let first = log.after(None);
        assert_eq!(first.lines, ["one", "two"]);
        assert!(log.after(first.position.as_deref()).lines.is_empty());
        log.push(b"three");
        assert_eq!(log.after(first.position.as_deref()).lines, ["three"]);
        // Another process, or nonsense: everything.
        for other in ["1p1:2", "", "x", &format!("{}:x", log.0.process)] {
            assert_eq!(log.after(Some(other)).lines.len(), 3, "{other}");
        }
        for _ in 0..100 {
            log.push(&[b'x'; 2 * MAX_LINE_BYTES]);
        }
        let all = log.after(first.position.as_deref());
        assert_eq!(all.lines.len(), MAX_KEPT_BYTES / MAX_LINE_BYTES);
        assert!(all.position.unwrap().ends_with(":103"));
    }
}
