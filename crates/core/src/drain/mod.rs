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

pub use blockers::{DrainBlocker, EvictionRefusal, blockers, eviction_refusal};
pub use conditions::{DrainProgress, drain_report};
pub use pods::{DaemonSetRef, DrainPlan, PodRef, SkipReason, daemon_sets, plan_drain};
pub use request::{DrainError, DrainRequest, pending_request};
pub use schedule::{
    ALERT_AFTER, ATTEMPT_TIMEOUT, CORDON_DELAYS, DRAIN_RETRY, DrainRetry, DrainWarning,
    EVICTION_RETRY, FAILING_AFTER, SLOW_DRAIN_RETRY, after_failure,
};
