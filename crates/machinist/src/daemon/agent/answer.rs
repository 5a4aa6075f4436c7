//! Answers what an administrator asks this machine for: `machinist logs` and `machinist diff --live`. Writes nothing to
//! the disk, and runs beside the reconcile loop, so that a machine answers that is held, degraded or waiting.
//!
//! The request is an annotation of the Node, the answer one of the MachineConfigNode, encrypted for the one who asked
//! (`core::machine_report`). It is removed when the request is gone, or after a while.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::names::annotation::machinist::REPORT_REQUEST;
use machinist_core::daemon::annotations::NodeAnnotationPatch;
use machinist_core::drift::{self, LiveDiff};
use machinist_core::machine_report::{
    LIVE_DIFF, LOG, LogReport, MAX_REPORT_BYTES, ReportAnswer, ReportRequest,
};
use machinist_core::node::NodeView;
use tokio::process::Command;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::root::{HostRoot, host_defaults};
use super::super::state::DiskState;
use super::disk::MachineDisk;
use super::own_node::OwnNode;
use super::report::Reporter;
use crate::machine_report;
use crate::telemetry::RecentLog;

/// How long an answer stays if the one who asked does not remove the request.
const ANSWER_LIFETIME: Duration = Duration::from_secs(120);
/// How long a request waits for the next line of the log, at most.
const MAX_FOLLOW_WAIT: Duration = Duration::from_secs(15);
/// How often the journal is read meanwhile.
const JOURNAL_INTERVAL: Duration = Duration::from_secs(1);
/// How many lines of the journal are read.
const JOURNAL_LINES: &str = "500";
/// How long reading the journal may take.
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The service whose journal is read.
const SERVICE: &str = "machinist-daemon.service";
/// The line with which `journalctl --show-cursor` ends.
const CURSOR: &str = "-- cursor: ";

/// Answers requests.
pub(super) struct Answers {
    own_node: OwnNode,
    reporter: Reporter,
    root: PathBuf,
    log: RecentLog,
    /// The answered request, and when its answer is removed.
    answered: Option<(String, Instant)>,
}

impl Answers {
    pub(super) fn new(
        own_node: &OwnNode,
        reporter: &Reporter,
        disk: &MachineDisk,
        log: RecentLog,
    ) -> Self {
        let root = disk.path().to_owned();
        let (own_node, reporter) = (own_node.clone(), reporter.clone());
        // The answer of an earlier process may still be there.
        let answered = Some((String::new(), Instant::now() + ANSWER_LIFETIME));
        Self { own_node, reporter, root, log, answered }
    }

