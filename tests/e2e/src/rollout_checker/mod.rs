//! Rules over a full watch log: what a rollout must never do, proven from what the API server has stored.
//!
//! [`WatchLog`] records every version of every node and pool. [`check`] goes through it in order and lists violations.
//! It is a pure function, so the log of a failed run can be checked again.

mod log;
mod pool;
mod rules;

pub use log::{LogEntry, RecordedLog, WatchLog};
pub use rules::{ReactionTime, RuleViolation, check};
