//! The generators that start from templates: the templates themselves and kubelet settings.

use super::{GenerateOutput, GenerateSources};
use crate::api::MachineConfigPool;
use crate::api::names::object;
use crate::generated_config::{GenerateError, GeneratedConfig, SourceRef};
use crate::kubelet::{
    self, BaseError, KubeletSnapshot, KubeletSources, NodeConfigError, features, node_config,
};
use crate::template;

/// Offline results carry no controller version.
const VERSION: &str = "";

/// MachineConfigs from templates.
pub(super) fn templates(sources: &GenerateSources<'_>) -> GenerateOutput {
    let Some(base) = &sources.templates else { return GenerateOutput::default() };
    match template::generate(base.templates, &base.inputs, VERSION) {
        Ok(generated) => GenerateOutput { generated, errors: Vec::new() },
        Err(error) => GenerateOutput {
            generated: Vec::new(),
            errors: vec![template_error(error.to_string())],
        },
    }
}

/// An error in the ControllerConfig or in a template.
#[must_use]
pub fn template_error(message: String) -> GenerateError {
    GenerateError {
        object: SourceRef::new("ControllerConfig", object::CONTROLLER_CONFIG),
        field: "spec".to_owned(),
        message,
        remedy: "fix the named template or the ControllerConfig".to_owned(),
    }
}

/// Kubelet settings from the Node config, the FeatureGate and KubeletConfigs.
pub(super) fn kubelets(sources: &GenerateSources<'_>) -> GenerateOutput {
    let mut made = GenerateOutput::default();
    let Some(base) = &sources.templates else {
        made.errors.extend(sources.kubelet_configs.iter().map(|config| missing_base_error(config)));
        return made;
    };
    let settings = ClusterSettings {
        sources: *base,
        has_node: base.node.is_some(),
        has_feature_gate: sources.has_feature_gate,
    };
    for result in cluster_settings(&settings, &sources.pools, |_| Vec::new()) {
        match result {
            Ok(generated) => made.generated.push(generated),
            Err(error) => made.errors.push(error.error),
        }
    }
    let snapshot = KubeletSnapshot {
        configs: &sources.kubelet_configs,
        pools: &sources.pools,
        machine_configs: &sources.machine_configs,
        sources: *base,
        has_feature_gate: sources.has_feature_gate,
        version: VERSION,
    };
    for plan in kubelet::reconcile(&snapshot) {
        match plan {
            Ok(plan) => made.generated.extend(plan.generated),
            Err(error) => made.errors.push(error),
        }
    }
    made
}

/// The settings of the cluster that concern the kubelets of all pools.
#[derive(Clone, Copy, Debug)]
pub struct ClusterSettings<'a> {
    /// The sources of base configurations, with the Node settings in effect.
    pub sources: KubeletSources<'a>,
    /// Whether there is a Node `cluster`.
    pub has_node: bool,
    /// Whether there is a FeatureGate `cluster`.
    pub has_feature_gate: bool,
}

/// Why a pool does not get the settings of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettingsError {
    /// The pool.
    pub pool: String,
    /// What is wrong.
    pub error: GenerateError,
}

/// The MachineConfigs of the Node settings and the FeatureGate, for all pools. Pools without a
/// template for the kubelet's configuration get none: nobody asked for a kubelet there.
/// `kernel_arguments` returns those of the present MachineConfig of this name.
pub fn cluster_settings(
    settings: &ClusterSettings<'_>,
    pools: &[&MachineConfigPool],
    kernel_arguments: impl Fn(&str) -> Vec<String>,
) -> Vec<Result<GeneratedConfig, ClusterSettingsError>> {
    let sources = &settings.sources;
    let mut all = Vec::new();
    if sources.templates.is_empty() {
        return all;
    }
    for pool in pools.iter().filter_map(|pool| pool.metadata.name.as_deref()) {
        let mut add = |kind, result: Result<GeneratedConfig, NodeConfigError>| match result {
            Err(NodeConfigError::Base(BaseError::NoFile { .. })) => {}
            Err(error) => all.push(Err(ClusterSettingsError {
                pool: pool.to_owned(),
                error: GenerateError {
                    object: SourceRef::new(kind, object::CLUSTER),
                    field: "spec".to_owned(),
                    message: error.to_string(),
                    remedy: "fix it, or the templates of the pool".to_owned(),
                },
            })),
            Ok(generated) => all.push(Ok(generated)),
        };
        if settings.has_node {
            let present = kernel_arguments(&format!("97-{pool}-generated-kubelet"));
            add("Node", node_config(sources, pool, &present));
        }
        if settings.has_feature_gate {
            add("FeatureGate", features(sources, pool).map_err(NodeConfigError::from));
        }
    }
    all
}

/// The error of a KubeletConfig in a cluster without a ControllerConfig.
#[must_use]
pub fn missing_base_error(config: &crate::api::KubeletConfig) -> GenerateError {
    GenerateError {
        object: SourceRef::of(config),
        field: "spec".to_owned(),
        message: format!(
            "there is no ControllerConfig {}, so there is no kubelet configuration to change",
            object::CONTROLLER_CONFIG
        ),
        remedy: "create the ControllerConfig that the templates are filled in with".to_owned(),
    }
}
