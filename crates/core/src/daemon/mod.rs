//! The daemon of a machine: what it does next, and what it reports.
//!
//! ```text
//! Observed (Node, disk), Session ─ next_step ─→ AgentStep ─→ effects ─→ Session::after ─→ …
//! ```
//!
//! Node and disk hold everything that a restarted daemon needs. The [`Session`] only saves work.
//! Effects are performed by `daemon/agent` in the shell, which decides nothing itself.
//!
//! | module | decides |
//! |---|---|
//! | `next_step` | the next step |
//! | [`observation`] | what a machine in observe mode reports |
//! | [`session`] | retries, timeouts, SIGTERM protection, what a step changes in memory |
//! | [`update`] | whether an update is possible, its actions, and its drain |
//! | [`os_plan`] | the OS part of an update, and what a reboot made of it |
//! | `pending` | what a change leaves to do, recorded on disk before it begins |
//! | [`annotations`] | what the daemon writes to its Node |
//! | [`reports`] | the conditions of its MachineConfigNode, in MCO's words |
//! | [`finish`] | how an update ends: verified, uncordoned, reported |
//! | [`actions`] | which actions need a drain or a reboot |
//! | `disruption_policy` | the disruption policy and validation overrides in force |
//! | [`kubelet_health`] | what a health probe of the kubelet means |
//! | [`identity_claim`] | who acts as a machine, if two have its identity |
//! | `rebuild` | which config a machine has that lost its `currentconfig` |
//! | [`boot_guard`] | whether a host whose daemon is a pod guards the next boot |
//! | [`stall`] | whether the disk answers |
//! | [`upgrade`] | what becomes of a request to run another binary |
//! | `backoff` | the pause after a failure |

pub mod actions;
pub mod annotations;
mod backoff;
pub mod boot_guard;
mod disruption_policy;
pub mod finish;
pub mod identity_claim;
pub mod kubelet_health;
mod next_step;
pub mod observation;
pub mod os_plan;
mod pending;
mod rebuild;
pub mod reports;
pub mod session;
pub mod stall;
pub mod update;
pub mod upgrade;

pub use backoff::backoff;
pub use disruption_policy::{effective_disruption_policy, validation_overrides};
pub use next_step::{AgentStep, AgentWait, Observed, next_step};
pub use pending::{PENDING_PATH, PendingChange, PendingOsChange};
pub use rebuild::{CandidateConfig, candidate_configs};
pub use session::{Phase, Session, SessionEvent};
