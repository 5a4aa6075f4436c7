//! User data: the small pointer config with which a machine fetches its pool's config.
//!
//! ```text
//! endpoint (URL, CA, token), pool ─ pointer ─→ pointer config ─ secret ─→ <pool>-user-data-managed
//!                                         └─ manual ─→ kernel arguments, a script for hosts without Ignition
//! Infrastructure ─ endpoint::server_host ─→ the URL of a cluster's server
//! ```
//!
//! Machinist owns and repairs these Secrets. It never touches `<role>-user-data`, which installers
//! create and old boot images use.

pub mod endpoint;
pub mod manual;
pub mod pointer;
pub mod secret;

pub use endpoint::ServerEndpoint;
pub use pointer::{PointerVersion, pointer_config};
