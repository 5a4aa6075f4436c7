//! What a machine reports that it is doing, in [`annotation::STATE`](super::annotation::STATE).

/// Changing to the desired configuration.
pub const WORKING: &str = "Working";
/// Has the desired configuration.
pub const DONE: &str = "Done";
/// Failed to change to the desired configuration; retries.
pub const DEGRADED: &str = "Degraded";
/// Refuses the desired configuration: it cannot be reached from the current one.
pub const UNRECONCILABLE: &str = "Unreconcilable";
/// About to reboot.
pub const REBOOTING: &str = "Rebooting";
