//! Generates the files for image mirrors, image policies and container runtime settings.
//!
//! ```text
//! ImageContentSourcePolicy ┐
//! ImageDigestMirrorSet     ├─ mirrors ─┐
//! ImageTagMirrorSet        ┘           ├─ registries_conf ─→ registries.conf ─┐
//! Image ─ registry_lists ──────────────┤                                      ├─ registries ─→ 99-<pool>-generated-registries
//! ClusterImagePolicy ┐                 ├─ policy_json ─────→ policy.json      │
//! ImagePolicy        ┴ image_policies ─┴─ registries_d ────→ registries.d ────┘
//! ContainerRuntimeConfig ─ crio_settings ─→ drop-ins, storage.conf ─→ 99-<pool>-generated-containerruntime
//!                        ─ containerd_settings ─→ drop-ins of kubelet and containerd, on nodes of kubeadm, k3s, RKE2
//! registries.conf ─ containerd_hosts ─→ certs.d/*/hosts.toml, on hosts with containerd
//! ```
//!
//! The results are the same as those of MCO and its libraries (`tests/cases/registries.jsonl`,
//! `tests/cases/policies.jsonl`).

mod base_files;
pub mod containerd_hosts;
mod containerd_settings;
pub mod crio_settings;
mod image_policies;
mod image_reference;
mod mirror_order;
mod mirrors;
mod policy_json;
mod policy_requirement;
pub mod registries;
pub mod registries_conf;
mod registries_d;
mod registry_lists;
mod registry_lookup;
pub mod scope;
mod signature_requirement;
mod storage_conf;
mod toml_text;

pub use base_files::BaseFiles;
pub use containerd_settings::CONTAINERD_DROP_INS;
pub use image_policies::ScopeConflict;
pub use image_reference::is_full_image_name;
