//! Whether the disk of a machine answers: a disk that fails, a frozen file system or a mount whose server is gone lets a
//! system call wait for ever. Nothing can end that wait, so the daemon reports it, and goes on when it is over.
//! Called by `daemon/agent/stalled_disk` in the shell.

use std::time::Duration;

/// After this long without progress a disk is reported. Writing a large file takes less.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// What the daemon does on the disk at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskWork {
    /// How many operations have begun since the daemon started.
    pub operations: u64,
    /// The path of the last one.
    pub path: String,
}

/// Watches the progress of the work on a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StallDetector {
    /// The number of operations, and since when it has not changed.
    seen: Option<(u64, Duration)>,
    is_reported: bool,
}

impl StallDetector {
    /// Looks once. Returns the reason of the state when the machine has to report a stall, which is once for each.
    pub fn observe(&mut self, now: Duration, work: Option<DiskWork>) -> Option<String> {
        let Some(DiskWork { operations, path }) = work else {
            *self = Self::default();
            return None;
        };
        let since = match self.seen {
            Some((seen, since)) if seen == operations => since,
            _ => {
                *self = Self { seen: Some((operations, now)), is_reported: false };
                return None;
            }
        };
        let is_due = now.saturating_sub(since) >= STALL_TIMEOUT && !self.is_reported;
        self.is_reported |= is_due;
        is_due.then(|| {
            format!(
                "the disk has not answered for {} s, at {path:?}: the daemon waits for it; see dmesg and findmnt --target {path}",
                STALL_TIMEOUT.as_secs()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_reported_once_and_work_that_goes_on_never() {
        let work = |operations| Some(DiskWork { operations, path: "/etc/motd".to_owned() });
        let mut detector = StallDetector::default();
        let mut observe = |seconds, work| detector.observe(Duration::from_secs(seconds), work);
        for (seconds, now) in [(0, None), (100, work(1)), (200, work(2)), (259, work(2))] {
            assert_eq!(observe(seconds, now), None, "{seconds}");
        }
        let reason = observe(260, work(2)).unwrap();
        assert!(reason.contains("60 s, at \"/etc/motd\""), "{reason}");
        assert_eq!(observe(400, work(2)), None);
        // It went on, and stalls again.
        assert_eq!(observe(500, work(3)), None);
        assert!(observe(560, work(3)).is_some());
        // Nothing is done any more.
        assert_eq!(observe(600, None), None);
        assert_eq!(observe(700, work(3)), None);
    }
}
