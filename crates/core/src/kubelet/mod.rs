//! The kubelet configuration of a pool: from KubeletConfigs, the FeatureGate and the Node config.
//!
//! Each of the three sources generates a complete file: `/etc/kubernetes/kubelet.conf`, or a drop-in on nodes that others
//! installed (`settings_file`). The names of their
//! MachineConfigs decide which one wins: the Node config (97), the FeatureGate (98), KubeletConfigs
//! (99). Each starts from the file that the templates generate for the pool.
//!
//! ```text
//! templates ─► base (gates, latency profile) ─┬─► node_config   97-<pool>-generated-kubelet
//!                                             ├─► features      98-<pool>-generated-kubelet
//!        KubeletConfig ─► check ─► machine_config ─► reconcile  99-<pool>-generated-kubelet[-N]
//! ```

mod base;
mod check;
mod features;
mod latency_profile;
mod machine_config;
mod node_config;
mod reconcile;
mod settings_file;
mod status;
#[cfg(test)]
mod tests;

pub use base::{BaseError, KubeletSources, base_configuration};
pub use check::{KubeletConfigError, check, check_for_pool};
pub use features::{features, gates};
pub use latency_profile::{
    RefusedLatencyChange, check_latency_change, refused_latency_change, wrong_name_message,
};
pub use machine_config::{KUBELET_CONF, generate};
pub use node_config::{NodeConfigError, node_config};
pub use reconcile::{
    KUBELET_NAMING, KubeletConfigPlan, KubeletConfigRemoval, KubeletSnapshot, orphaned_configs,
    reconcile, removal,
};
pub use settings_file::BaseConfiguration;
pub use status::status;
