//! Detects drift as it happens: the directories of everything that a config manages are watched, and a
//! touched name leads to a check of all of it. Only what the kernel does not let us watch is polled. `core::drift`
//! decides what drift is. Called by `agent::drift_watch`.
//!
//! | module | does |
//! |---|---|
//! | `directories` | watches directories, also future ones, and reports touched names |
//! | `writers` | finds the process that touched a name, where the kernel reports it |
//! | `heal` | heals drift |

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
use machinist_core::api::MachineConfig;
use machinist_core::apply::{QuarantineView, member_index};
use machinist_core::drift::{self, DriftFinding, DriftReference, DriftReport};
use tokio::time::Instant;

use super::quarantine;
use super::root::{HostRoot, WorkOnDisk, host_defaults};
use directories::DirectoryWatcher;

#[allow(unused_imports, reason = "the loop of the daemon calls it")]
pub(crate) use heal::{HealReport, heal};
pub(crate) use writers::{WriterProcess, suspect_unit};

/// The pause after a change, so that the next one is seen in the same check.
const DEBOUNCE: Duration = Duration::from_millis(25);
/// The check runs after this long even if the changes do not stop.
const MAX_WAIT: Duration = Duration::from_millis(250);
/// How often directories may appear or disappear during a check.
const MAX_RESCANS: usize = 100;
/// How often everything is checked while some of it cannot be watched, at least.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// A check that is repeated may take this part of the time.
const POLL_SHARE: u32 = 20;

/// Prepares a config for comparisons with a machine.
pub(crate) fn reference(root: &Path, config: &MachineConfig) -> Result<DriftReference> {
    let index = member_index(&HostRoot::open_read_only(root)?);
    Ok(DriftReference::new(config, index)?)
}

/// Compares everything that a config manages with the disk.
pub(crate) fn check(root: &Path, reference: &DriftReference) -> Result<DriftReport> {
    let _work = WorkOnDisk::begin();
    // Opened again each time: a directory may have been moved away since.
    let root = HostRoot::open_read_only(root)?;
    // What an earlier change left wrong is reported on its own, and is not drift.
    let quarantine = quarantine::read(&root)?;
    let tree = QuarantineView::new(&root, &quarantine);
    Ok(drift::check_drift(reference, &tree, host_defaults()))
}

/// A machine that is being watched.
#[derive(Debug)]
pub(crate) struct DriftWatcher {
    root: PathBuf,
    reference: Arc<DriftReference>,
    directories: DirectoryWatcher,
    /// How long to wait before the next check of what cannot be watched.
    poll_interval: Duration,
    findings: Vec<DriftFinding>,
    /// The process that changed each path.
    writers: HashMap<String, WriterProcess>,
    /// Something was touched and is not checked yet.
    needs_check: bool,
    /// The next check is reported even if it finds nothing new.
    reports_again: bool,
}

impl DriftWatcher {
    /// Starts to watch, and checks once.
    pub(crate) async fn start(root: &Path, reference: DriftReference) -> Result<Self> {
        let mut watch = Self {
            root: root.to_owned(),
            reference: Arc::new(reference),
            directories: DirectoryWatcher::new(),
            poll_interval: MIN_POLL_INTERVAL,
            findings: Vec::new(),
            writers: HashMap::new(),
            needs_check: true,
            reports_again: false,
        };
        watch.findings = watch.rescan().await?;
        Ok(watch)
    }

    /// The current drift.
    pub(crate) fn findings(&self) -> &[DriftFinding] {
        &self.findings
    }

    /// What cannot be watched, and why; `None` if everything is watched.
    pub(crate) fn unwatched(&self) -> Option<&str> {
        self.directories.unwatched()
    }

    /// The process that caused a finding, if the kernel reported it.
    pub(crate) fn writer(&self, finding: &DriftFinding) -> Option<&WriterProcess> {
        self.writers.get(&finding.path)
    }

    /// Makes the next call of [`Self::next`] return at once.
    pub(crate) fn report_again(&mut self) {
        self.needs_check = true;
        self.reports_again = true;
    }

    /// Waits until the drift changes, and returns it. Can be cancelled and called again.
    pub(crate) async fn next(&mut self) -> Result<&[DriftFinding]> {
        loop {
            if !self.needs_check {
                self.wait_for_check().await?;
                self.needs_check = true;
            }
            self.debounce().await?;
            let findings = self.rescan().await?;
            let is_other = findings != self.findings || std::mem::take(&mut self.reports_again);
            self.attribute_writers(&findings);
            if is_other {
                self.findings = findings;
                return Ok(&self.findings);
            }
        }
    }

    /// Waits until something is touched, or until it is time to look at what cannot be watched.
    async fn wait_for_check(&mut self) -> Result<()> {
        let is_polled = self.directories.unwatched().is_some();
        let touched = self.directories.wait_touched();
        if !is_polled {
            return touched.await.context("cannot watch for drift");
        }
        match tokio::time::timeout(self.poll_interval, touched).await {
            Ok(touched) => touched.context("cannot watch for drift"),
            Err(_) => Ok(()),
        }
    }

    /// Remembers the process that caused each finding, as long as the finding lasts.
    fn attribute_writers(&mut self, findings: &[DriftFinding]) {
        let seen = &mut self.directories.writers;
        self.writers.retain(|path, _| findings.iter().any(|finding| finding.path == *path));
        for finding in findings.iter().filter(|finding| !self.findings.contains(finding)) {
            let file = self.root.join(finding.path.trim_start_matches('/'));
            let writer = seen.writer_of(&finding.path).cloned();
            if let Some(writer) = writer.or_else(|| writers::writing_process(&file)) {
                self.writers.insert(finding.path.clone(), writer);
            }
        }
        seen.forget_writers();
    }

    /// Collapses a burst of changes into one check.
    async fn debounce(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            tokio::time::sleep(DEBOUNCE).await;
            if !self.directories.take_touched()? || begin.elapsed() > MAX_WAIT {
                return Ok(());
            }
        }
    }

    /// Sets the watches, then checks. In this order, a change in between is found by the check, and a later one
    /// by the watch.
    async fn rescan(&mut self) -> Result<Vec<DriftFinding>> {
        for _ in 0..MAX_RESCANS {
            let (root, reference) = (self.root.clone(), Arc::clone(&self.reference));
            let begin = Instant::now();
            let checked = tokio::task::spawn_blocking(move || check(&root, &reference)).await??;
            self.poll_interval = MIN_POLL_INTERVAL.max(begin.elapsed() * POLL_SHARE);
            let root = HostRoot::open_read_only(&self.root)?;
            // Directories have appeared or disappeared, or links lead elsewhere now.
            let was_limited = self.directories.unwatched().is_some();
            let is_new = self.directories.set_watches(&root, checked.watched);
            if let (false, Some(unwatched)) = (was_limited, self.directories.unwatched()) {
                tracing::warn!(unwatched, "drift is found by repeated checks");
            }
            if !is_new {
                self.needs_check = false;
                return Ok(checked.findings);
            }
        }
        anyhow::bail!("cannot watch for drift: directories come and go too quickly")
    }
}
