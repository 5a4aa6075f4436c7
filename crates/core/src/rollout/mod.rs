//! The rollout: who is in which pool, who goes next, what the pool's status says, and why somebody
//! does not go yet. (The real system calls its controller for this the *node* controller.)
//!
//! ```text
//! pools + nodes ─ membership ─→ nodes of a pool ─ candidates ─→ who goes now, who waits and why
//!                                               └ pool_status, stream_status ─→ counts, conditions, the stream
//! pool + MachineOSConfig + MachineOSBuild ─ layering ─→ the goal: a config, or an image with its config
//! pool ─ policy ─→ who goes first, when, how many may fail ─ decide ─→ the decision with all that
//! report ─ machine_config_node ─→ what the MachineConfigNode says
//! finished machines ─ estimate ─→ when the rollout ends
//! all that refers to them ─ rendered ─→ which rendered configs may go
//! ```

mod candidates;
mod estimate;
pub mod first_boot;
pub mod guarded_patch;
mod image_layering;
mod image_status;
mod max_unavailable;
mod membership;
pub mod node_patches;
mod policy;
mod pool_conditions;
mod pool_status;
mod rendered_configs;
mod stream_status;
mod waiting;

pub use estimate::estimate;
pub use image_layering::PoolLayering;
pub use max_unavailable::{MaxUnavailableError, max_unavailable};
pub use membership::{
    MembershipError, NodePools, PoolAssignment, assign_nodes, nodes_of, pools_of,
};
pub use policy::{
    MaintenanceWindows, RebootPolicy, RolloutDecision, RolloutHalted, RolloutPolicy,
    RolloutPolicyError, decide_layered_rollout, decide_rollout,
};
pub use pool_conditions::{
    PoolNotes, PoolStatusInputs, RenderStatus, halted_message, is_updated, reported_pool_status,
};
pub use pool_status::{pool_status, pool_status_for};
pub(crate) use rendered_configs::pool_of;
pub use rendered_configs::{referenced_configs, removable_configs};
pub use stream_status::stream_of;
pub use waiting::{MachineNames, WaitReason};
