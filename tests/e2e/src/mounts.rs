//! What the host has mounted.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Whether this path is a mount point.
pub fn is_mounted(path: &Path) -> Result<bool> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("read the mounts")?;
    let path = path.to_string_lossy();
    Ok(mounts.lines().any(|line| line.split(' ').nth(4) == Some(&path)))
}
