//! The health gate: whether a machine is healthy on its new config, and what follows if not.
//!
//! ```text
//! config ─ health_spec_bytes ─→ HealthSpec ─┐
//!     results of a round of checks ─────────┴ evaluate ─→ healthy │ not yet │ failed ─→ FailedConfig ─ may_try
//! ```
//!
//! A config can contain the file [`HEALTH_SPEC_PATH`] with checks. A machine on which they do not pass
//! within the deadline rolls back to its previous config, also after a reboot, and does not try the same
//! config again until a person asks for it. Called by `daemon/health` in the shell. See `docs/health.md`.

mod evaluate;
mod failed_config;
mod spec;

pub use evaluate::{FailedCheck, HealthCheck, HealthResults, HealthState, HealthTiming, evaluate};
pub use failed_config::{FAILED_CONFIG_PATH, FailedConfig, RetryDecision, may_try};
pub use spec::{HEALTH_SPEC_PATH, HealthCommand, HealthSpec, HealthSpecError, health_spec_bytes};
