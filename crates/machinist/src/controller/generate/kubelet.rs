//! Kubelet configuration: `97-` from the Node settings, `98-` from the FeatureGate, `99-` from KubeletConfigs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _};
use machinist_core::api::names::{annotation, object};
use machinist_core::api::{KubeletConfig, MachineConfig, MachineConfigPool};
use machinist_core::generate::{
    ClusterSettings, ClusterSettingsError, cluster_settings, missing_base_error,
};
use machinist_core::generated_config::reconcile::with_ownership;
use machinist_core::generated_config::{GenerateError, GeneratedConfig};
use machinist_core::kubelet::{
    KUBELET_NAMING, KubeletConfigPlan, KubeletSnapshot, KubeletSources, RefusedLatencyChange,
    gates, orphaned_configs, refused_latency_change, removal, status, wrong_name_message,
};
use machinist_core::template::TemplateInputs;
use serde_json::json;

use super::super::context::Context;
use super::super::render::VERSION;
use super::report::Reported;
use super::write::{ensure, remove};
use super::{GeneratePass, GenerateResult};

/// Generates for all pools, and writes the status of the objects.
pub(super) async fn reconcile(
    pass: &mut GeneratePass<'_>,
    reported: &mut Reported,
) -> GenerateResult {
    let context = pass.context;
    let (going, staying): (Vec<_>, Vec<_>) = context
        .caches
        .generate
        .kubelet_configs
        .all()
        .into_iter()
        .partition(|config| config.meta().deletion_timestamp.is_some());
    let decided = decide(pass, &going, &staying);
    for settings in context.caches.generate.node_settings.all() {
        let message = wrong_name_message(&settings.name_any())
            .or_else(|| decided.refused.as_ref().map(|refused| refused.message.clone()));
        reported.warn_prohibited(context, settings.as_ref(), message);
    }
    if let Some(refused) = &decided.refused {
        pass.add_problem(object::POOL_WORKER, &refused.generate_error().to_string());
    }
    for name in &decided.remove {
        remove(context, name).await?;
    }
    for (config, finalizers) in &decided.deleted {
        finalize(context, config, finalizers).await?;
    }
    for made in decided.cluster_configs {
        match made {
            Ok(made) => {
                ensure(context, &with_ownership(made.machine_config, VERSION, None)).await?;
            }
            Err(problem) => pass.add_problem(&problem.pool, &problem.error.to_string()),
        }
    }
    for (config, plan) in staying.iter().zip(decided.plans) {
        let mut warnings = Vec::new();
        let outcome = match &plan {
            Ok(plan) => {
                write_config(context, config, plan).await?;
                warnings.extend(plan.generated.iter().flat_map(|made| made.warnings.clone()));
                // Each pool has the same warnings.
                warnings.sort();
                warnings.dedup();
                Ok(())
            }
            Err(problem) => {
                for role in roles(config) {
                    pass.add_problem(&role, &problem.to_string());
                }
                reported.warn(context, config.as_ref(), problem);
                Err(problem.to_string())
            }
        };
        let outcome = outcome.as_ref().copied().map_err(String::as_str);
        write_status(context, config, outcome, &warnings).await?;
    }
    Ok(())
}

/// What to do, decided before anything is written.
#[derive(Default)]
struct KubeletPlan {
    /// MachineConfigs that are no longer wanted.
    remove: Vec<String>,
    /// Deleted KubeletConfigs, with the finalizers that stay.
    deleted: Vec<(Arc<KubeletConfig>, Vec<String>)>,
    /// What the cluster's settings generate; or for which pool they fail, and why.
    cluster_configs: Vec<Result<GeneratedConfig, ClusterSettingsError>>,
    /// The change of the cluster's settings that is refused.
    refused: Option<RefusedLatencyChange>,
    /// What the KubeletConfigs generate.
    plans: Vec<Result<KubeletConfigPlan, GenerateError>>,
}

