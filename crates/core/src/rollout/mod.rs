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
pub mod guarded;
pub mod housekeeping;
mod image_status;
mod layering;
pub mod machine_config_node;
mod max_unavailable;
mod membership;
mod node;
mod policy;
mod pool_status;
mod rendered;
mod stream_status;
mod waiting;

pub use estimate::estimate;
pub use layering::{Goal, Image, Layering};
pub use max_unavailable::{MaxUnavailableError, max_unavailable};
pub use membership::{Assignment, Membership, MembershipError, assign, nodes_of, pools_of};
pub use node::{NodeView, NotReady};
pub use policy::{
    Decision, Halted, Policy, PolicyError, Reboot, Windows, decide, decide_for, duration,
};
pub use pool_status::{pool_status, pool_status_for};
pub(crate) use rendered::pool_of;
pub use rendered::{needed, removable};
pub use stream_status::stream_of;
pub use waiting::{Names, Waiting};
