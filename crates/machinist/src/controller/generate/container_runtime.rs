//! ContainerRuntimeConfigs: `99-<pool>-generated-containerruntime[-N]`.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource as _, ResourceExt};
use machinist_core::api::config::FeatureGates;
use machinist_core::api::names::annotation;
use machinist_core::api::{ContainerRuntimeConfig, MachineConfig, MachineConfigPool};
use machinist_core::container_runtime::crio_settings::{
    CONTAINER_RUNTIME_NAMING, RuntimeConfigOutput,
};
use machinist_core::generate::container_runtimes;
use machinist_core::generate::runtime_effects::{NodeHost, nodes_without_effect};
use machinist_core::generated_config::GenerateError;
use machinist_core::generated_config::naming::NamedSource;
use machinist_core::generated_config::reconcile::with_ownership;
use machinist_core::generated_config::status::conditions;
use machinist_core::node::NodeView;
use machinist_core::os::abilities::HostAbilities;
use machinist_core::rollout::assign_nodes;
use serde_json::json;

use super::super::context::Context;
use super::super::render::VERSION;
use super::report::Reported;
use super::write::{ensure, remove};
use super::{GeneratePass, GenerateResult};

/// Generates for all objects, each for its pools, and writes their status.
pub(super) async fn reconcile(
    pass: &mut GeneratePass<'_>,
    reported: &mut Reported,
) -> GenerateResult {
    let context = pass.context;
    let objects = context.caches.generate.container_runtime_configs.all();
    let (going, staying): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|object| object.meta().deletion_timestamp.is_some());
    for object in &going {
        finalize(context, object).await?;
    }
    let planned = plan(pass, &staying);
    for (object, planned) in staying.iter().zip(planned) {
        let mut warnings = Vec::new();
        let outcome = match &planned {
            Ok(planned) => {
                write_config(context, object, planned).await?;
                warnings = all_warnings(pass, object, planned);
                Ok(())
            }
            Err(problem) => {
                for role in roles(pass, object) {
                    pass.add_problem(&role, &problem.to_string());
                }
                reported.warn(context, object.as_ref(), problem);
                Err(problem)
            }
        };
        write_status(context, object, outcome, &warnings).await?;
    }
    Ok(())
}

fn plan(
    pass: &GeneratePass<'_>,
    objects: &[Arc<ContainerRuntimeConfig>],
) -> Vec<Result<RuntimeConfigOutput, GenerateError>> {
    let configs = pass.context.caches.configs.all();
    let objects: Vec<&ContainerRuntimeConfig> = objects.iter().map(AsRef::as_ref).collect();
    let pools: Vec<&MachineConfigPool> = pass.pools.iter().map(AsRef::as_ref).collect();
    let configs: Vec<&MachineConfig> = configs.iter().map(AsRef::as_ref).collect();
    let feature_gate = pass.context.caches.generate.feature_gate();
    let features = FeatureGates::of(feature_gate.as_deref());
    container_runtimes(&objects, pass.context.templates.profile(), features, &pools, &configs)
}

/// What an object asks for and does not get: settings that the container runtime does not know, and nodes on which
/// they have no effect.
fn all_warnings(
    pass: &mut GeneratePass<'_>,
    object: &ContainerRuntimeConfig,
    planned: &RuntimeConfigOutput,
) -> Vec<String> {
    // Each pool has the same ones.
    let settings: BTreeSet<&String> =
        planned.generated.iter().flat_map(|made| &made.warnings).collect();
    let mut warnings: Vec<String> = settings.into_iter().cloned().collect();
    let selected = roles(pass, object);
    let nodes = pass.context.caches.nodes.all();
    let assignment = assign_nodes(&pass.pools, &nodes);
    let members = selected.iter().filter_map(|pool| assignment.members.get(pool)).flatten();
    let hosts: Vec<NodeHost<'_>> = members
        .filter_map(|node| {
            let view = NodeView(node);
            let report = view.annotation(annotation::machinist::HOST)?;
            Some((view.name(), HostAbilities::parse(report)?))
        })
        .collect();
    let nodes = nodes_without_effect(object, pass.context.templates.profile(), &hosts);
    pass.warns_of_nodes |= !nodes.is_empty();
    warnings.extend(nodes);
    warnings
}

