//! Rendered configs are kept, so that one which somebody deletes can be made again byte for byte, also when its sources
//! have long changed; and those that nobody needs any more are removed.
//!
//! A rendered config may hold secrets, so it is kept in Secrets: its JSON, compressed, in parts that fit.

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

use super::context::{Context, WriteError};
use super::debounce::Debounce;
use super::event_component;

/// The label of all Secrets that hold rendered configs.
pub(super) const RENDERED_CONFIG_LABEL: &str = "machinist.dev/rendered-config";
/// How many parts there are.
const PARTS_ANNOTATION: &str = "machinist.dev/parts";
/// A part must fit into a Secret with its base64.
const MAX_PART_SIZE: usize = 700 * 1024;
/// The entry of the Secret.
const DATA_KEY: &str = "config.json.gz";
/// How many rendered configs of a pool are kept although nobody needs them.
const MAX_UNUSED_CONFIGS: usize = 10;
/// Nothing larger than this is taken from a Secret that says it is a rendered config.
const MAX_UNPACKED_SIZE: u64 = 16 * 1024 * 1024;
/// After a write that failed.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Keeps, restores and removes for ever.
pub(super) async fn run(shell: Context) {
    let world = &shell.caches;
    let mut turns = Debounce::new(Duration::from_millis(200), Duration::from_secs(2));
    turns.watch(world.pools.subscribe());
    turns.watch(world.configs.subscribe());
    turns.watch(world.nodes.subscribe());
    world.wait_until_ready().await;
    let mut told = BTreeSet::new();
    let mut again = true;
    loop {
        turns.next(again.then_some(RETRY_DELAY)).await;
        again = match reconcile(&shell, &mut told).await {
            Ok(()) => false,
            Err(error) => {
                tracing::debug!(error = format!("{error:#}"), "cannot keep rendered configs");
                true
            }
        };
    }
}

async fn reconcile(shell: &Context, told: &mut BTreeSet<String>) -> Result<()> {
    let world = &shell.caches;
    let (pools, nodes, configs) = (world.pools.all(), world.nodes.all(), world.configs.all());
    let pools: Vec<&MachineConfigPool> = pools.iter().map(AsRef::as_ref).collect();
    let nodes: Vec<&Node> = nodes.iter().map(AsRef::as_ref).collect();
    let is_rendered =
        |config: &&MachineConfig| config.name_any().starts_with(object::RENDERED_PREFIX);
    let rendered: Vec<&MachineConfig> =
        configs.iter().map(AsRef::as_ref).filter(is_rendered).collect();
    for name in referenced_configs(&pools, &nodes) {
        match world.configs.get(&name) {
            Some(config) => back_up(shell, &config).await?,
            None => restore(shell, &pools, &name, told).await?,
        }
    }
    let machines = world.machine_config_nodes.all();
    for name in removable_configs(&pools, &nodes, &machines, &rendered, MAX_UNUSED_CONFIGS) {
        remove(shell, &name).await?;
    }
    Ok(())
}

