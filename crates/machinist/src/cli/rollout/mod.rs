//! `machinist rollout`: the progress of a rollout, the next decision, and what machines wait for.
//!
//! | module | is |
//! |---|---|
//! | [`explain`] | the controller's decision about a pool, from the API server or from files |
//! | [`status`] | the progress of pools, once or until the rollout ends |
//! | [`report`] | the progress of a pool, as data |
//! | [`durations`] | since when machines wait, and when the rollout ends |
//! | [`text`] | the report for people |
//! | [`reasons`] | what a machine or a pool waits for, as text |

mod durations;
mod explain;
pub(in crate::cli) mod reasons;
pub(in crate::cli) mod report;
#[cfg(test)]
mod report_tests;
mod status;
mod text;

use anyhow::Result;
use clap::Subcommand;

use super::CommandOutcome;

/// Show the progress of rollouts and the next decision of the controller
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
