//! The FeatureGate of a cluster: the gates for its kubelets, and the MachineConfig (98) that sets
//! them.

use std::collections::BTreeMap;

use super::base::{BaseError, KubeletSources, base_configuration};
use super::reconcile::mark_profile;
use crate::api::config::{FeatureGate, FeatureGateDetails};
use crate::generated_config::{GeneratedConfig, machine_config};

/// The gates that a version of the cluster knows, and whether they are enabled. If the status lacks
/// that version, its last entry counts; without a status, the spec.
#[must_use]
pub fn gates(feature_gate: &FeatureGate, version: &str) -> BTreeMap<String, bool> {
    let details: &[FeatureGateDetails] = feature_gate
        .status
        .as_ref()
        .and_then(|status| status.feature_gates.as_deref())
        .unwrap_or_default();
    let of_version = details.iter().find(|details| details.version == version);
    if let Some(details) = of_version.or(details.last()) {
        let named = |features: &Option<Vec<_>>, is_on: bool| {
            features
                .iter()
                .flatten()
                .map(|feature: &crate::api::config::FeatureGateAttributes| {
                    (feature.name.clone(), is_on)
                })
                .collect::<Vec<_>>()
        };
        let off = named(&details.disabled, false);
        return off.into_iter().chain(named(&details.enabled, true)).collect();
    }
    let chosen = feature_gate.spec.custom_no_upgrade.as_ref();
    let named = |names: Option<&Vec<String>>, is_on: bool| {
        names.into_iter().flatten().map(|name| (name.clone(), is_on)).collect::<Vec<_>>()
    };
    let off = named(chosen.and_then(|chosen| chosen.disabled.as_ref()), false);
    off.into_iter().chain(named(chosen.and_then(|chosen| chosen.enabled.as_ref()), true)).collect()
}

/// The MachineConfig that sets the feature gates of a pool's kubelets.
///
/// # Errors
/// The pool has no base configuration.
pub fn features(sources: &KubeletSources<'_>, pool: &str) -> Result<GeneratedConfig, BaseError> {
    let config = base_configuration(sources, pool)?;
    let name = format!("98-{pool}-generated-kubelet");
    let mut machine_config = machine_config(&name, pool, &[config.to_file()]);
    mark_profile(&mut machine_config, sources);
    Ok(GeneratedConfig {
        machine_config,
        from: vec!["FeatureGate cluster".to_owned()],
        warnings: Vec::new(),
    })
}
