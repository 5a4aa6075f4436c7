//! The rollout: a machine's pool, which machine gets the new config next, why the others wait, and
//! the pool's status. MCO calls the controller for this the *node* controller.
//!
//! ```text
//! pools + Nodes ─ membership ─→ Nodes of a pool ─ candidates ─→ next machines, waiting machines
//!                                               └ pool_status, stream_status ─→ status of the pool
//! pool + MachineOSConfig + MachineOSBuild ─ image_layering ─→ target: config, or image with config
//! pool annotations ─ policy ─→ canaries, windows, failure limit ─ policy::decide ─→ decision
//! waiting machines, drains ─ blocks ─→ what blocks the rollout, by name
//! finished machines ─ estimate ─→ end of the rollout
//! pool + Nodes ─ daemon_upgrade ─→ machines whose daemon is upgraded next
//! everything that refers to rendered configs ─ rendered_configs ─→ which may be deleted
//! ```
//!
//! The controller writes the decisions; `machinist rollout` and `plan` show them. Draining is decided
//! in `drain`.

mod blocks;
mod candidates;
mod daemon_upgrade;
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

pub use blocks::{RolloutBlock, RolloutBlocks, rollout_blocks};
pub use daemon_upgrade::{
    UpgradeDecision, UpgradeHalted, UpgradeState, decide_upgrade, halted_reason, upgrade_state,
};
pub use estimate::estimate;
pub use image_layering::PoolLayering;
pub use max_unavailable::{MaxUnavailableError, max_unavailable};
pub use membership::{
    MembershipError, NodePools, PoolAssignment, assign_nodes, nodes_of, pools_of,
    without_pool_message,
};
pub use policy::{
    MaintenanceWindows, RebootPolicy, RolloutDecision, RolloutHalted, RolloutPolicy,
    RolloutPolicyError, decide_layered_rollout, decide_rollout,
};
pub use pool_conditions::{
    PoolNotes, PoolStatusInputs, RenderStatus, halted_message, is_updated, pool_mode,
    reported_pool_status,
};
pub use pool_status::{pool_status, pool_status_for};
pub(crate) use rendered_configs::pool_of;
pub use rendered_configs::{referenced_configs, removable_configs};
pub use stream_status::stream_of;
pub use waiting::{MachineNames, WaitReason};
