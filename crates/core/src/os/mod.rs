//! The operating system beneath the files: which image a machine has booted, its kernel arguments, and
//! what has to change. Hosts differ in how they do it; what they are asked for is the same.
//!
//! ```text
//! config ─ Wanted ─┐
//!                  ├─ Change::between ─→ Change ─→ rpm_ostree, bootc, plain: what to call ─→ restart ─→ verify
//! host ─ status ───┘
//! ```
//!
//! | file | decides |
//! |---|---|
//! | `wanted` | what a config wants, and which image counts |
//! | `change` | what has to change, and the way back |
//! | `kernel_arguments` | how they are split, changed and looked for |
//! | `kernel_type`, `extensions` | what other kernels and extensions are made of |
//! | `host` | which kind of host a machine is |
//! | `rpm_ostree`, `bootc`, `plain` | what is called, in which order, and what the answers mean |
//! | `ostree`, `image_ref`, `layers`, `manifest` | how an image becomes a tree of ostree's |
//! | `pull_secret`, `download` | which credentials images are fetched with, and what follows where that fails |
//! | `first_boot` | what Ignition has left to be done |
//! | `verify` | whether a machine has booted what it is to, and what follows if not |

pub mod bootc;
mod desired;
pub mod download;
pub mod extensions;
pub mod first_boot;
pub mod host;
pub mod image_ref;
pub mod kernel_arguments;
pub mod kernel_type;
pub mod layers;
pub mod manifest;
mod os_change;
mod os_status;
pub mod ostree;
pub mod package_host;
pub mod pull_secret;
mod registry_credentials;
pub mod rpm_ostree;
pub mod verify_boot;

pub use desired::{DesiredOs, is_same_image, layered_image, with_layered_image};
pub use os_change::{KernelArgumentsChange, OsChange};
pub use os_status::{OsDeployment, OsStatus};
pub use registry_credentials::credentials;
