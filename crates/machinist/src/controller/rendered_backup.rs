//! The loop that backs up rendered configs, restores deleted ones byte for byte, and removes unused ones.
//!
//! A machine may need a rendered config whose sources have long changed, so it cannot be rendered again. A rendered config
//! may hold secrets, so the backup is in Secrets: its JSON, compressed, in parts that fit. `core::rollout` decides which
//! configs are needed.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PartialObjectMeta, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use machinist_core::api::names::object;
use machinist_core::api::{MachineConfig, MachineConfigPool};
use machinist_core::rollout::{referenced_configs, removable_configs};
use machinist_hub::failure_log::FailureState;
use tracing::Instrument as _;

use super::context::{Context, WriteError};
use super::debounce::Debounce;
use super::event_component;
use crate::kubernetes::error_text::error_text;

/// The label of all Secrets that hold rendered configs.
pub(super) const RENDERED_CONFIG_LABEL: &str = "machinist.dev/rendered-config";
/// The number of parts.
const PARTS_ANNOTATION: &str = "machinist.dev/parts";
/// The size of a part. With its base64 it has to fit into a Secret.
const MAX_PART_SIZE: usize = 700 * 1024;
/// The key in the Secret.
const DATA_KEY: &str = "config.json.gz";
/// How many unused rendered configs of a pool are kept.
const MAX_UNUSED_CONFIGS: usize = 10;
/// The largest config that is unpacked: a Secret could be a decompression bomb.
const MAX_UNPACKED_SIZE: u64 = 16 * 1024 * 1024;
/// The task under which failures are reported.
const TASK: &str = "back up, restore and remove rendered configs";
/// The wait after a failed write.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Runs for ever.
pub(super) async fn run(context: Context) {
    let caches = &context.caches;
    let mut debounce = Debounce::new(
        "back up rendered configs",
        &context.liveness,
        Duration::from_millis(200),
        Duration::from_secs(2),
    );
    debounce.watch(caches.pools.subscribe());
    debounce.watch(caches.configs.subscribe());
    debounce.watch(caches.nodes.subscribe());
    caches.wait_until_ready().await;
    let mut reported = BTreeSet::new();
    let mut is_retry = true;
    loop {
        debounce.next(is_retry.then_some(RETRY_DELAY)).await;
        is_retry = !reconcile(&context, &mut reported).await;
    }
}

/// Looks at all rendered configs once. Returns whether all went well; one config that fails does not stop the others.
async fn reconcile(context: &Context, reported: &mut BTreeSet<String>) -> bool {
    let caches = &context.caches;
    let (pools, nodes, configs) = (caches.pools.all(), caches.nodes.all(), caches.configs.all());
    let pools: Vec<&MachineConfigPool> = pools.iter().map(AsRef::as_ref).collect();
    let nodes: Vec<&Node> = nodes.iter().map(AsRef::as_ref).collect();
    let mut all_well = true;
    let span = |config: &str| tracing::info_span!("rendered_backup", config);
    let is_rendered =
        |config: &&MachineConfig| config.name_any().starts_with(object::RENDERED_PREFIX);
    let rendered: Vec<&MachineConfig> =
        configs.iter().map(AsRef::as_ref).filter(is_rendered).collect();
    for name in referenced_configs(&pools, &nodes) {
        let result = match caches.configs.get(&name) {
            Some(config) => {
                let done = back_up(context, &config).instrument(span(&name)).await;
                done.map_err(Into::into)
            }
            None => restore(context, &pools, &name, reported).instrument(span(&name)).await,
        };
        all_well &= report_result(context, &name, result);
    }
    let machines = caches.machine_config_nodes.all();
    for name in removable_configs(&pools, &nodes, &machines, &rendered, MAX_UNUSED_CONFIGS) {
        let result = remove(context, &name).instrument(span(&name)).await;
        all_well &= report_result(context, &name, result);
    }
    all_well
}

