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

mod base;
mod image_policies;
mod lookup;
mod mirrors;
mod order;
mod policy_json;
mod reference;
pub mod registries;
pub mod registries_conf;
pub mod scope;
pub mod settings;
mod signature;
mod sigstore;
mod sources;
mod storage_conf;
mod toml_text;

pub use base::Base;
pub use image_policies::Conflict;
