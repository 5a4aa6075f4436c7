//! The daemon: a config on a machine's disk, so that a crash or a power cut at any instant does no
//! harm. What it does to a disk, and why that is safe, is told in `docs/daemon.md`.
//!
//! | file | does |
//! |---|---|
//! | [`once`] | one config to one root, and nothing else |
//! | `root` | everything beneath one folder, with no link followed out of it |
//! | `journal` | what is about to happen, on disk before it happens |
//! | `apply` | the steps of a plan, and the way back |

mod apply;
mod fault;
mod journal;
pub mod once;
mod root;
