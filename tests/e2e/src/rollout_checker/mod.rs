//! Rules over a full watch log: what a rollout must never do, proven from what the API server has seen.
//!
//! [`WatchLog`] records every version of every node and pool. [`check`] goes through it in order and says what broke a
//! rule. It is a pure function, so a log kept from a failed run can be checked again.

mod log;
mod pool;
mod rules;

pub use log::{LogEntry, RecordedLog, WatchLog};
pub use rules::{ReactionTime, RuleViolation, check};
