//! What image mirrors, image policies and container runtime settings make on a machine.
//!
//! ```text
//! ImageContentSourcePolicy ┐
//! ImageDigestMirrorSet     ├─ mirrors ─┐
//! ImageTagMirrorSet        ┘           ├─ registries_conf ─→ registries.conf ─┐
//! Image ─ sources (blocked, allowed) ──┤                                      ├─ registries ─→ 99-<pool>-generated-registries
//! ClusterImagePolicy ┐                 ├─ policy_json ─────→ policy.json      │
//! ImagePolicy        ┴ image_policies ─┴─ sigstore ────────→ registries.d ────┘
//! ContainerRuntimeConfig ─ settings ──→ CRI-O drop-ins, storage.conf ─→ 99-<pool>-generated-containerruntime
//! ```
//!
//! The answers are those of the Machine Config Operator and of the libraries it uses
//! (`tests/cases/registries.jsonl`).

mod base_files;
pub mod crio_settings;
mod image_policies;
mod image_reference;
mod mirror_order;
mod mirrors;
mod policy_json;
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
pub use image_policies::ScopeConflict;
