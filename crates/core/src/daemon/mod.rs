//! The daemon of a machine: what it does next, and what it says on the way.
//!
//! ```text
//! (its Node, its disk, what is unfinished) ─ next ─→ one step ─→ (its Node, its disk, …) ─ next ─→ …
//! ```
//!
//! Nothing is kept in memory between two steps: whoever dies and comes back goes on where the Node
//! and the disk say. Waiting is a step too, and needs no process.
//!
//! | file | decides |
//! |---|---|
//! | `next` | the next step |
//! | `pending` | what a change leaves to be done, written down before it begins |
//! | `annotations` | what the daemon writes on its Node |
//! | `reports` | what its MachineConfigNode says, in the words of the real daemon |
//! | `actions` | which actions want a drain or a restart |
//! | `policy` | the disruption policy and the overrides in force |
//! | `kubelet` | what follows from asking the kubelet whether it is well |
//! | `memory` | which memory a daemon that rests can give back |
//! | `retry` | when to try again |

pub mod actions;
pub mod annotations;
mod backoff;
mod disruption_policy;
pub mod kubelet_health;
mod next_step;
mod pending;
pub mod reports;
pub mod smaps;

pub use backoff::backoff;
pub use disruption_policy::{effective_disruption_policy, validation_overrides};
pub use next_step::{AgentSnapshot, AgentStep, AgentWait, next_step};
pub use pending::{PENDING_PATH, PendingChange, PendingOsChange};
