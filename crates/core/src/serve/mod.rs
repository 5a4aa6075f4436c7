//! What a machine gets on its first boot.
//!
//! ```text
//! path, method ─ route ─→ pool      Accept ─ accept ─→ version      query ─ etcd_index ─→ index
//!
//! pool ─ choose ─→ MachineConfig, image ─ assemble (files, manifest, kubeconfig) ─→ the bytes of the answer
//!
//! token, address ─ access, network, rate ─→ whether there is an answer at all
//!
//! birth: the program, and the unit that completes the first boot
//!
//! config ─ seal ─→ a half for everyone, a half for machines that are known ─ enrol ─→ who is
//! ```
//!
//! Everything here is a function of its arguments, so an answer is made once and kept until something that it was made
//! of changes. What cannot be answered is a [`Refusal`], which knows its status.

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
