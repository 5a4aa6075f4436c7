//! The daemon: a config on a machine's disk, so that a crash or a power cut at any instant does no
//! harm. What it does to a disk, and why that is safe, is told in `docs/daemon.md`.
//!
//! | file | does |
//! |---|---|
//! | `agent` | the process: it watches its Node and makes the machine so |
//! | `drift` | what differs from the config, seen as it happens, and put right |
//! | `health` | whether the machine is well on its new config |
//! | `os` | the operating system beneath the files: images, kernel arguments; a driver a kind of host |
//! | `systemd` | reloads, restarts and the like, by D-Bus |
//! | `join` | an identity, a service and a Node for a machine, and all of it away again |
//! | `os` | the operating system: images, kernel arguments |
//! | `preview` | what a change would do |
//! | `status` | what a machine can say about itself |
//! | `state` | the daemon's own files |
//! | `first_boot` | what Ignition could not do |
//! | [`once`] | one config to one root, and nothing else |
//! | `root` | everything beneath one folder, with no link followed out of it |
//! | `journal` | what is about to happen, on disk before it happens |
//! | `apply` | the steps of a plan, and the way back |

pub(crate) mod agent;
mod apply;
mod drift;
mod fault_injection;
pub(crate) mod first_boot;
mod health;
pub(crate) mod join;
mod journal;
pub mod once;
pub(crate) mod os;
pub(crate) mod preview;
mod root;
mod state;
pub(crate) mod status;
mod systemd;
pub mod transaction;

pub use root::HostRoot;
