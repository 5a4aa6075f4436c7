//! The log of the processes.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Logs go to standard error; `MACHINIST_LOG` chooses what is in them.
pub fn init_logging() {
    let filter =
        EnvFilter::try_from_env("MACHINIST_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = std::io::stderr().is_terminal();
    // A second start of the log is no harm: the first one goes on.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(ansi)
        .with_writer(std::io::stderr)
        .try_init();
}
