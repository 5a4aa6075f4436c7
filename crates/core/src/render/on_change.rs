//! Collects what administrators say that a change costs, from a pool and its MachineConfigs.

use std::collections::BTreeSet;

use super::error::RenderError;
use super::merge::ParsedMachineConfig;
use crate::api::MachineConfigPool;
use crate::on_change::OnChangeRules;

/// The rules of a pool and its MachineConfigs, in merge order, as they travel with the rendered config.
pub(super) fn collect(
    pool: &MachineConfigPool,
    sources: &[ParsedMachineConfig<'_>],
) -> Result<Option<String>, RenderError> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let of_pool =
        |source| RenderError::OnChange { object: format!("MachineConfigPool {name}"), source };
    let mut rules = OnChangeRules::of_pool(pool).map_err(of_pool)?;
    for source in sources {
        let Some(config) = &source.ignition else { continue };
        let files = config.storage.files.iter().map(|file| file.path.as_str());
        let names: BTreeSet<&str> =
            files.chain(config.systemd.units.iter().map(|unit| unit.name.as_str())).collect();
        rules.end(&names);
        // No administrator wrote what a controller generated.
        if source.is_generated() {
            continue;
        }
        let names: Vec<&str> = names.into_iter().collect();
        let object = || format!("MachineConfig {}", source.name());
        let added = rules.add(source.machine_config, &names);
        added.map_err(|source| RenderError::OnChange { object: object(), source })?;
    }
    rules.to_annotation().map_err(of_pool)
}
