//! Logging of every process. Called once by each command, before it does anything else.

mod recent_log;

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

pub use recent_log::RecentLog;

/// The format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// One JSON object per line, for log collectors
    Json,
}

/// kube-runtime warns on every failed attempt of a watch, and kube-client reports an error for every failed request; our
/// tasks warn once per change of failure, and commands print the error that they end with.
const DEFAULT_FILTER: &str = "info,kube_runtime=error,kube_client::client::builder=off";

/// Sends log lines to standard error. `MACHINIST_LOG` selects them by level and module.
///
/// A line that cannot be written (a full disk, a closed pipe) is lost, and the process continues.
pub fn init_logging(format: LogFormat) {
    init(format, std::io::stderr);
}

/// The same, and keeps the last lines.
#[must_use]
pub fn init_recent_log(format: LogFormat) -> RecentLog {
    let log = RecentLog::default();
    let kept = log.clone();
    init(format, move || kept.writer());
    log
}

fn init<W>(format: LogFormat, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter =
        EnvFilter::try_from_env("MACHINIST_LOG").unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        // It would report a line that it cannot write with `eprintln!`, which panics for the same reason.
        .log_internal_errors(false);
    // A second call fails and changes nothing: the first logger stays in use.
    let _ = match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
