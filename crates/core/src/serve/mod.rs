//! The machine config server: what a machine receives on its first boot.
//!
//! ```text
//! path, method ─ route ─→ pool      Accept ─ accept ─→ version      query ─ etcd_index ─→ index
//!
//! pool ─ select_config ─→ MachineConfig, image ─ assemble (files, manifest, kubeconfig) ─→ response body
//!
//! token, address ─ provisioning_token, network, rate_limit ─→ whether the request is allowed
//!
//! first_boot: the binary, and the unit that completes the first boot
//!
//! config ─ seal ─→ a public half, and a sealed half for enrolled machines ─ enrol ─→ who is enrolled
//! ```
//!
//! Everything here is a pure function, so the server caches a response until one of its inputs
//! changes. A failure is a [`ServeError`], which knows its HTTP status. Called by the `server`
//! command.

pub mod accept;
pub mod assemble;
pub mod enrol;
pub mod error;
pub mod etcd_index;
mod files;
pub mod first_boot;
pub mod kubeconfig;
mod manifest;
pub mod network;
pub mod provisioning_token;
pub mod rate_limit;
pub mod route;
pub mod seal;
pub mod select_config;
pub mod socket_activation;

pub use accept::served_version;
pub use assemble::{ConfigHalf, ConfigRequest, ServeInputs, ServeMode, assemble};
pub use error::ServeError;
pub use route::{ServerRoute, route};
