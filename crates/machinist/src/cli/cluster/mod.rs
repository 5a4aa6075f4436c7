//! Shared parts of the commands that use an API server: `get`, `apply`, `delete`, `describe`, `label`,
//! `annotate`, `wait`, and those about rollouts.
//!
//! | module | is |
//! |---|---|
//! | [`resource_args`] | `TYPE NAME…`, `TYPE/NAME…` and `A,B` |
//! | [`session`] | a connection with the served kinds, and the selected objects |
//! | [`query`] | the queries of `get`, by kind |
//! | [`table`] | tables as `kubectl` prints them |
//! | [`documents`] | the objects of an API server instead of manifests |
//! | [`describe`] | an object as text for people |
//! | [`metadata_changes`] | `key=value` and `key-` |
//! | [`wait_condition`] | the condition of `wait` |
//! | [`snapshot`] | all objects that affect a rollout |
//! | [`follow`] | a snapshot that watches keep up to date |

pub(super) mod describe;
pub(super) mod documents;
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

/// Runs a command that uses an API server.
pub(super) fn block_on<T>(command: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
    let result = runtime.block_on(command);
    // A pending request must not delay the exit.
    runtime.shutdown_background();
    result
}

/// Wrong usage that the grammar cannot express: exit code 2.
pub(super) fn usage_error(message: impl std::fmt::Display) -> anyhow::Error {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{message}\n")).into()
}
