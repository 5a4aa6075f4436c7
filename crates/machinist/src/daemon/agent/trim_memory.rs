//! A daemon that rests gives back what it does not need: most of its memory is pages of the program
//! itself, from starting and from its last work. They stay in the kernel's cache of files, where a
//! machine short of memory can drop them, and come back by themselves when the daemon wakes.

use std::convert::Infallible;
use std::fs;
use std::time::Duration;

use machinist_core::daemon::smaps::reclaimable_ranges;
use rustix::mm::{Advice, madvise};

/// So long nothing has to happen first. Threads that have nothing to do are gone by then.
pub(super) const IDLE_DELAY: Duration = Duration::from_secs(15);

/// Gives memory back after a while, once; never ends.
pub(super) async fn trim_after(quiet: Duration) -> Infallible {
    tokio::time::sleep(quiet).await;
    trim();
    std::future::pending().await
}

/// Gives back every page that is a file's and nothing else.
fn trim() {
    // What cannot be read is not given back: it is only a kindness.
    let Ok(smaps) = fs::read_to_string("/proc/self/smaps") else { return };
    for range in reclaimable_ranges(&smaps) {
        drop_pages(range.start, range.len());
    }
}

/// Has the kernel forget where in memory a piece of a file is.
#[expect(
    unsafe_code,
    reason = "no safe way to say this to the kernel; the only place in this program"
)]
fn drop_pages(start: usize, length: usize) {
    let start = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the mapping is private, cannot be written and has no page of its own, so that every page
    // in it equals the file's, and the next access reads the file again: nothing that any code can
    // observe changes. Nobody maps or writes there meanwhile: program and libraries were mapped when
    // the process started, and what the loader filled in is excluded by `clean`. Were the mapping gone,
    // the kernel would refuse.
    let _ = unsafe { madvise(start, length, Advice::LinuxDontNeed) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much comes back is told by the figures of the daemon; here, that nothing is lost, while
    /// other tests run beside.
    #[test]
    fn the_program_goes_on() {
        let text: String = ('a'..='z').collect();
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        assert!(!reclaimable_ranges(&smaps).is_empty(), "{smaps}");
        for _ in 0..100 {
            trim();
        }
        assert_eq!(text, "abcdefghijklmnopqrstuvwxyz");
    }
}
