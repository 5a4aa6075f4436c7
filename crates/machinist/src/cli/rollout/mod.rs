//! `machinist rollout`: how far a rollout is, what it would do next, and why somebody has to wait.
//!
//! | module | is |
//! |---|---|
//! | [`explain`] | the controller's decision about a pool, from the home or from files |
//! | [`status`] | how far pools are, once or until they are through |
//! | [`report`] | what is said about a pool, as data |
//! | [`times`] | since when, and until when |
//! | [`text`] | the same for people |
//! | [`words`] | what a machine waits for, in words |

mod durations;
mod explain;
mod reasons;
mod report;
#[cfg(test)]
mod report_tests;
mod status;
mod text;

use anyhow::Result;
use clap::Subcommand;

use super::CommandOutcome;

/// Look at the rollout of a pool
#[derive(Debug, Subcommand)]
pub(super) enum RolloutCommand {
    Status(status::RolloutStatusArgs),
    Explain(explain::RolloutExplainArgs),
}

impl RolloutCommand {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        match self {
            Self::Status(command) => command.run(),
            Self::Explain(command) => command.run(),
        }
    }
}
