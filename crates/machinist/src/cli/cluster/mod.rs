//! What the commands share that ask a home: `get`, `apply`, `delete`, `describe`, `label`,
//! `annotate`, `wait`, and those about rollouts.
//!
//! | module | is |
//! |---|---|
//! | [`words`] | `TYPE NAME…`, `TYPE/NAME…` and `A,B` |
//! | [`session`] | the home with its kinds, and the objects that are meant |
//! | [`part`] | what `get` is asked for, kind by kind |
//! | [`table`] | tables as `kubectl` prints them |
//! | [`report`] | an object for people to read |
//! | [`keys`] | `key=value` and `key-` |
//! | [`goal`] | what is waited for |
//! | [`duration`] | `30s`, `1m30s` |
//! | [`world`] | all objects that a rollout is about |
//! | [`follow`] | the same, kept in step |

pub(super) mod describe;
pub(super) mod follow;
pub(super) mod metadata_changes;
pub(super) mod query;
pub(super) mod resource_args;
pub(super) mod session;
pub(super) mod snapshot;
pub(super) mod table;
pub(super) mod wait_condition;

use anyhow::{Context as _, Result};
use clap::error::ErrorKind;

/// Runs a command that asks a home to its end.
pub(super) fn block_on<T>(command: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let result = runtime.block_on(command);
    // A question that is still under way must not hold the end up.
    runtime.shutdown_background();
    result
}

/// Wrong usage that the grammar alone does not see: exit code 2.
pub(super) fn usage_error(message: impl std::fmt::Display) -> anyhow::Error {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{message}\n")).into()
}
