//! The rollout: who is in which pool, who goes next, what the pool's status says, and why somebody
//! does not go yet. (The real system calls its controller for this the *node* controller.)
//!
//! ```text
//! pools + nodes ─ membership ─→ nodes of a pool ─ candidates ─→ who goes now, who waits and why
//!                                               └ pool_status ─→ counts and conditions
//! ```

mod candidates;
mod max_unavailable;
mod membership;
mod node;
mod pool_status;

pub use candidates::{Choice, Waiting, choose};
pub use max_unavailable::{MaxUnavailableError, max_unavailable};
pub use membership::{Membership, MembershipError, nodes_of, pools_of};
pub use node::{NodeView, NotReady};
pub use pool_status::pool_status;
