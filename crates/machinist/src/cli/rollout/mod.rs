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

mod explain;
mod report;
#[cfg(test)]
mod scenarios;
mod status;
mod text;
mod times;
mod words;

use anyhow::Result;
use clap::Subcommand;

use super::Outcome;

/// Look at the rollout of a pool
#[derive(Debug, Subcommand)]
pub(super) enum Rollout {
    Status(status::Status),
    Explain(explain::Explain),
}

impl Rollout {
    pub(super) fn run(&self) -> Result<Outcome> {
        match self {
            Self::Status(command) => command.run(),
            Self::Explain(command) => command.run(),
        }
    }
}
