//! The health gate: is a machine well on its new config, and if not, what then?
//!
//! ```text
//! config ─ file ─→ Spec ─┐
//!     results of a round ┴ judge ─→ healthy │ not yet │ failed ─→ Marker ─ may_try ─→ go │ wait
//! ```
//!
//! A config can carry the file [`FILE`], which says what has to hold on a machine that has it. A
//! machine on which it does not hold within the deadline goes back to the config before, also after
//! a restart, and does not try the same config again until it is told to. See `docs/health.md`.

mod evaluate;
mod failed_config;
mod spec;

pub use evaluate::{FailedCheck, HealthCheck, HealthResults, HealthState, HealthTiming, evaluate};
pub use failed_config::{FAILED_CONFIG_PATH, FailedConfig, RetryDecision, may_try};
pub use spec::{HEALTH_SPEC_PATH, HealthCommand, HealthSpec, HealthSpecError, health_spec_bytes};
