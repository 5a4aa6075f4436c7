//! The names that the components agree on: labels, annotations, conditions, objects, paths.
//!
//! Machines and controllers communicate through these, so a name never changes. Machinist's own
//! names begin with [`EXTENSION_PREFIX`]; all others are those of OpenShift's Machine Config
//! Operator (MCO), whose components Machinist works with.

pub mod annotation;
pub mod condition;
pub mod label;
pub mod object;
pub mod path;
pub mod port;
mod spelling;
pub mod state;

pub use spelling::misspelt_annotations;

/// The API group of MachineConfigs and pools.
pub const GROUP: &str = "machineconfiguration.openshift.io";

/// The prefix of Machinist's own labels and annotations.
pub const EXTENSION_PREFIX: &str = "machinist.dev/";

/// The field manager of server-side apply.
pub const FIELD_MANAGER: &str = "machine-config-operator";

/// The taint on a machine that is about to be updated, so that new pods prefer other machines.
pub const UPDATE_IN_PROGRESS_TAINT: &str = "UpdateInProgress";

/// The placeholder in a [`MachineConfigNode`](crate::api::MachineConfigNode) until the
/// configuration is known.
pub const NOT_YET_SET: &str = "not-yet-set";

/// The highest suffix in [`annotation::MC_NAME_SUFFIX`]: a pool may have ten objects of a kind.
pub const MAX_NAME_SUFFIX: usize = 9;
/// The prefix of a request to be cordoned and drained; the config follows.
pub const DRAIN_PREFIX: &str = "drain-";
/// The prefix of a request to be uncordoned; the config follows.
pub const UNCORDON_PREFIX: &str = "uncordon-";

/// The largest MachineConfig that can be stored, in bytes.
pub const MAX_MACHINE_CONFIG_BYTES: usize = 1_572_864;
