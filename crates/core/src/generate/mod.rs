//! All generators of MachineConfigs: templates, kubelet settings, image mirrors and policies, and
//! container runtime settings.
//!
//! A generator is a pure function from objects and pools to
//! [`GeneratedConfig`](crate::generated_config::GeneratedConfig)s. This module runs them in order.
//! The commands `generate`, `explain` and `bootstrap` call [`generate`]; the controller calls the same
//! functions one by one, each when its sources change.

mod from_templates;
mod generators;
pub mod overridden;
pub mod policy_status;
pub mod runtime_effects;

pub use from_templates::{
    ClusterSettings, ClusterSettingsError, cluster_settings, missing_base_error, template_error,
};
pub use generators::{
    GENERATORS, GenerateOutput, GenerateSources, Generator, container_runtimes, generate,
    registries,
};
