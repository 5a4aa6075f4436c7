//! Image mirrors, lists and policies: `99-<pool>-generated-registries`.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource as _, ResourceExt as _};
use machinist_core::api::{MachineConfig, MachineConfigPool};
use machinist_core::container_runtime::BaseFiles;
use machinist_core::container_runtime::registries::{
    RegistriesOutput, RegistryInputs, machine_config_name, target_pools,
};
use machinist_core::generated_config::GenerateError;
use machinist_core::generated_config::reconcile::{is_generated, owner_reference, with_ownership};

use super::super::context::WriteError;
use super::super::render::VERSION;
use super::report::Reported;
use super::write::{ensure, remove};
use super::{GeneratePass, GenerateResult};

/// Generates for all pools, removes what is no longer wanted, and writes the status of the sources.
pub(super) async fn reconcile(
    pass: &mut GeneratePass<'_>,
    reported: &mut Reported,
) -> GenerateResult {
    let context = pass.context;
    let about = context.caches.generate.image_objects();
    let inputs = about.inputs();
    let before = fingerprint(pass, &inputs);
    if let Some((known, problem)) = &reported.registries
        && *known == before
    {
        problem.iter().for_each(|problem| add_problem_to_all(pass, problem));
        return Ok(());
    }
    reported.registries = None;
    let (wrote, problem) = match made(pass, &inputs) {
        Ok(made) => {
            reported
                .write_image_statuses(context, made.release_not_blocked.as_ref(), &made.conflicts)
                .await;
            let wrote =
                write(pass, &made, about.image.as_deref().and_then(owner_reference)).await?;
            (wrote, made.release_not_blocked)
        }
        Err(problem) => {
            reported.write_image_statuses(context, Some(&problem), &[]).await;
            (false, Some(problem))
        }
    };
    problem.iter().for_each(|problem| add_problem_to_all(pass, problem));
    // What was written brings another pass, which looks at it once more.
    reported.registries = (!wrote).then_some((before, problem));
    Ok(())
}

/// A hash of everything that the result depends on: pools change many times during a rollout, and thousands of mirrors
/// need not be processed every time.
fn fingerprint(pass: &GeneratePass<'_>, inputs: &RegistryInputs<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    inputs.hash_versions(&mut hasher);
    for pool in &pass.pools {
        let meta = pool.meta();
        (&meta.name, &meta.labels, meta.generation).hash(&mut hasher);
    }
    for config in pass.context.caches.configs.all() {
        let meta = config.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        if BaseFiles::is_base_config(name) || is_generated_registries(&config) {
            (name, &meta.uid, &meta.resource_version).hash(&mut hasher);
        }
    }
    hasher.finish()
}

fn made(
    pass: &GeneratePass<'_>,
    inputs: &RegistryInputs<'_>,
) -> Result<RegistriesOutput, GenerateError> {
    let pools: Vec<&MachineConfigPool> = pass.pools.iter().map(AsRef::as_ref).collect();
    let configs = pass.context.caches.configs.all();
    let configs: Vec<&MachineConfig> = configs.iter().map(AsRef::as_ref).collect();
    machinist_core::generate::registries(inputs, &pools, &configs)
}

/// Writes the generated MachineConfigs. Returns whether anything was written.
async fn write(
    pass: &GeneratePass<'_>,
    made: &RegistriesOutput,
    owner: Option<OwnerReference>,
) -> Result<bool, WriteError> {
    let context = pass.context;
    let mut wrote = false;
    let mut wanted = BTreeSet::new();
    for generated in &made.generated {
        let config = with_ownership(generated.machine_config.clone(), VERSION, owner.clone());
        wrote |= ensure(context, &config).await?;
        wanted.insert(config.name_any());
    }
    for config in context.caches.configs.all() {
        let config: &MachineConfig = &config;
        if is_generated_registries(config) && !wanted.contains(&config.name_any()) {
            remove(context, &config.name_any()).await?;
            wrote = true;
        }
    }
    Ok(wrote)
}

/// Whether a MachineConfig was generated here, for any pool.
fn is_generated_registries(config: &MachineConfig) -> bool {
    let role = config.labels().get(machinist_core::api::names::label::ROLE);
    is_generated(config) && role.is_some_and(|role| config.name_any() == machine_config_name(role))
}

/// Mirrors are for all pools, and so are their problems.
fn add_problem_to_all(pass: &mut GeneratePass<'_>, problem: &GenerateError) {
    let all: Vec<&MachineConfigPool> = pass.pools.iter().map(AsRef::as_ref).collect();
    let roles: Vec<String> = target_pools(&all).iter().map(|pool| pool.name_any()).collect();
    for role in roles {
        pass.add_problem(&role, &problem.to_string());
    }
}
