//! Drift, seen as it happens: the folders of everything that a config manages are watched, and a
//! name that matters in one of them leads to a look at all of it. Nothing is polled. What a
//! difference is, `core::drift` says.
//!
//! | file | does |
//! |---|---|
//! | `folders` | watches folders, also those that come later, and says when a name matters |
//! | `writers` | says who touched a name, where the kernel tells |
//! | `heal` | puts a machine right that has drifted |

mod folders;
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

use super::once::style;
use super::root::Root;
use folders::Folders;

#[allow(unused_imports, reason = "the loop of the daemon calls it")]
pub(crate) use heal::{Healed, heal};
pub(crate) use writers::Writer;

/// Who changes one file changes the next soon after: so long is waited for that.
const PAUSE: Duration = Duration::from_millis(25);
/// Whoever never stops is looked at all the same.
const LONGEST: Duration = Duration::from_millis(250);
/// How often folders may come and go while they are looked at.
const ATTEMPTS: usize = 100;

/// Looks at everything that a config manages, now.
pub(crate) fn check(root: &Path, reference: &DriftReference) -> Result<DriftReport> {
    // Opened anew each time: folders that were open may have been moved away since.
    Ok(drift::check_drift(reference, &Root::to_look_at(root)?, style()))
}

/// A machine that is being watched.
#[derive(Debug)]
pub(crate) struct Watch {
    root: PathBuf,
    reference: Arc<DriftReference>,
    folders: Folders,
    findings: Vec<DriftFinding>,
    /// Who did it, by path.
    writers: HashMap<String, Writer>,
    /// Something was touched and has not been looked at.
    is_touched: bool,
}

impl Watch {
    /// Begins to watch, and looks once.
    pub(crate) async fn start(root: &Path, reference: DriftReference) -> Result<Self> {
        let mut watch = Self {
            root: root.to_owned(),
            reference: Arc::new(reference),
            folders: Folders::new()?,
            findings: Vec::new(),
            writers: HashMap::new(),
            is_touched: true,
        };
        watch.findings = watch.look().await?;
        Ok(watch)
    }

    /// What differs, as far as is known.
    pub(crate) fn findings(&self) -> &[DriftFinding] {
        &self.findings
    }

    /// Who made a difference, where the kernel tells.
    pub(crate) fn writer(&self, finding: &DriftFinding) -> Option<&Writer> {
        self.writers.get(&finding.path)
    }

    /// Waits until something else differs than before, or nothing any more, and gives it. Can be
    /// given up at any time and asked again.
    pub(crate) async fn next(&mut self) -> Result<&[DriftFinding]> {
        loop {
            if !self.is_touched {
                self.folders.touched().await.context("cannot watch for drift")?;
                self.is_touched = true;
            }
            self.settle().await?;
            let findings = self.look().await?;
            let is_other = findings != self.findings;
            self.attribute(&findings);
            if is_other {
                self.findings = findings;
                return Ok(&self.findings);
            }
        }
    }

    /// Remembers who made each difference, as long as it lasts.
    fn attribute(&mut self, findings: &[DriftFinding]) {
        let seen = &mut self.folders.writers;
        self.writers.retain(|path, _| findings.iter().any(|finding| finding.path == *path));
        for finding in findings.iter().filter(|finding| !self.findings.contains(finding)) {
            if let Some(writer) = seen.of(&finding.path) {
                self.writers.insert(finding.path.clone(), writer.clone());
            }
        }
        seen.forget();
    }

    /// Many changes at once become one look.
    async fn settle(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            tokio::time::sleep(PAUSE).await;
            if !self.folders.take_touched()? || begin.elapsed() > LONGEST {
                return Ok(());
            }
        }
    }

    /// Watches what is to be watched now, then looks. In this order: what happens in between is seen
    /// by the look, what happens later by the watch.
    async fn look(&mut self) -> Result<Vec<DriftFinding>> {
        for _ in 0..ATTEMPTS {
            let (root, reference) = (self.root.clone(), Arc::clone(&self.reference));
            let checked = tokio::task::spawn_blocking(move || check(&root, &reference)).await??;
            // Folders that came or went since, and links that lead elsewhere now.
            if !self.folders.watch(&Root::to_look_at(&self.root)?, checked.watched)? {
                self.is_touched = false;
                return Ok(checked.findings);
            }
        }
        anyhow::bail!("cannot watch for drift: folders come and go too quickly")
    }
}
