//! The writes of a migration. Called by `machinist migrate` after all checks have passed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use http::Method;
use machinist_core::migrate::{self, MigrationStep};
use serde_json::{Value, json};

use super::{MigrationItem, MigrationSide, step};
use crate::cli::output;
use crate::kubernetes::ApiClient;
use crate::kubernetes::request::{ACCEPT_JSON, MERGE_PATCH, status_code};

/// The pools must keep their configs for this long at the target before they are unpaused.
const STABLE_PERIOD: Duration = Duration::from_secs(3);
/// After this long without stable pools, the migration fails and the pools stay paused.
const STABLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Writes all objects, then their owner references, then unpauses the pools.
pub(super) async fn write_all(to: &MigrationSide, items: &[MigrationItem]) -> Result<()> {
    let mut identities: BTreeMap<(String, String), String> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        if at % 100 == 0 && items.len() > 100 {
            output::print_note(&format!("{at} of {} objects", items.len()));
        }
        let object = item.resource.object_name(&item.name);
        let written = write(&to.client, item).await.with_context(|| object.clone())?;
        if let Some(uid) = written.pointer("/metadata/uid").and_then(Value::as_str) {
            let key = (item.resource.kind.clone(), item.name.clone());
            identities.insert(key, uid.to_owned());
        }
    }
    for item in items
        .iter()
        .filter(|item| matches!(item.step, MigrationStep::Create(_) | MigrationStep::Replace(_)))
    {
        let identity =
            |kind: &str, name: &str| identities.get(&(kind.to_owned(), name.to_owned())).cloned();
        if let Some(owners) = migrate::remapped_owners(&item.source, identity) {
            let patch = json!({"metadata": {"ownerReferences": owners}});
            let path = item.resource.path(None, Some(&item.name));
            let patched = to.client.write(Method::PATCH, &path, MERGE_PATCH, &patch).await;
            patched.with_context(|| item.resource.object_name(&item.name))?;
        }
    }
    release_pools(&to.client, items).await
}

/// Unpauses the pools when the controller of the target, if it has one, keeps the configs they had.
async fn release_pools(client: &ApiClient, items: &[MigrationItem]) -> Result<()> {
    let is_paused = |item: &&MigrationItem| {
        item.resource.kind == "MachineConfigPool"
            && matches!(item.step, MigrationStep::Create(_) | MigrationStep::Replace(_))
    };
    let paused: Vec<&MigrationItem> = items.iter().filter(is_paused).collect();
    let (start, mut stable_since) = (Instant::now(), None);
    while !paused.is_empty() {
        let mut wrong = None;
        for item in &paused {
            let there = client.get(&item.resource.path(None, Some(&item.name))).await?;
            let target = |pool: &Value| pool["spec"]["configuration"]["name"].clone();
            if target(&there) != target(&item.source) {
                wrong = Some(&item.name);
            }
        }
        match wrong {
            None if stable_since.get_or_insert_with(Instant::now).elapsed() >= STABLE_PERIOD => {
                break;
            }
            None => {}
            Some(pool) if start.elapsed() > STABLE_TIMEOUT => bail!(
                "MachineConfigPool {pool} has another config at the target, so it stays paused; `machinist adopt --check` shows why"
            ),
            Some(_) => stable_since = None,
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for item in paused {
        let path = item.resource.path(None, Some(&item.name));
        let patch = migrate::resume_patch(&item.source);
        client.write(Method::PATCH, &path, MERGE_PATCH, &patch).await?;
    }
    Ok(())
}

/// Replaces an unused pool of the target, whose controller may write its status at the same time.
async fn replace_pool(
    client: &ApiClient,
    item: &MigrationItem,
    path: &str,
    mut object: Value,
) -> Result<Value> {
    for _ in 0..10 {
        match client.write(Method::PUT, path, ACCEPT_JSON, &object).await {
            Err(error) if status_code(&error) == Some(409) => {}
            response => return Ok(response?.body),
        }
        let there = client.get(path).await?;
        match migrate::migration_step(&item.source, Some(&there)) {
            MigrationStep::Replace(newer) => object = migrate::paused_for_migration(&newer),
            _ => bail!("the target uses it now; check it and run the migration again"),
        }
    }
    bail!("another writer keeps changing it at the target; run the migration again")
}

/// Handles an object that the target's controller, or the machine, created after the plan was made.
async fn adopt_concurrent(client: &ApiClient, item: &MigrationItem) -> Result<Value> {
    let path = item.resource.path(None, Some(&item.name));
    let there = client.get(&path).await?;
    match step(&item.resource, &item.source, Some(&there)) {
        MigrationStep::Unchanged => Ok(there),
        MigrationStep::Merge(patch) => {
            Ok(client.write(Method::PATCH, &path, MERGE_PATCH, &patch).await?.body)
        }
        _ if migrate::is_controller_managed(&there) => Ok(there),
        _ => bail!(
            "it was created at the target during the migration; check it and run the migration again"
        ),
    }
}

/// Writes one object with its status; returns what the target stored.
async fn write(client: &ApiClient, item: &MigrationItem) -> Result<Value> {
    let path = item.resource.path(None, Some(&item.name));
    let is_pool = item.resource.kind == "MachineConfigPool";
    let first = |object: &Value| {
        if is_pool { migrate::paused_for_migration(object) } else { object.clone() }
    };
    let written = match &item.step {
        MigrationStep::Create(object) => {
            let list = item.resource.path(None, None);
            match client.write(Method::POST, &list, ACCEPT_JSON, &first(object)).await {
                Err(error) if status_code(&error) == Some(409) => {
                    return adopt_concurrent(client, item).await;
                }
                response => response?.body,
            }
        }
        MigrationStep::Replace(object) => replace_pool(client, item, &path, first(object)).await?,
        MigrationStep::Merge(patch) => {
            return Ok(client.write(Method::PATCH, &path, MERGE_PATCH, patch).await?.body);
        }
        MigrationStep::Unchanged | MigrationStep::Conflict(_) => return client.get(&path).await,
    };
    let status = &item.source["status"];
    if !status.is_null() {
        let patch = json!({ "status": status });
        let response =
            client.write(Method::PATCH, &format!("{path}/status"), MERGE_PATCH, &patch).await;
        match response {
            // This kind has no status subresource: the status was written with the object.
            Err(error) if status_code(&error) == Some(404) => {}
            response => drop(response?),
        }
    }
    Ok(written)
}
