//! Waiting for conditions, never for time.

use anyhow::{Result, anyhow};
use std::thread;
use std::time::{Duration, Instant};

/// How long [`wait_for`] waits: far above anything a healthy machine needs, so that a slow builder is no failure.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// Waits until `condition` holds. What it says in `Err` last is what the error says when time is up.
pub fn wait_for(what: &str, condition: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_with_timeout(DEFAULT_TIMEOUT, what, condition)
}

/// [`wait_for`] with an own limit.
pub fn wait_with_timeout(
    limit: Duration,
    what: &str,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(5);
    loop {
        let last = match condition() {
            Ok(true) => return Ok(()),
            Ok(false) => None,
            Err(error) if error.is::<PermanentError>() => {
                return Err(error.context(what.to_owned()));
            }
            Err(error) => Some(error),
        };
        if start.elapsed() > limit {
            let gone = anyhow!("gave up after {} s waiting for {what}", limit.as_secs());
            return Err(last.map_or(gone, |error| error.context(format!("waiting for {what}"))));
        }
        thread::sleep(pause);
        pause = (pause * 3 / 2).min(Duration::from_millis(100));
    }
}

/// An error that no waiting will mend, such as a process that has ended; [`wait_for`] stops at once.
#[derive(Debug)]
pub struct PermanentError(pub String);

impl std::fmt::Display for PermanentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PermanentError {}
