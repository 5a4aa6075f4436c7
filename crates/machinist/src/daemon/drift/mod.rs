//! Drift, seen as it happens: the folders of everything that a config manages are watched, and a
//! name that matters in one of them leads to a look at all of it. Nothing is polled. What a
//! difference is, `core::drift` says.
//!
//! | file | does |
//! |---|---|
//! | `folders` | watches folders, also those that come later, and says when a name matters |
//! | `writers` | says who touched a name, where the kernel tells |
//! | `heal` | puts a machine right that has drifted |

mod directories;
mod heal;
#[cfg(test)]
mod tests;
mod writers;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use machinist_core::drift::{self, DriftFinding, DriftReference, DriftReport};
use tokio::time::Instant;

use super::root::{HostRoot, host_defaults};
use directories::DirectoryWatcher;

#[allow(unused_imports, reason = "the loop of the daemon calls it")]
pub(crate) use heal::{HealReport, heal};
pub(crate) use writers::WriterProcess;

/// Who changes one file changes the next soon after: so long is waited for that.
const DEBOUNCE: Duration = Duration::from_millis(25);
/// Whoever never stops is looked at all the same.
const MAX_WAIT: Duration = Duration::from_millis(250);
/// How often folders may come and go while they are looked at.
const MAX_RESCANS: usize = 100;

/// Looks at everything that a config manages, now.
pub(crate) fn check(root: &Path, reference: &DriftReference) -> Result<DriftReport> {
    // Opened anew each time: folders that were open may have been moved away since.
    Ok(drift::check_drift(reference, &HostRoot::open_read_only(root)?, host_defaults()))
}

/// A machine that is being watched.
#[derive(Debug)]
pub(crate) struct DriftWatcher {
    root: PathBuf,
    reference: Arc<DriftReference>,
    directories: DirectoryWatcher,
    findings: Vec<DriftFinding>,
    /// Who did it, by path.
    writers: HashMap<String, WriterProcess>,
    /// Something was touched and has not been looked at.
    needs_check: bool,
}

impl DriftWatcher {
    /// Begins to watch, and looks once.
    pub(crate) async fn start(root: &Path, reference: DriftReference) -> Result<Self> {
        let mut watch = Self {
            root: root.to_owned(),
            reference: Arc::new(reference),
            directories: DirectoryWatcher::new()?,
            findings: Vec::new(),
            writers: HashMap::new(),
            needs_check: true,
        };
        watch.findings = watch.rescan().await?;
        Ok(watch)
    }

    /// What differs, as far as is known.
    pub(crate) fn findings(&self) -> &[DriftFinding] {
        &self.findings
    }

    /// Who made a difference, where the kernel tells.
    pub(crate) fn writer(&self, finding: &DriftFinding) -> Option<&WriterProcess> {
        self.writers.get(&finding.path)
    }

    /// Waits until something else differs than before, or nothing any more, and gives it. Can be
    /// given up at any time and asked again.
    pub(crate) async fn next(&mut self) -> Result<&[DriftFinding]> {
        loop {
            if !self.needs_check {
                self.directories.wait_touched().await.context("cannot watch for drift")?;
                self.needs_check = true;
            }
            self.debounce().await?;
            let findings = self.rescan().await?;
            let is_other = findings != self.findings;
            self.attribute_writers(&findings);
            if is_other {
                self.findings = findings;
                return Ok(&self.findings);
            }
        }
    }

    /// Remembers who made each difference, as long as it lasts.
    fn attribute_writers(&mut self, findings: &[DriftFinding]) {
        let seen = &mut self.directories.writers;
        self.writers.retain(|path, _| findings.iter().any(|finding| finding.path == *path));
        for finding in findings.iter().filter(|finding| !self.findings.contains(finding)) {
            if let Some(writer) = seen.writer_of(&finding.path) {
                self.writers.insert(finding.path.clone(), writer.clone());
            }
        }
        seen.forget_writers();
    }

    /// Many changes at once become one look.
    async fn debounce(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            tokio::time::sleep(DEBOUNCE).await;
            if !self.directories.take_touched()? || begin.elapsed() > MAX_WAIT {
                return Ok(());
            }
        }
    }

    /// Watches what is to be watched now, then looks. In this order: what happens in between is seen
    /// by the look, what happens later by the watch.
    async fn rescan(&mut self) -> Result<Vec<DriftFinding>> {
        for _ in 0..MAX_RESCANS {
            let (root, reference) = (self.root.clone(), Arc::clone(&self.reference));
            let checked = tokio::task::spawn_blocking(move || check(&root, &reference)).await??;
            // Folders that came or went since, and links that lead elsewhere now.
            if !self
                .directories
                .set_watches(&HostRoot::open_read_only(&self.root)?, checked.watched)?
            {
                self.needs_check = false;
                return Ok(checked.findings);
            }
        }
        anyhow::bail!("cannot watch for drift: folders come and go too quickly")
    }
}