/// Reports the result for one config. Returns whether it went well.
fn report_result(context: &Context, name: &str, result: Result<()>) -> bool {
    let Err(error) = result else {
        context.failures.succeeded(TASK, name);
        return true;
    };
    if matches!(error.downcast_ref(), Some(WriteError::NotLeading)) {
        return false;
    }
    let text = format!("{error:#}");
    let state = context.failures.failed(TASK, name, &text);
    if let Some(config) = context.caches.configs.get(name)
        && state == FailureState::BecamePersistent
    {
        let message = format!("cannot {TASK}: {text}");
        context.events.record(
            event_component::RENDER,
            config.as_ref(),
            true,
            "WriteFailed",
            &message,
        );
    }
    false
}

/// Backs up a rendered config, unless there is a backup.
pub(super) async fn back_up(context: &Context, config: &MachineConfig) -> Result<(), WriteError> {
    if existing_part(context, &config.name_any(), 0).is_some() {
        return Ok(());
    }
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &context.namespace);
    // The first part is written last: if it exists, all parts do.
    for secret in pack(config).into_iter().rev() {
        match context.write(api.create(&PostParams::default(), &secret)).await {
            Err(error) if !error.is_conflict() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Restores a rendered config that was deleted although a machine or a pool needs it.
async fn restore(
    context: &Context,
    pools: &[&MachineConfigPool],
    name: &str,
    reported: &mut BTreeSet<String>,
) -> Result<()> {
    let Some(first) = existing_part(context, name, 0) else {
        // The render loop renders what a pool points at.
        let targets = |pool: &&MachineConfigPool| {
            pool.spec.configuration.as_ref().and_then(|c| c.name.as_deref()) == Some(name)
        };
        if !pools.iter().any(targets) && reported.insert(name.to_owned()) {
            tracing::warn!(
                config = name,
                "a machine has a rendered config that is deleted and has no backup"
            );
        }
        return Ok(());
    };
    let parts: usize =
        first.annotations().get(PARTS_ANNOTATION).and_then(|n| n.parse().ok()).unwrap_or(1);
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &context.namespace);
    let mut bytes = Vec::new();
    for part in 0..parts {
        let secret = api.get(&part_name(name, part)).await.map_err(|error| {
            anyhow!("cannot read Secret {}: {}", part_name(name, part), error_text(&error))
        })?;
        let data = secret.data.and_then(|mut data| data.remove(DATA_KEY)).unwrap_or_default();
        bytes.extend(data.0);
    }
    let mut config = unpack(&bytes, name)?;
    let owner =
        pools.iter().find(|pool| name.starts_with(&format!("rendered-{}-", pool.name_any())));
    fix_owner(&mut config, owner.copied());
    let api: Api<MachineConfig> = Api::all(context.client.clone());
    match context.write(api.create(&PostParams::default(), &config)).await {
        Ok(made) => {
            let message = format!("{name} was deleted though it is needed; made again as it was");
            context.events.report_event(
                event_component::RENDER,
                &made,
                true,
                "RenderedConfigRestored",
                message,
            );
            context.caches.configs.upsert(made);
        }
        Err(error) if error.is_conflict() => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Sets the owner to the present pool: if the owner's UID is gone, the garbage collector deletes the config.
fn fix_owner(config: &mut MachineConfig, pool: Option<&MachineConfigPool>) {
    let uid = pool.and_then(|pool| pool.metadata.uid.clone());
    config.metadata.owner_references = match (config.metadata.owner_references.take(), uid) {
        (Some(mut owners), Some(uid)) => {
            for owner in &mut owners {
                owner.uid.clone_from(&uid);
            }
            Some(owners)
        }
        _ => None,
    };
}

async fn remove(context: &Context, name: &str) -> Result<()> {
    let Some(config) = context.caches.configs.get(name) else { return Ok(()) };
    let api: Api<MachineConfig> = Api::all(context.client.clone());
    // Only the version that the decision was made on.
    let preconditions = Preconditions {
        uid: config.metadata.uid.clone(),
        resource_version: config.resource_version(),
    };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match context.write(api.delete(name, &params)).await {
        Ok(_) => tracing::info!(config = name, "removed an unused rendered config"),
        Err(error) if error.is_not_found() || error.is_conflict() => {}
        Err(error) => return Err(error.into()),
    }
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.namespace);
    for part in 0.. {
        if existing_part(context, name, part).is_none() {
            break;
        }
        match context.write(secrets.delete(&part_name(name, part), &DeleteParams::default())).await
        {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// The metadata of a part, if it exists.
fn existing_part(
    context: &Context,
    name: &str,
    part: usize,
) -> Option<Arc<PartialObjectMeta<Secret>>> {
    context.caches.rendered_backups.get_in(&context.namespace, &part_name(name, part))
}

fn part_name(name: &str, part: usize) -> String {
    format!("{name}.{part}")
}

/// The Secrets of a backup.
fn pack(config: &MachineConfig) -> Vec<Secret> {
    let mut kept = config.clone();
    // The API server sets all other metadata again.
    kept.metadata = ObjectMeta {
        name: config.metadata.name.clone(),
        annotations: config.metadata.annotations.clone(),
        labels: config.metadata.labels.clone(),
        owner_references: config.metadata.owner_references.clone(),
        ..ObjectMeta::default()
    };
    let json = serde_json::to_vec(&kept).unwrap_or_default();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(&json);
    let bytes = encoder.finish().unwrap_or_default();
    let parts: Vec<&[u8]> = bytes.chunks(MAX_PART_SIZE).collect();
    let count = parts.len().to_string();
    let secret = |(n, part): (usize, &&[u8])| Secret {
        metadata: ObjectMeta {
            name: Some(part_name(&config.name_any(), n)),
            labels: Some([(RENDERED_CONFIG_LABEL.to_owned(), String::new())].into()),
            annotations: Some([(PARTS_ANNOTATION.to_owned(), count.clone())].into()),
            ..ObjectMeta::default()
        },
        type_: Some(RENDERED_CONFIG_LABEL.to_owned()),
        immutable: Some(true),
        data: Some([(DATA_KEY.to_owned(), ByteString(part.to_vec()))].into()),
        ..Secret::default()
    };
    parts.iter().enumerate().map(secret).collect()
}

/// The config in a backup.
fn unpack(bytes: &[u8], name: &str) -> Result<MachineConfig> {
    let mut json = Vec::new();
    GzDecoder::new(bytes).take(MAX_UNPACKED_SIZE).read_to_end(&mut json).context("decompress")?;
    // The parser's error might quote a secret.
    let config: MachineConfig = serde_json::from_slice(&json)
        .map_err(|_| anyhow!("the backup of {name} is not a MachineConfig"))?;
    ensure!(config.name_any() == name, "the backup of {name} holds {}", config.name_any());
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(size: usize) -> MachineConfig {
        // Noise that does not compress.
        let mut state = 1u64;
        let mut noise = String::new();
        while noise.len() < size {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            noise.push_str(&format!("{:x}", state >> 32));
        }
        serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {
                "name": "rendered-worker-1", "uid": "u", "resourceVersion": "7",
                "annotations": {"a": "b"},
            },
            "spec": {"kernelType": "default", "config": {"ignition": {"version": "3.5.0"}, "x": noise}},
        }))
        .unwrap()
    }

    fn joined(parts: &[Secret]) -> Vec<u8> {
        parts.iter().flat_map(|part| part.data.as_ref().unwrap()[DATA_KEY].0.clone()).collect()
    }

    #[test]
    fn a_backup_in_one_part_or_more_restores_the_config() {
        for (size, count) in [(10, 1), (1_500_000, 2)] {
            let parts = pack(&config(size));
            assert_eq!(parts.len(), count);
            let back = unpack(&joined(&parts), "rendered-worker-1").unwrap();
            assert_eq!(back.spec, config(size).spec);
            assert_eq!(back.metadata.annotations, config(size).metadata.annotations);
            assert_eq!(back.metadata.uid, None);
        }
    }

    #[test]
    fn a_backup_of_another_config_is_rejected() {
        let parts = pack(&config(10));
        assert!(unpack(&joined(&parts), "rendered-worker-2").is_err());
        assert!(unpack(b"nonsense", "rendered-worker-1").is_err());
    }
}
