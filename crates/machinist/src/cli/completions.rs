//! `machinist completions`: completion scripts for shells.

use anyhow::Result;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell; // words: keep

use super::{Cli, CommandOutcome, output};

/// Print the completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist completions bash")]
pub(super) struct CompletionsArgs {
    /// The shell to print the script for
    shell: Shell, // words: keep
}

impl CompletionsArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "machinist", &mut script);
        output::print(&String::from_utf8_lossy(&script))?;
        Ok(CommandOutcome::Done)
    }
}
