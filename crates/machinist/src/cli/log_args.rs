//! The logging flags that every process has. No command starts logging in another way.

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
    /// The flags of a process that logs like this one; none for the default.
    pub(super) fn arguments(self) -> Vec<String> {
        match self.log_format {
            LogFormat::Text => Vec::new(),
            LogFormat::Json => vec!["--log-format".to_owned(), "json".to_owned()],
        }
    }

    pub(super) fn init(self) {
        telemetry::init_logging(self.log_format);
    }

    /// The same, and keeps the last lines.
    pub(super) fn init_recent_log(self) -> RecentLog {
        telemetry::init_recent_log(self.log_format)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use clap::CommandFactory as _;

    use crate::cli::Cli;

    /// Every command that logs.
    const PROCESSES: [&str; 12] = [
        "up",
        "controller",
        "operator",
        "server start",
        "server bootstrap",
        "daemon start",
        "daemon watchdog",
        "daemon guard",
        "enrol",
        "firstboot",
        "join",
        "leave",
    ];

    #[test]
    fn every_process_takes_the_format_of_its_log() {
        for process in PROCESSES {
            let mut command = Cli::command();
            for name in process.split(' ') {
                command = command.find_subcommand(name).expect(process).clone();
            }
            let has_it = command.get_arguments().any(|it| it.get_long() == Some("log-format"));
            assert!(has_it, "{process}");
        }
    }

    /// How many files of a directory start the log.
    fn count(directory: &Path) -> usize {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        entries
            .map(|path| match path.is_dir() {
                true => count(&path),
                false if path.ends_with("log_args.rs") => 0,
                false => {
                    let text = fs::read_to_string(&path).unwrap();
                    assert!(!text.contains("init_logging"), "{}: use LogArgs", path.display());
                    usize::from(text.contains("log.init();"))
                }
            })
            .sum()
    }

    #[test]
    fn no_command_starts_its_log_in_another_way() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli");
        assert!(count(&directory) >= 9);
    }
}
