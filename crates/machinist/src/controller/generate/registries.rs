//! Image mirrors, lists and policies: `99-<pool>-generated-registries`.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource as _, ResourceExt as _};
use machinist_core::api::{MachineConfig, MachineConfigPool};
use machinist_core::container_runtime::BaseFiles;
use machinist_core::container_runtime::registries::{
    RegistriesOutput, RegistryInputs, generate, machine_config_name, target_pools,
};
use machinist_core::generated_config::GenerateError;
use machinist_core::generated_config::reconcile::{is_generated, owner_reference, with_ownership};

use super::super::context::WriteError;
use super::super::render::VERSION;
use super::report::Reported;
use super::write::{ensure, remove};
use super::{GeneratePass, GenerateResult};

/// Generates for all pools, removes what nobody wants any more, and tells objects how it went.
pub(super) async fn reconcile(
    turn: &mut GeneratePass<'_>,
    memory: &mut Reported,
) -> GenerateResult {
    let shell = turn.context;
    let about = shell.caches.generate.image_objects();
    let inputs = about.inputs();
    let before = fingerprint(turn, &inputs);
    if let Some((known, problem)) = &memory.registries
        && *known == before
    {
        problem.iter().for_each(|problem| add_problem_to_all(turn, problem));
        return Ok(());
    }
    memory.registries = None;
    let (wrote, problem) = match made(turn, &inputs) {
        Ok(made) => {
            memory
                .write_image_statuses(shell, made.release_not_blocked.as_ref(), &made.conflicts)
                .await;
            let wrote =
                write(turn, &made, about.image.as_deref().and_then(owner_reference)).await?;
            (wrote, made.release_not_blocked)
        }
        Err(problem) => {
            memory.write_image_statuses(shell, Some(&problem), &[]).await;
            (false, Some(problem))
        }
    };
    problem.iter().for_each(|problem| add_problem_to_all(turn, problem));
    // What was written brings another turn, which looks at it once more.
    memory.registries = (!wrote).then_some((before, problem));
    Ok(())
}

/// Everything that the outcome depends on, in one number: pools change many times during a rollout,
/// and thousands of mirrors need not be looked at every time.
fn fingerprint(turn: &GeneratePass<'_>, inputs: &RegistryInputs<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    inputs.hash_versions(&mut hasher);
    for pool in &turn.pools {
        let meta = pool.meta();
        (&meta.name, &meta.labels, meta.generation).hash(&mut hasher);
    }
    for config in turn.context.caches.configs.all() {
        let meta = config.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        if BaseFiles::is_base_config(name) || is_generated_registries(&config) {
            (name, &meta.uid, &meta.resource_version).hash(&mut hasher);
        }
    }
    hasher.finish()
}

fn made(
    turn: &GeneratePass<'_>,
    inputs: &RegistryInputs<'_>,
) -> Result<RegistriesOutput, GenerateError> {
    let all: Vec<&MachineConfigPool> = turn.pools.iter().map(AsRef::as_ref).collect();
    let configs = turn.context.caches.configs.all();
    let with_base = |pool: &'_ MachineConfigPool| {
        BaseFiles::for_pool(&pool.name_any(), configs.iter().map(AsRef::as_ref))
    };
    let pools: Vec<(&MachineConfigPool, BaseFiles)> =
        target_pools(&all).into_iter().map(|pool| (pool, with_base(pool))).collect();
    generate(inputs, &pools)
}

/// Writes what is wanted; whether anything had to be.
async fn write(
    turn: &GeneratePass<'_>,
    made: &RegistriesOutput,
    owner: Option<OwnerReference>,
) -> Result<bool, WriteError> {
    let shell = turn.context;
    let mut wrote = false;
    let mut wanted = BTreeSet::new();
    for generated in &made.generated {
        let config = with_ownership(generated.machine_config.clone(), VERSION, owner.clone());
        wrote |= ensure(shell, &config).await?;
        wanted.insert(config.name_any());
    }
    for config in shell.caches.configs.all() {
        let config: &MachineConfig = &config;
        if is_generated_registries(config) && !wanted.contains(&config.name_any()) {
            remove(shell, &config.name_any()).await?;
            wrote = true;
        }
    }
    Ok(wrote)
}

/// Whether a MachineConfig was made here, for whatever pool.
fn is_generated_registries(config: &MachineConfig) -> bool {
    let role = config.labels().get(machinist_core::api::names::label::ROLE);
    is_generated(config) && role.is_some_and(|role| config.name_any() == machine_config_name(role))
}

/// Mirrors are for all pools, and so is the news that they are wrong.
fn add_problem_to_all(turn: &mut GeneratePass<'_>, problem: &GenerateError) {
    let all: Vec<&MachineConfigPool> = turn.pools.iter().map(AsRef::as_ref).collect();
    let roles: Vec<String> = target_pools(&all).iter().map(|pool| pool.name_any()).collect();
    for role in roles {
        turn.add_problem(&role, &problem.to_string());
    }
}
