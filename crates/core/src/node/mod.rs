//! A machine as the API shows it: its Node, and its MachineConfigNode.
//!
//! [`NodeView`] reads a Node, [`DriftedPath`] is what it says about drift, [`DaemonReport`] what about its daemon; [`machine_config_node`] computes what is written to a MachineConfigNode.
//! Which machine is updated when is decided in `rollout`, what is evicted in `drain`, and what a
//! machine does next in `daemon`. All three build on this module.

mod drifted;
pub mod machine_config_node;
mod mode;
mod target;
mod upgrade;
mod view;

pub use drifted::{DriftKind, DriftedPath, format_drifted, parse_drifted};
pub use mode::{MachineMode, MachineModeError};
pub use target::{LayeredImage, RolloutTarget};
pub use upgrade::{
    DaemonReport, FailedUpgrade, MAX_DAEMON_BYTES, MAX_UPGRADE_REASON_CHARS, UpgradeRequest,
    UpgradeRequestError, is_sha256,
};
pub use view::{MAX_OBSERVATION_CHARS, MAX_REASON_CHARS, NodeView, NotReady, excerpt};
