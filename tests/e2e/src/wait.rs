//! Waits for conditions, never for a fixed time.

use anyhow::{Result, anyhow};
use std::thread;
use std::time::{Duration, Instant};

/// The timeout of [`wait_for`]: far above what a healthy host needs, so that a slow builder does not fail.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// Waits until `condition` holds. The timeout error contains the last `Err` of the condition.
pub fn wait_for(what: &str, condition: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_with_timeout(DEFAULT_TIMEOUT, what, condition)
}

/// [`wait_for`] with another timeout.
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

/// A permanent error, such as a process that has ended. [`wait_for`] fails immediately.
#[derive(Debug)]
pub struct PermanentError(pub String);

impl std::fmt::Display for PermanentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PermanentError {}
