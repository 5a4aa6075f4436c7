//! Selects a pool's MachineConfigs and puts them into merge order.

use std::collections::BTreeMap;

use crate::api::selector;
use crate::api::{MachineConfig, MachineConfigPool};

use super::error::RenderError;

/// The label with a MachineConfig's role.
const ROLE: &str = crate::api::names::label::ROLE;

/// The MachineConfigs of a pool in merge order: the role `worker` first, then all others, each by
/// name. So the additions of a custom pool override what it inherits, whatever their numbers.
pub fn select<'a>(
    pool: &MachineConfigPool,
    machine_configs: impl IntoIterator<Item = &'a MachineConfig>,
) -> Result<Vec<&'a MachineConfig>, RenderError> {
    let pool_name = || pool.metadata.name.clone().unwrap_or_default();
    let selector = pool.spec.machine_config_selector.as_ref();
    let Some(selector) = selector.filter(|selector| !selector::is_empty(selector)) else {
        return Err(RenderError::EmptySelector { pool: pool_name() });
    };
    let mut selected = Vec::new();
    let no_labels = BTreeMap::new();
    let mut given = 0;
    for machine_config in machine_configs {
        given += 1;
        let labels = machine_config.metadata.labels.as_ref().unwrap_or(&no_labels);
        let matches = selector::matches(selector, labels)
            .map_err(|source| RenderError::InvalidSelector { pool: pool_name(), source })?;
        if matches {
            selected.push(machine_config);
        }
    }
    if selected.is_empty() {
        return Err(RenderError::NothingSelected { pool: pool_name(), given });
    }
    if let Some(bare) = selected.iter().find(|mc| mc.metadata.labels.is_none()) {
        return Err(RenderError::NoLabels { machine_config: name_of(bare).to_owned() });
    }
    selected.sort_by(|a, b| merge_key(a).cmp(&merge_key(b)));
    Ok(selected)
}

fn merge_key(machine_config: &MachineConfig) -> (bool, &str) {
    let role = machine_config.metadata.labels.as_ref().and_then(|labels| labels.get(ROLE));
    (role.is_none_or(|role| role != "worker"), name_of(machine_config))
}

/// The name of a MachineConfig, or an empty string.
pub(crate) fn name_of(machine_config: &MachineConfig) -> &str {
    machine_config.metadata.name.as_deref().unwrap_or_default()
}