/// Keeps a rendered config, unless it is kept already.
pub(super) async fn back_up(shell: &Context, config: &MachineConfig) -> Result<(), WriteError> {
    if existing_part(shell, &config.name_any(), 0).is_some() {
        return Ok(());
    }
    let api: Api<Secret> = Api::namespaced(shell.client.clone(), &shell.namespace);
    // The first part last: where it is, all are.
    for secret in pack(config).into_iter().rev() {
        match shell.write(api.create(&PostParams::default(), &secret)).await {
            Err(error) if !error.is_conflict() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Makes a rendered config again that somebody deleted though it is needed.
async fn restore(
    shell: &Context,
    pools: &[&MachineConfigPool],
    name: &str,
    told: &mut BTreeSet<String>,
) -> Result<()> {
    let Some(first) = existing_part(shell, name, 0) else {
        // What a pool points at now, the render loop makes.
        let targets = |pool: &&MachineConfigPool| {
            pool.spec.configuration.as_ref().and_then(|c| c.name.as_deref()) == Some(name)
        };
        if !pools.iter().any(targets) && told.insert(name.to_owned()) {
            tracing::warn!(name, "a machine has a rendered config that is gone and was never kept");
        }
        return Ok(());
    };
    let parts: usize =
        first.annotations().get(PARTS_ANNOTATION).and_then(|n| n.parse().ok()).unwrap_or(1);
    let api: Api<Secret> = Api::namespaced(shell.client.clone(), &shell.namespace);
    let mut bytes = Vec::new();
    for part in 0..parts {
        let secret = api.get(&part_name(name, part)).await.context("get a kept part")?;
        let data = secret.data.and_then(|mut data| data.remove(DATA_KEY)).unwrap_or_default();
        bytes.extend(data.0);
    }
    let mut config = unpack(&bytes, name)?;
    let owner =
        pools.iter().find(|pool| name.starts_with(&format!("rendered-{}-", pool.name_any())));
    fix_owner(&mut config, owner.copied());
    let api: Api<MachineConfig> = Api::all(shell.client.clone());
    match shell.write(api.create(&PostParams::default(), &config)).await {
        Ok(made) => {
            let message = format!("{name} was deleted though it is needed; made again as it was");
            shell.events.report_event(
                event_component::RENDER,
                &made,
                true,
                "RenderedConfigRestored",
                message,
            );
            shell.caches.configs.upsert(made);
        }
        Err(error) if error.is_conflict() => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// A pool of the same name may be another one by now; an owner that is gone would take the config with it.
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

async fn remove(shell: &Context, name: &str) -> Result<()> {
    let Some(config) = shell.caches.configs.get(name) else { return Ok(()) };
    let api: Api<MachineConfig> = Api::all(shell.client.clone());
    // Only the one that was looked at.
    let preconditions = Preconditions {
        uid: config.metadata.uid.clone(),
        resource_version: config.resource_version(),
    };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match shell.write(api.delete(name, &params)).await {
        Ok(_) => tracing::info!(name, "removed a rendered config that nobody needs"),
        Err(error) if error.is_not_found() || error.is_conflict() => {}
        Err(error) => return Err(error.into()),
    }
    let secrets: Api<Secret> = Api::namespaced(shell.client.clone(), &shell.namespace);
    for part in 0.. {
        if existing_part(shell, name, part).is_none() {
            break;
        }
        match shell.write(secrets.delete(&part_name(name, part), &DeleteParams::default())).await {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// A part that is known to be there.
fn existing_part(
    shell: &Context,
    name: &str,
    part: usize,
) -> Option<Arc<PartialObjectMeta<Secret>>> {
    shell.caches.rendered_backups.get_in(&shell.namespace, &part_name(name, part))
}

fn part_name(name: &str, part: usize) -> String {
    format!("{name}.{part}")
}

/// The Secrets that hold a config.
fn pack(config: &MachineConfig) -> Vec<Secret> {
    let mut kept = config.clone();
    // What the server says of an object, it says anew of the next.
    kept.metadata = ObjectMeta {
        name: config.metadata.name.clone(),
        annotations: config.metadata.annotations.clone(),
        labels: config.metadata.labels.clone(),
        owner_references: config.metadata.owner_references.clone(),
        ..ObjectMeta::default()
    };
    let json = serde_json::to_vec(&kept).unwrap_or_default();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing into memory does not fail.
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

/// The config that the parts hold.
fn unpack(bytes: &[u8], name: &str) -> Result<MachineConfig> {
    let mut json = Vec::new();
    GzDecoder::new(bytes).take(MAX_UNPACKED_SIZE).read_to_end(&mut json).context("decompress")?;
    // What does not fit might be quoted, and may be secret.
    let config: MachineConfig = serde_json::from_slice(&json)
        .map_err(|_| anyhow!("the parts of {name} hold no MachineConfig"))?;
    ensure!(config.name_any() == name, "the parts of {name} hold {}", config.name_any());
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
    fn a_config_comes_back_as_it_was_in_one_part_or_in_more() {
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
    fn a_part_of_another_config_is_refused() {
        let parts = pack(&config(10));
        assert!(unpack(&joined(&parts), "rendered-worker-2").is_err());
        assert!(unpack(b"nonsense", "rendered-worker-1").is_err());
    }
}
