//! What Go's typed world does to values: the struct types behind some objects, their JSON, their
//! YAML and their durations.
//!
//! Templates see a ControllerConfig as Go's struct (a field that was never set is there and
//! empty, a pointer that was never set is not), and a kubelet configuration is written with every
//! field that Go would write. Both follow from tables of the Go types ([`types`]).

pub mod duration;
pub mod escape;
pub mod json;
pub mod types;
pub mod yaml;
