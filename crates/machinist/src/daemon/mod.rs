//! The daemon: brings the disk of a machine to a config, so that a crash or a power cut at any time does no
//! harm. `docs/daemon.md` explains what it does to a disk and why that is safe.
//!
//! | module | does |
//! |---|---|
//! | `agent` | the process that watches its Node |
//! | `drift` | detects and heals drift |
//! | `health` | runs health checks on the new config |
//! | `os` | changes the operating system; a backend for each kind of host |
//! | `systemd` | reloads and restarts services over D-Bus |
//! | `join` | gives a machine an identity, a service and a Node, and removes them |
//! | `owned` | what on the machine is Machinist's, and what was there before |
//! | `preview` | what a change would do |
//! | `status` | the status of the machine without an API server |
//! | `service_state` | the state of the daemon's service |
//! | `running` | ends a daemon that systemd does not end, when its machine leaves |
//! | `upgrade` | replaces the daemon's binary |
//! | `watchdog` | restores the daemon's unit and binary |
//! | `state` | the daemon's own files |
//! | `private_files` | restricts those files to root |
//! | `first_boot` | completes what Ignition could not do |
//! | [`once`] | applies one config to one root |
//! | [`transaction`] | recovers, plans and commits a change |
//! | `root` | paths beneath one directory, without following links out of it |
//! | `journal` | the plan of a change, on disk before it begins |
//! | `preflight` | what would keep a plan from being performed, before it begins |
//! | `quarantine` | steps that could not be undone, tried again |
//! | `unreadable_files` | damaged records, moved away |
//! | `apply` | performs and undoes the steps of a plan |

pub(crate) mod agent;
mod apply;
mod drift;
pub(crate) mod first_boot;
mod health;
pub(crate) mod join;
mod journal;
pub mod once;
pub(crate) mod os;
pub(crate) mod owned;
mod preflight;
pub(crate) mod preview;
mod private_files;
mod quarantine;
mod root;
mod running;
mod service_state;
mod state;
pub(crate) mod status;
mod systemd;
pub mod transaction;
mod unreadable_files;
mod upgrade;
pub(crate) mod watchdog;

pub use root::HostRoot;
