//! The parts of Go's libraries whose behaviour MCO's formats depend on, reproduced exactly.
//!
//! Templates see a ControllerConfig as a Go struct: an unset field is present and empty, an unset
//! pointer is absent. A kubelet configuration is written with every field that Go would write. Both
//! follow from tables of the Go types ([`types`]). The names of rendered configs are hashes over
//! Go's [`yaml`], and Ignition's validation uses Go's [`path`] and [`url`].
//!
//! This module knows nothing of machine configs. `generate`, `ignition`, `render` and `serve` call it.

pub mod duration;
pub mod escape;
pub mod json;
pub mod path;
pub mod types;
pub mod unit_file;
pub mod url;
pub mod yaml;
