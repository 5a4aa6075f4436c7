//! Files that both a generator and an administrator write.
//!
//! The order of a pool's MachineConfigs decides who wins. An administrator should know when a
//! hand-written `registries.conf` hides generated mirrors, or the other way round.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::api::{MachineConfig, MachineConfigPool};
use crate::render::{RenderError, select};

/// A file that a generator and an administrator write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverriddenFile {
    /// The file.
    pub path: String,
    /// The MachineConfig that wins.
    pub winner: String,
    /// Whether the winner is generated.
    pub winner_is_generated: bool,
    /// The MachineConfigs it overrides. At least one is generated if the winner is not, and vice versa.
    pub losers: Vec<String>,
}

impl OverriddenFile {
    /// A message for events and `machinist explain`.
    #[must_use]
    pub fn message(&self) -> String {
        let Self { path, winner, losers, .. } = self;
        let losers = losers.join(", ");
        let (kind, other) =
            if self.winner_is_generated { ("generated ", "") } else { ("", "generated ") };
        format!(
            "{path}: the {kind}MachineConfig {winner} wins over the {other}{losers}, since it comes later in the pool's order; {}",
            if self.winner_is_generated {
                "what the others say about this file has no effect (name yours so that it sorts after, or remove it)"
            } else {
                "what was generated has no effect (remove the file from it, or name it so that it sorts before)"
            }
        )
    }
}

/// The files of a pool that both a generator and an administrator write, by path. `is_generated`
/// reports which MachineConfigs come from a generator.
///
/// # Errors
/// The pool selects nothing.
pub fn overridden<'a>(
    pool: &MachineConfigPool,
    machine_configs: impl IntoIterator<Item = &'a MachineConfig>,
    is_generated: impl Fn(&MachineConfig) -> bool,
) -> Result<Vec<OverriddenFile>, RenderError> {
    let selected = select(pool, machine_configs)?;
    // Usually no generator writes files of this pool; then nothing is compared.
    let is_generated = |config: &MachineConfig| is_generated(config) && !is_from_templates(config);
    let generated = selected.iter().filter(|config| is_generated(config));
    let paths: BTreeSet<String> = generated.flat_map(|config| files(config)).collect();
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let mut writers: BTreeMap<String, Vec<(&MachineConfig, bool)>> = BTreeMap::new();
    for config in selected.into_iter().filter(|config| !is_from_templates(config)) {
        let ours = is_generated(config);
        for path in files(config).into_iter().filter(|path| paths.contains(path)) {
            writers.entry(path).or_default().push((config, ours));
        }
    }
    let found = writers.into_iter().filter_map(|(path, writers)| {
        let ((winner, winner_is_generated), losers) = writers.split_last()?;
        let both = losers.iter().any(|(_, generated)| generated != winner_is_generated);
        let name = |config: &MachineConfig| config.metadata.name.clone().unwrap_or_default();
        both.then(|| OverriddenFile {
            path,
            winner: name(winner),
            winner_is_generated: *winner_is_generated,
            losers: losers.iter().map(|(config, _)| name(config)).collect(),
        })
    });
    Ok(found.collect())
}

/// Templates are meant to be overridden, so they are not reported.
fn is_from_templates(config: &MachineConfig) -> bool {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let role = config.metadata.labels.as_ref();
    let role = role.and_then(|labels| labels.get(crate::api::names::label::ROLE));
    role.is_some_and(|role| {
        name == format!("00-{role}") || name.starts_with(&format!("01-{role}-"))
    })
}

/// The paths of a MachineConfig's files. All Ignition versions have them in the same field.
fn files(config: &MachineConfig) -> Vec<String> {
    let files = config.spec.config.as_ref().and_then(|config| config.pointer("/storage/files"));
    let files = files.and_then(Value::as_array).into_iter().flatten();
    files.filter_map(|file| file.get("path")?.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated_config::{GeneratedFile, machine_config};
    use serde_json::json;

    const PATH: &str = "/etc/containers/registries.conf";

    fn found(names: &[&str]) -> Vec<OverriddenFile> {
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfigPool",
            "metadata": {"name": "worker"},
            "spec": {"machineConfigSelector": {"matchLabels": {
                "machineconfiguration.openshift.io/role": "worker",
            }}},
        }))
        .unwrap();
        let configs: Vec<MachineConfig> = names
            .iter()
            .map(|name| {
                machine_config(
                    name,
                    "worker",
                    &[GeneratedFile::new(PATH, "x"), GeneratedFile::new("/y", "")],
                )
            })
            .collect();
        let is_generated = |config: &MachineConfig| {
            config.metadata.name.as_deref().is_some_and(|name| name.contains("-generated-"))
        };
        let mut found = overridden(&pool, &configs, is_generated).unwrap();
        found.retain(|file| file.path == PATH);
        found
    }

    #[test]
    fn the_later_config_wins_and_is_named() {
        let generated = "99-worker-generated-registries";
        let mine = found(&["99-worker-mirrors", generated]);
        assert_eq!(mine[0].winner, "99-worker-mirrors");
        assert!(!mine[0].winner_is_generated);
        assert!(
            mine[0].message().contains("wins over the generated 99-worker-generated-registries")
        );
        let theirs = found(&["50-worker-mirrors", generated]);
        assert_eq!((theirs[0].winner.as_str(), theirs[0].winner_is_generated), (generated, true));
        assert_eq!(theirs[0].losers, ["50-worker-mirrors"]);
    }

    #[test]
    fn template_files_are_not_reported_as_overridden() {
        assert!(
            found(&["01-worker-container-runtime", "99-worker-generated-registries"]).is_empty()
        );
        assert!(found(&["99-worker-generated-registries"]).is_empty());
        assert!(found(&["50-a", "50-b"]).is_empty());
    }
}
