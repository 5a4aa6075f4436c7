//! Draining a machine before it is changed: what it requests, which pods are evicted, what blocks
//! the drain, and when it is retried. The controller's drain loop performs what is decided here.
//!
//! ```text
//! Node ─ request ─→ nothing, drain or uncordon
//! pods of the Node ─ pods ─→ evict, wait for, leave
//! refused evictions ─ blockers ─→ what blocks the drain, and since when
//! time since the start ─ schedule ─→ next attempt, events, alert
//! each step ─ conditions ─→ report for the MachineConfigNode
//! ```

mod blockers;
mod conditions;
mod flags;
mod pods;
mod request;
mod schedule;

pub use blockers::{DrainBlocker, EvictionRefusal, blockers, eviction_refusal};
pub use conditions::{DrainProgress, drain_report};
pub use flags::{DrainFlags, DrainFlagsError};
pub use pods::{DaemonSetRef, DrainPlan, PodRef, PodRefusal, SkipReason, daemon_sets, plan_drain};
pub use request::{DrainError, DrainRequest, cordoned_again_message, pending_request};
pub use schedule::{
    ALERT_AFTER, ATTEMPT_TIMEOUT, CORDON_DELAYS, DRAIN_RETRY, DrainRetry, DrainWarning,
    EVICTION_RETRY, FAILING_AFTER, SLOW_DRAIN_RETRY, after_failure,
};
