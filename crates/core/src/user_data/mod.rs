//! The first thing a machine reads: a small config that points at its pool's.
//!
//! ```text
//! endpoint (URL, CA, token), pool ─ pointer ─→ pointer config ─ secret ─→ <pool>-user-data-managed
//!                                         └─ by_hand ─→ kernel arguments, a script for hosts without Ignition
//! Infrastructure ─ endpoint::host ─→ where the server of a cluster is reached
//! ```
//!
//! The secrets are ours and kept as they should be; `<role>-user-data`, which installers made, is never touched, so that
//! old boot images go on working with it.

pub mod endpoint;
pub mod manual;
pub mod pointer;
pub mod secret;

pub use endpoint::ServerEndpoint;
pub use pointer::{PointerVersion, pointer_config};
