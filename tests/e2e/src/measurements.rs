//! Figures that tests take on their way; `scripts/testkit/figures` prints the last ones.

use crate::cache;
use anyhow::{Context, Result};
use std::fmt::Display;
use std::fs;
use std::time::Instant;

/// Keeps a figure under a name, over the one of the run before.
pub fn record(name: &str, value: impl Display) -> Result<()> {
    let folder = cache::cache_dir()?.join("figures");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), format!("{value}\n")).with_context(|| format!("keep {name}"))
}

/// Runs something and keeps the time that it took.
pub fn measure<T>(name: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = act()?;
    record(name, format!("{:.1} s", start.elapsed().as_secs_f64()))?;
    Ok(result)
}
