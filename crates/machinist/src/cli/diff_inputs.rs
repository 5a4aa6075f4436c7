//! The two MachineConfigs that `machinist diff` compares: from files, or from the API server.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use machinist_core::api::operator::{MachineConfiguration, NodeDisruptionPolicy};
use machinist_core::api::{MachineConfig, MachineConfigPool};
use machinist_core::apply;
use machinist_core::disruption::with_system_policy;

use super::cluster;
use super::cluster::session::{ClusterSession, SessionArgs};
use super::cluster::snapshot::{SnapshotKind, deserialize};
use crate::kubernetes::request::status_code;
use crate::manifests::{self, ManifestDocument};

/// What is compared.
pub(super) struct DiffInputs {
    pub(super) old: MachineConfig,
    pub(super) new: MachineConfig,
    /// The policy of the API server, if it was asked.
    pub(super) policy: Option<NodeDisruptionPolicy>,
}

/// Reads two configs. What is no file is a name in the API server.
pub(super) fn read_pair(old: &Path, new: &Path, session: &SessionArgs) -> Result<DiffInputs> {
    let is_stdin = |path: &Path| path == Path::new("-");
    if is_stdin(old) && is_stdin(new) {
        bail!("only one of OLD and NEW can be standard input");
    }
    let is_name = |path: &Path| !is_stdin(path) && looks_like_name(path) && !path.exists();
    if !is_name(old) && !is_name(new) {
        return Ok(DiffInputs { old: read_file(old)?, new: read_file(new)?, policy: None });
    }
    cluster::block_on(async {
        let session = session.connect().await.with_context(|| {
            let name = if is_name(old) { old } else { new };
            format!("{} is no file, so the API server is asked for a MachineConfig", name.display())
        })?;
        let read = async |path: &Path| match is_name(path) {
            true => session.config(&path.display().to_string()).await,
            false => read_file(path),
        };
        let (old, new) = (read(old).await?, read(new).await?);
        Ok(DiffInputs { old, new, policy: session.policy().await? })
    })
}

/// Whether this may be the name of an object: no directories, and no ending of a manifest.
fn looks_like_name(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let endings = [".yaml", ".yml", ".json", ".ign"];
    !text.contains('/') && !endings.iter().any(|ending| text.ends_with(ending))
}

/// The config that the machines of a pool have, and the one that they get.
pub(super) fn of_pool(name: &str, session: &SessionArgs) -> Result<DiffInputs> {
    cluster::block_on(async {
        let session = session.connect().await?;
        let path = session.needed(SnapshotKind::Pool)?.path(None, Some(name));
        let pool = session.client.get(&path).await.with_context(|| {
            format!("MachineConfigPool {name}: `machinist get mcp` lists the pools")
        })?;
        let pool: MachineConfigPool = deserialize(SnapshotKind::Pool, &pool)?;
        let (has, gets) = configs_of(&pool)?;
        let (old, new) = (session.config(has).await?, session.config(gets).await?);
        Ok(DiffInputs { old, new, policy: session.policy().await? })
    })
}

/// The names of both.
fn configs_of(pool: &MachineConfigPool) -> Result<(&str, &str)> {
    let spec = pool.spec.configuration.as_ref();
    let status = pool.status.as_ref().and_then(|status| status.configuration.as_ref());
    let gets = spec.and_then(|it| it.name.as_deref()).filter(|name| !name.is_empty());
    let gets =
        gets.context("the pool has no rendered config yet: create a MachineConfig for it")?;
    // No machine has one yet.
    let has = status.and_then(|it| it.name.as_deref()).filter(|name| !name.is_empty());
    Ok((has.unwrap_or(apply::EMPTY_CONFIG_NAME), gets))
}

impl ClusterSession {
    /// A MachineConfig by its name.
    async fn config(&self, name: &str) -> Result<MachineConfig> {
        if name == apply::EMPTY_CONFIG_NAME {
            return Ok(apply::empty_config());
        }
        let path = self.needed(SnapshotKind::Config)?.path(None, Some(name));
        let config = self.client.get(&path).await.with_context(|| {
            format!("{name}: there is neither such a file nor such a MachineConfig: `machinist get mc` lists them")
        })?;
        deserialize(SnapshotKind::Config, &config).map(apply::with_ignition_config)
    }

    /// The disruption policy in effect; the built-in one for users that may not read it.
    async fn policy(&self) -> Result<Option<NodeDisruptionPolicy>> {
        let all: Vec<MachineConfiguration> =
            match self.all(SnapshotKind::MachineConfiguration).await {
                Err(error) if status_code(&error) == Some(403) => return Ok(None),
                all => all?,
            };
        let user = all.into_iter().find_map(|it| it.spec.node_disruption_policy);
        Ok(Some(with_system_policy(&user.unwrap_or_default())))
    }
}

/// The administrator's policy in a file, on top of the built-in one.
pub(super) fn read_policy(path: &Path) -> Result<NodeDisruptionPolicy> {
    let documents = manifests::read(&[path.to_owned()])?;
    let found: Vec<&ManifestDocument> =
        documents.iter().filter(|document| document.kind() == "MachineConfiguration").collect();
    let [one] = found.as_slice() else {
        bail!(
            "{}: {} MachineConfigurations in this file; --policy needs one",
            path.display(),
            found.len()
        );
    };
    let configuration: MachineConfiguration = one.typed()?;
    let user = configuration.spec.node_disruption_policy.unwrap_or_default();
    Ok(with_system_policy(&user))
}

/// Reads the only MachineConfig in a file. Other objects are ignored.
fn read_file(path: &Path) -> Result<MachineConfig> {
    let documents = manifests::read(&[path.to_owned()])?;
    let is_machine_config = |document: &&ManifestDocument| {
        // Also without a kind: configs are often copied out of larger files.
        matches!(document.kind(), "MachineConfig" | "") && document.value.get("spec").is_some()
            || document.kind() == "MachineConfig"
    };
    let found: Vec<&ManifestDocument> = documents.iter().filter(is_machine_config).collect();
    match found.as_slice() {
        [one] => one.typed().map(apply::with_ignition_config),
        [] => bail!("{}: no MachineConfig in this file", path.display()),
        many => {
            let names: Vec<&str> = many.iter().map(|document| document.name()).collect();
            bail!(
                "{}: {} MachineConfigs in this file ({}); a diff needs exactly one: render the pool first, or split the file",
                path.display(),
                many.len(),
                names.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_distinguished_from_files() {
        for (text, expected) in [
            ("rendered-worker-1", true),
            ("50-motd", true),
            ("a.yaml", false),
            ("dir/50-motd", false),
            ("./x", false),
        ] {
            assert_eq!(looks_like_name(Path::new(text)), expected, "{text}");
        }
    }

    #[test]
    fn a_pool_without_updated_machines_is_compared_with_nothing() {
        let pool = |spec: &str, status: &str| -> MachineConfigPool {
            serde_json::from_value(json!({
                "metadata": {"name": "worker"},
                "spec": {"configuration": {"name": spec}},
                "status": {"configuration": {"name": status}},
            }))
            .unwrap()
        };
        assert_eq!(configs_of(&pool("b", "a")).unwrap(), ("a", "b"));
        assert_eq!(configs_of(&pool("b", "")).unwrap(), (apply::EMPTY_CONFIG_NAME, "b"));
        assert!(configs_of(&pool("", "")).unwrap_err().to_string().contains("no rendered config"));
    }
}