/// Writes what is generated from an object. The names go into its finalizers first, so that nothing is created that would
/// never be removed.
async fn write_config(
    context: &Context,
    object: &Arc<ContainerRuntimeConfig>,
    planned: &RuntimeConfigOutput,
) -> GenerateResult {
    let names: BTreeSet<String> =
        planned.generated.iter().map(|made| made.machine_config.name_any()).collect();
    // A MachineConfig with an old name is removed once its successor exists.
    for name in generated_names(object)
        .filter(|name| CONTAINER_RUNTIME_NAMING.is_name(name) && !names.contains(*name))
    {
        remove(context, name).await?;
    }
    let foreign =
        object.finalizers().iter().filter(|name| !CONTAINER_RUNTIME_NAMING.is_own_finalizer(name));
    let finalizers: Vec<String> = foreign.cloned().chain(names).collect();
    let given = object.annotations().get(annotation::MC_NAME_SUFFIX);
    let same: BTreeSet<&String> = finalizers.iter().collect();
    if given != Some(&planned.suffix) || same != object.finalizers().iter().collect() {
        let patch = json!({"metadata": {
            "resourceVersion": object.resource_version(),
            "finalizers": finalizers,
            "annotations": {annotation::MC_NAME_SUFFIX: planned.suffix},
        }});
        let written = context.merge_patch(&object.name_any(), &patch).await?;
        context.caches.generate.container_runtime_configs.upsert(written);
    }
    for made in &planned.generated {
        let owner = object.controller_owner_ref(&());
        ensure(context, &with_ownership(made.machine_config.clone(), VERSION, owner)).await?;
    }
    Ok(())
}

/// Removes what was generated from a deleted object, and then its finalizers.
async fn finalize(context: &Context, object: &Arc<ContainerRuntimeConfig>) -> GenerateResult {
    if generated_names(object).next().is_none() {
        return Ok(());
    }
    for name in generated_names(object) {
        remove(context, name).await?;
    }
    let left: Vec<&String> = object
        .finalizers()
        .iter()
        .filter(|name| !CONTAINER_RUNTIME_NAMING.is_own_finalizer(name))
        .collect();
    let patch = json!({"metadata": {
        "resourceVersion": object.resource_version(),
        "finalizers": left,
    }});
    match context.merge_patch::<ContainerRuntimeConfig>(&object.name_any(), &patch).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// The MachineConfigs that were generated from an object.
fn generated_names(object: &ContainerRuntimeConfig) -> impl Iterator<Item = &String> {
    object.finalizers().iter().filter(|name| CONTAINER_RUNTIME_NAMING.is_own_finalizer(name))
}

/// The pools that an object selects or selected.
fn roles(pass: &GeneratePass<'_>, object: &ContainerRuntimeConfig) -> BTreeSet<String> {
    let pools: Vec<&MachineConfigPool> = pass.pools.iter().map(AsRef::as_ref).collect();
    let selector = object.spec.machine_config_pool_selector.as_ref();
    let member = NamedSource { metadata: &object.metadata, selector };
    let selected = CONTAINER_RUNTIME_NAMING.pools(&member, &pools).unwrap_or_default();
    let role = |name: &String| CONTAINER_RUNTIME_NAMING.role_of(name).map(str::to_owned);
    let selected = selected.into_iter().map(ResourceExt::name_any);
    generated_names(object).filter_map(role).chain(selected).collect()
}

/// Writes the status of the object, unless it is right.
async fn write_status(
    context: &Context,
    object: &Arc<ContainerRuntimeConfig>,
    outcome: Result<(), &GenerateError>,
    warnings: &[String],
) -> GenerateResult {
    let kinds = &context.caches.generate;
    // Our own write a moment ago may be newer.
    let latest = kinds.container_runtime_configs.get(&object.name_any());
    let object = latest.as_ref().unwrap_or(object);
    let status = object.status.as_ref();
    let before = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let after = conditions(before, outcome, warnings, &Time(Timestamp::now()));
    let observed = status.and_then(|status| status.observed_generation);
    if after == before && observed == object.meta().generation {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"resourceVersion": object.resource_version()},
        "status": {"observedGeneration": object.meta().generation, "conditions": after},
    });
    let written = context.merge_patch_status(&object.name_any(), &patch).await?;
    kinds.container_runtime_configs.upsert(written);
    Ok(())
}
