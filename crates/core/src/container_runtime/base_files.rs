//! The base files that generated ones start from.

use super::{policy_json, registries_conf, storage_conf};
use crate::api::MachineConfig;
use crate::api::names::object::POOL_WORKER;
use crate::ignition::{contents, parse_and_upgrade};

/// Larger files are ignored.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The files of a pool before anything is generated: from its templates, else MCO's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseFiles {
    /// `registries.conf`.
    pub registries_conf: String,
    /// `policy.json`.
    pub policy_json: String,
    /// `storage.conf`.
    pub storage_conf: String,
}

impl Default for BaseFiles {
    fn default() -> Self {
        Self {
            registries_conf: registries_conf::DEFAULT_REGISTRIES_CONF.to_owned(),
            policy_json: policy_json::DEFAULT_POLICY_JSON.to_owned(),
            storage_conf: storage_conf::DEFAULT_STORAGE_CONF.to_owned(),
        }
    }
}

impl BaseFiles {
    /// Finds the files of a pool in MachineConfigs. Only those from templates count (`00-<role>`,
    /// `01-<role>-…`): an administrator's files are merged later and may override generated ones. A pool
    /// without templates uses those of `worker`.
    pub fn for_pool<'a>(
        pool: &str,
        machine_configs: impl IntoIterator<Item = &'a MachineConfig>,
    ) -> Self {
        let name = |config: &MachineConfig| config.metadata.name.clone().unwrap_or_default();
        let parts =
            machine_configs.into_iter().filter(|config| Self::is_base_config(&name(config)));
        let parts: Vec<&MachineConfig> = parts.collect();
        let of_role = |role: &str| -> Vec<&MachineConfig> {
            let (first, others) = (format!("00-{role}"), format!("01-{role}-"));
            let is_made = |name: String| name == first || name.starts_with(&others);
            parts.iter().copied().filter(|config| is_made(name(config))).collect()
        };
        let mut made = of_role(pool);
        if made.is_empty() {
            made = of_role(POOL_WORKER);
        }
        made.sort_by_key(|config| name(config));
        let mut base = Self::default();
        for config in made {
            base.merge_from(config);
        }
        base
    }

    /// Whether a MachineConfig of this name may contain base files.
    #[must_use]
    pub fn is_base_config(name: &str) -> bool {
        name.starts_with("00-") || name.starts_with("01-")
    }

    /// Takes the files of a MachineConfig. An invalid one is skipped; rendering reports it.
    fn merge_from(&mut self, machine_config: &MachineConfig) {
        let Some(config) = &machine_config.spec.config else { return };
        let Ok((ignition, _)) = parse_and_upgrade(config) else { return };
        for file in &ignition.storage.files {
            let place = match file.path.as_str() {
                super::registries::REGISTRIES_CONF => &mut self.registries_conf,
                super::registries::POLICY_JSON => &mut self.policy_json,
                storage_conf::STORAGE_CONF => &mut self.storage_conf,
                _ => continue,
            };
            let bytes = contents::decode(&file.contents, MAX_FILE_BYTES).unwrap_or_default();
            if let Ok(text) = String::from_utf8(bytes) {
                *place = text;
            }
        }
    }
}
