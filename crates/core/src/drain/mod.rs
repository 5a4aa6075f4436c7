//! Emptying a machine before it is changed: what it asks for, which pods go, what is in the way,
//! and when to try again.
//!
//! ```text
//! Node ─ request ─→ nothing, drain or uncordon
//! pods of the node ─ pods ─→ who is evicted, who is waited for, who stays
//! answers to evictions ─ blockers ─→ who is in the way, and since when
//! time since the start ─ schedule ─→ the next attempt, events, the alert
//! each step ─ conditions ─→ what the MachineConfigNode says
//! ```

mod blockers;
mod conditions;
mod pods;
mod request;
mod schedule;

pub use blockers::{Answer, Blocker, answer, blockers};
pub use conditions::{Step, report};
pub use pods::{DaemonSetRef, Plan, PodRef, Stays, daemon_sets, plan};
pub use request::{DrainError, Request, pending};
pub use schedule::{
    ALERT_AFTER, ATTEMPT_TIMEOUT, CORDON_DELAYS, EVICTION_RETRY, FAILING_AFTER, FAILING_RETRY,
    RETRY, Retry, Warning, after_failure,
};
