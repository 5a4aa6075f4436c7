//! `machinist logs`: the log of a machine's daemon.

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use machinist_core::duration::parse_duration;
use machinist_core::machine_report::{LOG, LogReport};

use super::ask_machine::{Question, ask};
use super::cluster::session::{ClusterSession, SessionArgs};
use super::signals::shutdown_signal;
use super::{CommandOutcome, cluster, output};

/// How long a daemon takes at most to say that there is nothing new.
const MAX_FOLLOW_WAIT: Duration = Duration::from_secs(45);

/// Show the log of a machine's daemon
///
/// The daemon answers through the API server; nothing has to be reachable on the machine. Where the daemon is a service
/// of systemd, these are the last lines in its journal, otherwise those since it was started. Only this command can
/// decrypt the answer.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist logs worker-1 -f")]
pub(super) struct LogsArgs {
    /// The name of the machine
    node: String,

    /// Continue with new lines until the command is stopped
    #[arg(short, long)]
    follow: bool,

    /// How many lines to begin with, at most 500
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    lines: usize,

    /// How long to wait for the machine
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,

    #[command(flatten)]
    session: SessionArgs,
}

impl LogsArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        cluster::block_on(async {
            let stopped = shutdown_signal()?;
            let session = self.session.connect().await?;
            let question = Question {
                node: &self.node,
                report: LOG,
                after: None,
                follow: false,
                max_wait: self.timeout,
            };
            let mut log: LogReport = ask(&session, question).await?;
            let skip = log.lines.len().saturating_sub(self.lines);
            print(log.lines.get(skip..).unwrap_or_default())?;
            if !self.follow {
                return Ok(CommandOutcome::Done);
            }
            tokio::select! {
                () = stopped => Ok(CommandOutcome::Done),
                ended = self.follow(&session, &mut log) => ended,
            }
        })
    }

    async fn follow(
        &self,
        session: &ClusterSession,
        log: &mut LogReport,
    ) -> Result<CommandOutcome> {
        loop {
            let after =
                log.position.clone().context("the machine does not say where its log ends")?;
            let question = Question {
                node: &self.node,
                report: LOG,
                after: Some(&after),
                follow: true,
                max_wait: MAX_FOLLOW_WAIT,
            };
            *log = ask(session, question).await?;
            print(&log.lines)?;
        }
    }
}

/// Prints lines without control characters: a machine may have written anything.
fn print(lines: &[String]) -> Result<()> {
    let clean = |c: char| if c.is_control() && c != '\t' { '\u{fffd}' } else { c };
    let text: String =
        lines.iter().flat_map(|line| line.chars().map(clean).chain(['\n'])).collect();
    output::print(&text)
}
