//! The generators that start from templates: the templates themselves and kubelet settings.

use super::{GenerateOutput, GenerateSources};
use crate::api::names::object;
use crate::generated_config::{GenerateError, GeneratedConfig, SourceRef};
use crate::kubelet::{self, KubeletSnapshot, features, node_config};
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
    for pool in sources.pools.iter().filter_map(|pool| pool.metadata.name.as_deref()) {
        if base.node.is_some() {
            let result = node_config(base, pool, &[]);
            add(&mut made, "Node", result.map_err(|error| error.to_string()));
        }
        if sources.has_feature_gate {
            let result = features(base, pool);
            add(&mut made, "FeatureGate", result.map_err(|error| error.to_string()));
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

fn add(made: &mut GenerateOutput, kind: &str, result: Result<GeneratedConfig, String>) {
    match result {
        Ok(generated) => made.generated.push(generated),
        Err(message) => made.errors.push(GenerateError {
            object: SourceRef::new(kind, object::CLUSTER),
            field: "spec".to_owned(),
            message,
            remedy: "fix it, or the templates of the pool".to_owned(),
        }),
    }
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
