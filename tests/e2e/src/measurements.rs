//! Measurements that tests record. `scripts/testkit/measurements` prints the latest ones.

use crate::cache;
use anyhow::{Context, Result};
use std::fmt::Display;
use std::fs;
use std::time::Instant;

/// Records a measurement under a name and replaces that of the previous run.
pub fn record(name: &str, value: impl Display) -> Result<()> {
    let dir = cache::cache_dir()?.join("measurements");
    fs::create_dir_all(&dir)?;
    fs::write(dir.join(name), format!("{value}\n")).with_context(|| format!("keep {name}"))
}

/// Runs a closure and records its duration.
pub fn measure<T>(name: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = act()?;
    record(name, format!("{:.1} s", start.elapsed().as_secs_f64()))?;
    Ok(result)
}
