//! The operating system: which image a machine has booted, its kernel arguments, and what has to change.
//! Hosts differ in how they change it; what is asked of them is the same.
//!
//! ```text
//! config ─ DesiredOs ─┐
//!                     ├─ OsChange::between ─→ OsChange ─→ rpm_ostree, bootc, …: commands ─→ reboot ─→ verify_boot
//! host ─ OsStatus ────┘
//! ```
//!
//! | module | decides |
//! |---|---|
//! | `desired` | what a config asks for, and which image counts |
//! | `os_change` | what has to change, also for a rollback |
//! | `kernel_arguments` | how they are split, changed and compared |
//! | `kernel_type`, `extensions` | which packages other kernels and extensions consist of |
//! | `abilities` | what a host can do, as its daemon reports it |
//! | `host` | which kind of host a machine is |
//! | `rpm_ostree`, `bootc`, `package_host` | which commands are run, in which order, and how their output is read |
//! | `ostree`, `image_ref`, `layers`, `manifest` | how an image becomes an ostree commit |
//! | `pull_secret`, `download` | which credentials are used, and what a failed download means |
//! | `sshd` | where sshd reads the keys of users |
//! | `first_boot` | what is left to do after Ignition |
//! | `verify_boot` | whether a machine has booted the desired OS, and what follows if not |

pub mod abilities;
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
pub mod sshd;
pub mod verify_boot;

pub use desired::{DesiredOs, is_same_image, layered_image, with_layered_image};
pub use os_change::{KernelArgumentsChange, OsChange};
pub use os_status::{OsDeployment, OsStatus};
pub use registry_credentials::credentials;
