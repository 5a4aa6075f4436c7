//! The logging flags that every long-running process has.

use clap::Args;

use crate::telemetry::{self, LogFormat, RecentLog};

/// How the process logs.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct LogArgs {
    /// The format of log lines on standard error; MACHINIST_LOG selects which lines are written
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

impl LogArgs {
    pub(super) fn init(self) {
        telemetry::init_logging(self.log_format);
    }

    /// The same, and keeps the last lines.
    pub(super) fn init_recent_log(self) -> RecentLog {
        telemetry::init_recent_log(self.log_format)
    }
}
