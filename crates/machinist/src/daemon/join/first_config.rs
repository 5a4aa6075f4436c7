//! What the first config of a machine would cost it, before it joins: nothing is written. Called by `join`.

use std::path::Path;

use anyhow::{Result, bail};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use machinist_core::api::names::object::CLUSTER;
use machinist_core::api::{MachineConfig, MachineConfigPool, MachineConfiguration};
use machinist_core::daemon::actions;

use super::super::preview::{self, ChangePreview};

/// How many pools an error names.
const MAX_NAMED_POOLS: usize = 10;

/// What is known of the first config.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase", tag = "known")]
pub(crate) enum FirstConfig {
    /// What it would change and cost.
    Cost(Box<ChangePreview>),
    /// The pool has no config, so the machine keeps what it has.
    NoConfig,
    /// These credentials may not read it.
    NotReadable,
}

impl FirstConfig {
    /// The line for people.
    #[must_use]
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::NoConfig => "The pool has no config yet: nothing changes now".to_owned(),
            Self::NotReadable => {
                "What the first config costs is not known: these credentials may not read it"
                    .to_owned()
            }
            Self::Cost(preview) => match &preview.refused {
                Some(reason) => format!("This machine would refuse {}: {reason}", preview.to),
                None => {
                    let drain = if preview.needs_drain { ", after a drain" } else { "" };
                    let cost = match actions::actions_summary(&preview.actions).as_str() {
                        "" | "None" => "it costs nothing".to_owned(),
                        actions => format!("then: {actions}{drain}"),
                    };
                    let count = preview.changes.len();
                    format!("The first config {} changes {count} paths; {cost}", preview.to)
                }
            },
        }
    }

    /// Whether it reboots the machine.
    #[must_use]
    pub(crate) fn needs_reboot(&self) -> bool {
        matches!(self, Self::Cost(preview) if actions::needs_reboot(&preview.actions))
    }
}

/// Looks up the config of a pool, and what it would cost the machine at a root. What cannot be read is not known: the
/// join does not depend on it.
///
/// # Errors
/// There are pools, and none has this name.
pub(crate) async fn first_config(client: &Client, pool: &str, root: &Path) -> Result<FirstConfig> {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    // Machines may read the pools of their roles alone.
    if let Ok(list) = pools.list(&ListParams::default()).await {
        check_pool(pool, &list.items)?;
    }
    let looked_up = look_up(client, &pools, pool, root).await;
    Ok(looked_up.unwrap_or_else(|error| {
        tracing::debug!(error = %format_args!("{error:#}"), pool, "cannot read the first config");
        FirstConfig::NotReadable
    }))
}

async fn look_up(
    client: &Client,
    pools: &Api<MachineConfigPool>,
    pool: &str,
    root: &Path,
) -> Result<FirstConfig> {
    let configuration = pools.get_opt(pool).await?.and_then(|pool| pool.spec.configuration);
    let Some(name) = configuration.and_then(|it| it.name).filter(|name| !name.is_empty()) else {
        return Ok(FirstConfig::NoConfig);
    };
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let config = configs.get(&name).await?;
    let settings: Api<MachineConfiguration> = Api::all(client.clone());
    let settings = settings.get_opt(CLUSTER).await.unwrap_or_default();
    let root = root.to_owned();
    let look = move || preview::preview(&root, &config, settings.as_ref());
    Ok(FirstConfig::Cost(Box::new(tokio::task::spawn_blocking(look).await??)))
}

/// Whether a pool exists. Where there are none at all, they may come later.
fn check_pool(pool: &str, pools: &[MachineConfigPool]) -> Result<()> {
    if pools.is_empty() || pools.iter().any(|one| one.name_any() == pool) {
        return Ok(());
    }
    let names: Vec<String> =
        pools.iter().map(ResourceExt::name_any).take(MAX_NAMED_POOLS).collect();
    bail!(
        "--pool {pool}: there is no MachineConfigPool {pool}: name one of {}, or create it first",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_pool_is_refused_if_there_are_others() {
        let pool = |name: &str| {
            let mut pool = MachineConfigPool::new(name, Default::default());
            pool.metadata.name = Some(name.to_owned());
            pool
        };
        let pools = [pool("master"), pool("worker")];
        assert!(check_pool("worker", &pools).is_ok() && check_pool("worker", &[]).is_ok());
        let error = check_pool("wroker", &pools).unwrap_err().to_string();
        assert_eq!(
            error,
            "--pool wroker: there is no MachineConfigPool wroker: name one of master, worker, or create it first"
        );
    }
}