    pub(super) async fn answer_forever(mut self) {
        let mut changes = self.own_node.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(node) = self.own_node.get() {
                self.answer_node(&node).await;
            }
            let expiry = self.answered.as_ref().map(|(_, expiry)| *expiry);
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = sleep_until(expiry.unwrap_or_else(Instant::now)), if expiry.is_some() => {
                    self.expire().await;
                }
            }
        }
    }

    async fn answer_node(&mut self, node: &Arc<Node>) {
        let Some(text) = NodeView(node).annotation(REPORT_REQUEST) else {
            if self.answered.take().is_some() {
                self.reporter.write_answer(node, None);
            }
            return;
        };
        if self.answered.as_ref().is_some_and(|(known, _)| known == text) {
            return;
        }
        let answer = match ReportRequest::parse(text) {
            Err(error) => {
                let error = format_args!("{error}");
                tracing::warn!(%error, annotation = REPORT_REQUEST, "ignored a request");
                None
            }
            Ok(request) => match self.report(&request, text).await {
                Ok(None) => return, // Nobody waits for it any more.
                Ok(Some(report)) => {
                    Some(ReportAnswer { id: request.id, report: Some(report), error: None })
                }
                Err(error) => {
                    let error = Some(format!("{error:#}"));
                    Some(ReportAnswer { id: request.id, report: None, error })
                }
            },
        };
        if let Some(answer) = answer.and_then(|answer| serde_json::to_string(&answer).ok()) {
            self.reporter.write_answer(node, Some(answer));
        }
        self.answered = Some((text.to_owned(), Instant::now() + ANSWER_LIFETIME));
    }

    /// Removes the answer and the request of someone who is gone.
    async fn expire(&mut self) {
        self.answered = None;
        let Some(node) = self.own_node.get() else { return };
        self.reporter.write_answer(&node, None);
        let removed = NodeAnnotationPatch::from([(REPORT_REQUEST.to_owned(), None)]);
        if let Err(error) = self.own_node.annotate(removed).await {
            let error = format_args!("{error:#}");
            tracing::debug!(%error, "cannot remove a request that nobody has removed");
        }
    }

    /// The encrypted report; `None` if the request was withdrawn meanwhile.
    async fn report(&self, request: &ReportRequest, text: &str) -> Result<Option<String>> {
        match request.report.as_str() {
            LIVE_DIFF => {
                let root = self.root.clone();
                let found = tokio::task::spawn_blocking(move || live_diff(&root)).await;
                let found = found.context("the thread that compares the machine panicked")??;
                machine_report::seal(&found, &request.recipient).map(Some)
            }
            LOG => match self.log(request, text).await? {
                Some(log) => {
                    machine_report::seal(&log.within_limit(), &request.recipient).map(Some)
                }
                None => Ok(None),
            },
            other => bail!(
                "this daemon ({}) does not know the report {other:?}: upgrade the daemon",
                env!("CARGO_PKG_VERSION")
            ),
        }
    }

    async fn log(&self, request: &ReportRequest, text: &str) -> Result<Option<LogReport>> {
        let start = Instant::now();
        let mut lines = self.log.subscribe();
        let mut changes = self.own_node.subscribe();
        loop {
            lines.borrow_and_update();
            let log = match has_journal(&self.root) {
                true => read_journal(request.after.as_deref()).await?,
                false => self.log.after(request.after.as_deref()),
            };
            if !request.follow || !log.lines.is_empty() || start.elapsed() > MAX_FOLLOW_WAIT {
                return Ok(Some(log));
            }
            let wait = if has_journal(&self.root) { JOURNAL_INTERVAL } else { MAX_FOLLOW_WAIT };
            tokio::select! {
                _ = lines.changed() => {}
                _ = changes.changed() => {
                    let node = self.own_node.get();
                    let request = node.as_deref().and_then(|it| NodeView(it).annotation(REPORT_REQUEST));
                    if request != Some(text) {
                        return Ok(None);
                    }
                }
                () = sleep(wait) => {}
            }
        }
    }
}

/// The differences between the disk and its config.
fn live_diff(path: &Path) -> Result<LiveDiff> {
    let root = HostRoot::open_read_only(path)?;
    let state = DiskState::read(&root)?;
    if let Some(damage) = state.damage {
        bail!(damage);
    }
    let current = state.current.context("this machine has no config yet")?;
    Ok(drift::live_diff(&current, &root, host_defaults(), MAX_REPORT_BYTES)?)
}

/// Whether the log of this process is in the journal of the machine. It has the lines of earlier processes, too.
fn has_journal(root: &Path) -> bool {
    root == Path::new("/") && std::env::var_os("JOURNAL_STREAM").is_some()
}

async fn read_journal(after: Option<&str>) -> Result<LogReport> {
    let mut journal = Command::new("journalctl");
    journal.args(["--no-pager", "--quiet", "--show-cursor", "-o", "short-iso", "-u", SERVICE]);
    journal.args(["-n", JOURNAL_LINES]).stdin(std::process::Stdio::null()).kill_on_drop(true);
    if let Some(after) = after {
        journal.arg(format!("--after-cursor={after}"));
    }
    let output = timeout(JOURNAL_TIMEOUT, journal.output())
        .await
        .map_err(|_| anyhow!("journalctl has not answered in {} s", JOURNAL_TIMEOUT.as_secs()))?
        .context("journalctl")?;
    if !output.status.success() {
        // A cursor of a journal that was rotated away, or of this process's own memory.
        return match after {
            Some(_) => Box::pin(read_journal(None)).await,
            None => bail!("journalctl: {}", String::from_utf8_lossy(&output.stderr).trim()),
        };
    }
    Ok(journal_report(&String::from_utf8_lossy(&output.stdout), after))
}

fn journal_report(text: &str, after: Option<&str>) -> LogReport {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let position = lines.pop_if(|last| last.starts_with(CURSOR));
    let position = position.map(|line| line[CURSOR.len()..].to_owned());
    LogReport { lines, position: position.or_else(|| after.map(str::to_owned)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_of_the_journal_is_the_position() {
        let text = "2026-01-01T00:00:00+00:00 w1 machinist[1]: one\n-- cursor: s=1;i=2\n";
        let report = journal_report(text, None);
        assert_eq!((report.lines.len(), report.position.as_deref()), (1, Some("s=1;i=2")));
        // Nothing new.
        let report = journal_report("", Some("s=1;i=2"));
        assert_eq!((report.lines.len(), report.position.as_deref()), (0, Some("s=1;i=2")));
    }
}