fn decide(
    pass: &GeneratePass<'_>,
    going: &[Arc<KubeletConfig>],
    staying: &[Arc<KubeletConfig>],
) -> KubeletPlan {
    let context = pass.context;
    let kinds = &context.caches.generate;
    let Some(controller_config) = context.caches.controller_config() else {
        let plans = staying.iter().map(|config| Err(missing_base_error(config))).collect();
        return KubeletPlan { plans, ..KubeletPlan::default() };
    };
    let api_server = kinds.api_servers.get(object::CLUSTER);
    let node = kinds.node_settings.get(object::CLUSTER);
    let feature_gate = kinds.feature_gates.get(object::CLUSTER);
    let gates: BTreeMap<String, bool> =
        feature_gate.as_ref().map(|gate| gates(gate, "")).unwrap_or_default();
    let mut sources = KubeletSources {
        templates: &context.templates,
        inputs: TemplateInputs {
            controller_config: &controller_config,
            // No kubelet configuration contains it.
            pull_secret: None,
            api_server: api_server.as_deref(),
        },
        gates: &gates,
        node: node.as_deref(),
    };
    // Everything below uses the settings in effect, not the refused ones.
    let present =
        context.caches.configs.get(&format!("97-{}-generated-kubelet", object::POOL_WORKER));
    let refused = refused_latency_change(&sources, present.as_deref());
    if let Some(refused) = &refused {
        sources.node = Some(&refused.in_effect);
    }
    let machine_configs = context.caches.configs.all();
    let pools: Vec<&MachineConfigPool> = pass.pools.iter().map(AsRef::as_ref).collect();
    let machine_configs: Vec<&MachineConfig> = machine_configs.iter().map(AsRef::as_ref).collect();
    let configs: Vec<&KubeletConfig> = staying.iter().map(AsRef::as_ref).collect();
    let caches = KubeletSnapshot {
        configs: &configs,
        pools: &pools,
        machine_configs: &machine_configs,
        sources,
        has_feature_gate: feature_gate.is_some(),
        version: VERSION,
    };
    let mut decided = KubeletPlan {
        plans: machinist_core::kubelet::reconcile(&caches),
        ..KubeletPlan::default()
    };
    for config in going {
        let removal = removal(&caches, config);
        decided.remove.extend(removal.remove);
        decided.deleted.push((Arc::clone(config), removal.finalizers));
    }
    decided.remove.extend(orphaned_configs(&caches));
    decided.remove.sort();
    decided.remove.dedup();
    decided.refused.clone_from(&refused);
    let settings = ClusterSettings {
        sources,
        has_node: node.is_some(),
        has_feature_gate: feature_gate.is_some(),
    };
    let present = |name: &str| {
        let there = context.caches.configs.get(name);
        there.and_then(|it| it.spec.kernel_arguments.clone()).unwrap_or_default()
    };
    decided.cluster_configs = cluster_settings(&settings, &pools, present);
    decided
}

/// Writes what is generated from an object. The names go into its finalizers first, so that nothing is created that would
/// never be removed.
async fn write_config(
    context: &Context,
    config: &Arc<KubeletConfig>,
    plan: &KubeletConfigPlan,
) -> GenerateResult {
    for name in &plan.remove {
        remove(context, name).await?;
    }
    let suffix = config.annotations().get(annotation::MC_NAME_SUFFIX);
    if suffix != Some(&plan.suffix) || config.finalizers() != plan.finalizers.as_slice() {
        let patch = json!({"metadata": {
            "resourceVersion": config.resource_version(),
            "finalizers": plan.finalizers,
            "annotations": {annotation::MC_NAME_SUFFIX: plan.suffix},
        }});
        let written = context.merge_patch(&config.name_any(), &patch).await?;
        context.caches.generate.kubelet_configs.upsert(written);
    }
    for made in &plan.generated {
        ensure(context, &made.machine_config).await?;
    }
    Ok(())
}

/// Removes our finalizers from a deleted object.
async fn finalize(
    context: &Context,
    config: &Arc<KubeletConfig>,
    finalizers: &[String],
) -> GenerateResult {
    if config.finalizers() == finalizers {
        return Ok(());
    }
    let patch = json!({"metadata": {
        "resourceVersion": config.resource_version(),
        "finalizers": finalizers,
    }});
    match context.merge_patch::<KubeletConfig>(&config.name_any(), &patch).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// The pools that have MachineConfigs from an object.
fn roles(config: &KubeletConfig) -> BTreeSet<String> {
    let finalizers = config.finalizers().iter();
    finalizers.filter_map(|name| KUBELET_NAMING.role_of(name)).map(str::to_owned).collect()
}

/// Writes the status of the object, unless it is right.
async fn write_status(
    context: &Context,
    config: &Arc<KubeletConfig>,
    outcome: Result<(), &str>,
    warnings: &[String],
) -> GenerateResult {
    let cache = &context.caches.generate.kubelet_configs;
    // Our own write a moment ago may be newer.
    let latest = cache.get(&config.name_any());
    let config = latest.as_ref().unwrap_or(config);
    let now = Time(Timestamp::now());
    let after = status(config.status.as_ref(), config.meta().generation, outcome, warnings, &now);
    if config.status.as_ref() == Some(&after) {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"resourceVersion": config.resource_version()},
        "status": {"observedGeneration": after.observed_generation, "conditions": after.conditions},
    });
    let written = context.merge_patch_status(&config.name_any(), &patch).await?;
    cache.upsert(written);
    Ok(())
}
