//! KubeletConfig and its neighbours: what the kubelets of a pool run with.
//!
//! Three sources make a whole `/etc/kubernetes/kubelet.conf` each, in MachineConfigs whose names
//! decide who wins: the cluster's Node settings (97), its FeatureGate (98), and KubeletConfigs
//! (99). Each starts from the file that the templates make for the pool.
//!
//! ```text
//! templates ─► base (gates, latency profile) ─┬─► node_config   97-<pool>-generated-kubelet
//!                                             ├─► features      98-<pool>-generated-kubelet
//!              KubeletConfig ─► check ─► content ─► sync        99-<pool>-generated-kubelet[-N]
//! ```

mod base;
mod check;
mod content;
mod features;
mod latency;
mod node_config;
mod status;
mod sync;
#[cfg(test)]
mod tests;

pub use base::{BaseError, Sources, base};
pub use check::{KubeletConfigError, check, check_for_pool};
pub use content::{KUBELET_CONF, generate};
pub use features::{features, gates};
pub use latency::{Refused, latency_change_is_allowed, refused_step, wrong_name};
pub use node_config::{NodeConfigError, node_config};
pub use status::status;
pub use sync::{FAMILY, Plan, Removal, World, leftovers, removal, sync};
