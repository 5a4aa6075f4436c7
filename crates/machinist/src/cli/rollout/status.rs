//! `machinist rollout status`: how far pools are, once or until they are through.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;

use anyhow::Result;
use clap::Args;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use super::report::{PoolReport, PoolState, report};
use super::text;
use crate::cli::cluster::session::SessionArgs;
use crate::cli::cluster::snapshot::ClusterSnapshot;
use crate::cli::output::OutputFormat;
use crate::cli::{CommandOutcome, cluster, output};

/// Show how far the rollout of pools is, and what each machine waits for
///
/// With --watch it goes on until all machines are up to date (exit code 0), or a pool stands still
/// because of a bad config and nobody is at work any more (exit code 3).
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist rollout status worker\n\n\
        Others:\n  machinist rollout status worker master --watch")]
pub(in crate::cli) struct RolloutStatusArgs {
    /// The pools
    #[arg(value_name = "POOL", required = true)]
    pools: Vec<String>,

    /// Show every change until it is through
    #[arg(short, long)]
    watch: bool,

    /// The form of the answer; with --watch a line of JSON for every change
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
                let mut following = session.watch_kind()?;
                let mut screen = StatusScreen::default();
                loop {
                    following.next().await?;
                    let now = now();
                    let reports = self.reports(&following.snapshot, &now)?;
                    self.redraw(&mut screen, &reports, &now)?;
                    if reports.iter().all(PoolReport::is_settled) {
                        return self.end(&screen, &reports, &now);
                    }
                }
            }
            let now = now();
            let reports = self.reports(&session.world().await?, &now)?;
            match self.output {
                OutputFormat::Json => output::print_json(&RolloutStatusReport { pools: &reports })?,
                OutputFormat::Text => output::print(&full(&reports, is_terminal(), &now))?,
            }
            Ok(CommandOutcome::Done)
        })
    }

    fn reports(&self, world: &ClusterSnapshot, now: &Time) -> Result<Vec<PoolReport>> {
        let one = |name: &String| Ok(report(world, world.pool(name)?, now));
        self.pools.iter().map(one).collect()
    }

    /// Shows what changed: on a terminal in place of what was there, else as one more line.
    fn redraw(&self, screen: &mut StatusScreen, reports: &[PoolReport], now: &Time) -> Result<()> {
        if self.output == OutputFormat::Json {
            let line = serde_json::to_string(&RolloutStatusReport { pools: reports })?;
            return screen.append("", line);
        }
        if is_terminal() {
            return screen.replace(&full(reports, true, now));
        }
        for report in reports {
            let target = report.target.as_deref().unwrap_or("-");
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
        let is_bad = reports.iter().any(|report| report.state == PoolState::Invalid);
        // Lines alone do not say who failed and why.
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

/// What is shown already.
#[derive(Default)]
struct StatusScreen {
    /// How many lines have to be overwritten.
    height: usize,
    /// What was said last, by what it was about.
    last_lines: BTreeMap<String, String>,
}

impl StatusScreen {
    /// Writes over what was there. A line that is too long is cut: it must not become two.
    fn replace(&mut self, text: &str) -> Result<()> {
        let up =
            if self.height > 0 { format!("\x1b[{}A\x1b[J", self.height) } else { String::new() };
        self.height = text.lines().count();
        output::print(&format!("{up}\x1b[?7l{text}\x1b[?7h"))
    }

    /// Adds a line, unless it was the last one about the same.
    fn append(&mut self, about: &str, line: String) -> Result<()> {
        if self.last_lines.get(about) == Some(&line) {
            return Ok(());
        }
        output::print(&format!("{line}\n"))?;
        self.last_lines.insert(about.to_owned(), line);
        Ok(())
    }
}
