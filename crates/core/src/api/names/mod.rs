//! The names that the components agree on: labels, annotations, conditions, objects, places.
//!
//! Machines and controllers talk to one another through these, so a name never changes. Names of
//! our own begin with [`EXTENSION_PREFIX`]; all the others are those of OpenShift's Machine Config
//! Operator, whose parts we work together with.

pub mod annotation;
pub mod condition;
pub mod label;
pub mod object;
pub mod path;
pub mod port;
pub mod state;

/// The API group of MachineConfigs and pools.
pub const GROUP: &str = "machineconfiguration.openshift.io";

/// What every label and annotation of our own begins with.
pub const EXTENSION_PREFIX: &str = "machinist.dev/";

/// The name under which the system writes fields with server-side apply.
pub const FIELD_MANAGER: &str = "machine-config-operator";

/// The taint on a machine that is about to be updated, so that new pods prefer other machines.
pub const UPDATE_IN_PROGRESS_TAINT: &str = "UpdateInProgress";

/// What a [`MachineConfigNode`](crate::api::MachineConfigNode) says before a configuration is
/// known.
pub const NOT_YET_SET: &str = "not-yet-set";

/// The highest number that [`annotation::MC_NAME_SUFFIX`] may give: there may be ten objects for a pool.
pub const MAX_NAME_SUFFIX: usize = 9;

/// The largest MachineConfig that can be stored, in bytes.
pub const MAX_MACHINE_CONFIG_BYTES: usize = 1_572_864;
