//! The daemon as a process, on a machine that is a directory: damaged files of its own, clones, an API server that
//! forgets, a host without inotify, and what many changes cost.

mod alone;
mod changes;
mod clones;
mod damage;
mod expired;
pub(crate) mod fixture;
mod lost_node;
mod newer_state;
mod own_binary;
mod renewal;
mod unreadable;
mod unwatched;
