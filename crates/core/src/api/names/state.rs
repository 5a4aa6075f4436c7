//! What a machine says it is doing, in [`annotation::STATE`](super::annotation::STATE).

/// Changing to the wanted configuration.
pub const WORKING: &str = "Working";
/// Has the wanted configuration.
pub const DONE: &str = "Done";
/// Could not change to the wanted configuration; tries again.
pub const DEGRADED: &str = "Degraded";
/// Refuses the wanted configuration: it cannot be reached from the present one.
pub const UNRECONCILABLE: &str = "Unreconcilable";
/// About to restart.
pub const REBOOTING: &str = "Rebooting";
