//! Writes generated MachineConfigs where they differ from the stored ones.

use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use machinist_core::api::MachineConfig;
use machinist_core::generated_config::reconcile::replacement;

use super::super::context::{Context, WriteError};

/// Creates or replaces a MachineConfig. Returns whether anything was written.
pub(super) async fn ensure(context: &Context, wanted: &MachineConfig) -> Result<bool, WriteError> {
    let api: Api<MachineConfig> = Api::all(context.client.clone());
    let name = wanted.name_any();
    let params = PostParams::default();
    let written = match context.caches.configs.get(&name) {
        None => context.write(api.create(&params, wanted)).await?,
        Some(found) => match replacement(&found, wanted) {
            None => return Ok(false),
            Some(new) => context.write(api.replace(&name, &params, &new)).await?,
        },
    };
    context.caches.configs.upsert(written);
    tracing::info!(config = name, "generated a MachineConfig");
    Ok(true)
}

/// Deletes a MachineConfig, if it exists.
pub(super) async fn remove(context: &Context, name: &str) -> Result<(), WriteError> {
    if context.caches.configs.get(name).is_none() {
        return Ok(());
    }
    let api: Api<MachineConfig> = Api::all(context.client.clone());
    match context.write(api.delete(name, &DeleteParams::default())).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => {
            tracing::info!(config = name, "removed a generated MachineConfig");
            Ok(())
        }
    }
}
