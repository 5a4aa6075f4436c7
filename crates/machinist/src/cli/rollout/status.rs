//! `machinist rollout status`: the progress of pools, once or until the rollout ends.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_core::duration::parse_duration;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use super::report::{PoolReport, PoolState, report};
use super::text;
use crate::cli::cluster::follow::SnapshotWatch;
use crate::cli::cluster::session::SessionArgs;
use crate::cli::cluster::snapshot::ClusterSnapshot;
use crate::cli::output::OutputFormat;
use crate::cli::{CommandOutcome, cluster, output};

/// How long a pool must need an administrator before a watch ends: a machine that tries again or heals itself
/// needs none a moment later.
const STUCK_GRACE: Duration = Duration::from_secs(5);

/// Show the progress of rollouts, and what each machine waits for
///
/// With --watch, the command ends when all machines are up to date (exit code 0), or when nothing more happens
/// before an administrator acts: a bad config stopped a pool, or machines failed, drifted or are held (exit code
/// 3).
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist rollout status\n\n\
        More examples:\n  machinist rollout status worker master --watch --timeout 10m")]
pub(in crate::cli) struct RolloutStatusArgs {
    /// The pools to show [default: all]
    #[arg(value_name = "POOL")]
    pools: Vec<String>,

    /// Show every change until the rollouts end
    #[arg(short, long)]
    watch: bool,

    /// How long to watch: after that, the exit code is 1
    #[arg(long, value_name = "DURATION", requires = "watch", value_parser = parse_duration)]
    timeout: Option<Duration>,

    /// The output format; with --watch, JSON is one line per change
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,

    #[command(flatten)]
    session: SessionArgs,
}

#[derive(Serialize)]
struct RolloutStatusReport<'a> {
    pools: &'a [PoolReport],
}

impl RolloutStatusArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        cluster::block_on(async {
            let session = self.session.connect().await?;
            if self.watch {
                return self.watch(session.watch_kind()?).await;
            }
            let now = now();
            let reports = self.reports(&session.visible_snapshot().await?, &now)?;
            match self.output {
                OutputFormat::Json => output::print_json(&RolloutStatusReport { pools: &reports })?,
                OutputFormat::Text => output::print(&full(&reports, is_terminal(), &now))?,
            }
            Ok(CommandOutcome::Done)
        })
    }

    async fn watch(&self, mut following: SnapshotWatch) -> Result<CommandOutcome> {
        let mut screen = StatusScreen::default();
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        let mut reports = Vec::new();
        // Since when all pools are settled, if one of them only because it needs an administrator.
        let mut stuck_since = None;
        loop {
            let grace = stuck_since.map(|since: Instant| since + STUCK_GRACE);
            let wake = [deadline, grace].into_iter().flatten().min();
            match wake {
                None => following.next().await?,
                Some(wake) => {
                    if let Ok(changed) = timeout_at(wake, following.next()).await {
                        changed?;
                    }
                }
            }
            if following.is_complete() {
                reports = self.reports(&following.snapshot, &now())?;
                self.redraw(&mut screen, &reports, &now())?;
            }
            let is_stuck = reports.iter().any(|report| report.state == PoolState::Stuck);
            let is_settled = following.is_complete() && reports.iter().all(PoolReport::is_settled);
            if !(is_settled && is_stuck) {
                stuck_since = None;
            }
            if is_settled {
                let since = *stuck_since.get_or_insert_with(Instant::now);
                if !is_stuck || since.elapsed() >= STUCK_GRACE {
                    return self.end(&screen, &reports, &now());
                }
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return self.time_out(&screen, &reports);
            }
        }
    }

    fn reports(&self, snapshot: &ClusterSnapshot, now: &Time) -> Result<Vec<PoolReport>> {
        if self.pools.is_empty() {
            return Ok(snapshot.pools.iter().map(|pool| report(snapshot, pool, now)).collect());
        }
        let one = |name: &String| Ok(report(snapshot, snapshot.pool(name)?, now));
        self.pools.iter().map(one).collect()
    }

    /// The time is over. The lines do not show what the machines wait for.
    fn time_out(&self, screen: &StatusScreen, reports: &[PoolReport]) -> Result<CommandOutcome> {
        if self.output == OutputFormat::Text && screen.height == 0 {
            output::print(&full(reports, false, &now()))?;
        }
        let timeout = self.timeout.unwrap_or_default();
        output::print_error(&format!("the rollout has not ended after {timeout:?}"));
        Ok(CommandOutcome::Failed)
    }

    /// Shows a change: on a terminal it replaces the last output, elsewhere it adds a line.
    fn redraw(&self, screen: &mut StatusScreen, reports: &[PoolReport], now: &Time) -> Result<()> {
        if self.output == OutputFormat::Json {
            let line = serde_json::to_string(&RolloutStatusReport { pools: reports })?;
            return screen.append("", line);
        }
        if is_terminal() {
            return screen.replace(&full(reports, true, now));
        }
        for report in reports {
            let target = report.target.as_deref().unwrap_or("no config yet");
            let line = format!("{} → {target}: {}", report.pool, text::render_line(report, None));
            screen.append(&report.pool, line)?;
        }
        Ok(())
    }

    fn end(
        &self,
        screen: &StatusScreen,
        reports: &[PoolReport],
        now: &Time,
    ) -> Result<CommandOutcome> {
        let is_bad =
            |report: &PoolReport| matches!(report.state, PoolState::Invalid | PoolState::Stuck);
        let is_bad = reports.iter().any(is_bad);
        // The lines do not show which machine failed and why.
        if is_bad && self.output == OutputFormat::Text && screen.height == 0 {
            output::print(&full(reports, false, now))?;
        }
        Ok(if is_bad { CommandOutcome::Refused } else { CommandOutcome::Done })
    }
}

fn now() -> Time {
    Time(k8s_openapi::jiff::Timestamp::now())
}

fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

fn full(reports: &[PoolReport], with_bar: bool, now: &Time) -> String {
    reports.iter().map(|report| text::render(report, with_bar, now)).collect()
}

/// What the terminal shows.
#[derive(Default)]
struct StatusScreen {
    /// The number of lines to overwrite.
    height: usize,
    /// The last line for each subject.
    last_lines: BTreeMap<String, String>,
}

impl StatusScreen {
    /// Overwrites the last output. Wrapping is off: a wrapped line would break the count of lines.
    fn replace(&mut self, text: &str) -> Result<()> {
        let up =
            if self.height > 0 { format!("\x1b[{}A\x1b[J", self.height) } else { String::new() };
        self.height = text.lines().count();
        output::print(&format!("{up}\x1b[?7l{text}\x1b[?7h"))
    }

    /// Adds a line, unless the last one for the subject is equal.
    fn append(&mut self, about: &str, line: String) -> Result<()> {
        if self.last_lines.get(about) == Some(&line) {
            return Ok(());
        }
        output::print(&format!("{line}\n"))?;
        self.last_lines.insert(about.to_owned(), line);
        Ok(())
    }
}
