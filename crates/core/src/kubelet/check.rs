//! Validation of KubeletConfigs.

use serde_json::Value;

use super::base::CONFIGURATION;
use crate::api::names::{label, object};
use crate::api::{KubeletConfig, MachineConfigPool, QuantityValue};
use crate::generated_config::{GenerateError, SourceRef};
use crate::go::json;
use crate::go::types::KUBELET;

/// Why a KubeletConfig is refused: field, message and remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct KubeletConfigError {
    /// The field, as a path in the KubeletConfig.
    pub field: String,
    /// What is wrong. MCO's message, if it has one.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl KubeletConfigError {
    pub(super) fn new(field: &str, message: String, remedy: &str) -> Self {
        Self { field: field.to_owned(), message, remedy: remedy.to_owned() }
    }

    /// Adds the name of the object.
    #[must_use]
    pub fn for_object(self, config: &KubeletConfig) -> GenerateError {
        GenerateError {
            object: SourceRef::of(config),
            field: self.field,
            message: self.message,
            remedy: self.remedy,
        }
    }
}

/// The settings of a KubeletConfig, decoded with Go's types.
pub(super) fn decode_settings(config: &KubeletConfig) -> Result<Option<Value>, KubeletConfigError> {
    let Some(value) = &config.spec.kubelet_config else { return Ok(None) };
    json::decode(&KUBELET, CONFIGURATION, value).map(Some).map_err(|error| {
        let path = if error.field.is_empty() { String::new() } else { format!(".{}", error.field) };
        KubeletConfigError::new(
            &format!("spec.kubeletConfig{path}"),
            format!("KubeletConfig could not be unmarshalled, err: {error}"),
            "give the field a value of its type",
        )
    })
}

/// Fields that would make machines unusable, or that are set elsewhere.
const FORBIDDEN_FIELDS: [(&str, &str, &str); 6] = [
    ("/cgroupDriver", "cgroupDriver", "remove the field: it has to fit the container runtime"),
    ("/clusterDNS", "clusterDNS", "remove the field: the cluster's DNS decides it"),
    ("/clusterDomain", "clusterDomain", "remove the field: the cluster's DNS decides it"),
    ("/featureGates", "featureGates", "remove the field and use the FeatureGate \"cluster\""),
    ("/failSwapOn", "failSwapOn", "remove the field: the templates decide it"),
    ("/memorySwap/swapBehavior", "swapBehavior", "remove the field: the templates decide it"),
];

/// Checks a KubeletConfig, independent of its pools.
///
/// # Errors
/// A setting is invalid or not allowed.
pub fn check(config: &KubeletConfig) -> Result<(), KubeletConfigError> {
    if let Some(level) = config.spec.log_level.filter(|level| !(0..=10).contains(level)) {
        return Err(KubeletConfigError::new(
            "spec.logLevel",
            format!("KubeletConfig's LogLevel is not valid [0,10]: {level}"),
            "use a level from 0 to 10",
        ));
    }
    let Some(settings) = decode_settings(config)? else { return Ok(()) };
    for (pointer, name, remedy) in FORBIDDEN_FIELDS {
        if let Some(value) = settings.pointer(pointer) {
            return Err(KubeletConfigError::new(
                &format!("spec.kubeletConfig{}", pointer.replace('/', ".")),
                format!(
                    "KubeletConfiguration: {name} is not allowed to be set, but contains: {}",
                    as_go_prints(value)
                ),
                remedy,
            ));
        }
    }
    check_quantities(&settings)?;
    if settings.get("systemReserved").is_some() && config.spec.auto_sizing_reserved == Some(true) {
        return Err(KubeletConfigError::new(
            "spec.autoSizingReserved",
            "KubeletConfiguration: autoSizingReserved and systemdReserved cannot be set together"
                .to_owned(),
            "remove autoSizingReserved or kubeletConfig.systemReserved",
        ));
    }
    let text = |name: &str| settings.get(name).and_then(Value::as_str).unwrap_or_default();
    let (reserved, system) = (text("systemReservedCgroup"), text("systemCgroups"));
    if !reserved.is_empty() && !system.is_empty() && reserved != system {
        return Err(KubeletConfigError::new(
            "spec.kubeletConfig.systemReservedCgroup",
            format!(
                "KubeletConfiguration: systemReservedCgroup ({reserved}) must match systemCgroups \
                 ({system})"
            ),
            "give both the same value",
        ));
    }
    Ok(())
}

/// Reserved resources have to be quantities: otherwise the kubelet does not start.
fn check_quantities(settings: &Value) -> Result<(), KubeletConfigError> {
    for list in ["systemReserved", "kubeReserved"] {
        for (name, value) in settings.get(list).and_then(Value::as_object).into_iter().flatten() {
            let text = value.as_str().unwrap_or_default();
            if !text.is_empty() && text.parse::<QuantityValue>().is_err() {
                return Err(KubeletConfigError::new(
                    &format!("spec.kubeletConfig.{list}.{name}"),
                    format!("KubeletConfiguration: {list} {name} is no quantity: {text}"),
                    "write a number with an optional unit: 500m, 2Gi",
                ));
            }
        }
    }
    Ok(())
}

/// Warnings about unknown settings, which have no effect.
#[must_use]
pub(super) fn unknown_fields(config: &KubeletConfig) -> Vec<String> {
    let Some(Value::Object(written)) = &config.spec.kubelet_config else { return Vec::new() };
    let known = KUBELET.fields(CONFIGURATION);
    let is_known = |name: &str| known.iter().any(|field| field.json.eq_ignore_ascii_case(name));
    let object = config.metadata.name.as_deref().unwrap_or_default();
    let unknown = written.keys().filter(|name| !is_known(name));
    unknown
        .map(|name| {
            format!(
                "KubeletConfig {object}: spec.kubeletConfig.{name}: no kubelet knows this field; \
                 it has no effect (look for a typing error)"
            )
        })
        .collect()
}

/// Checks whether a KubeletConfig may apply to a pool.
///
/// # Errors
/// It sets `staticPodPath` for the control plane, or for workers to anything but the empty string.
pub fn check_for_pool(
    config: &KubeletConfig,
    pool: &MachineConfigPool,
) -> Result<(), KubeletConfigError> {
    let Some(raw) = &config.spec.kubelet_config else { return Ok(()) };
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let wrong = |message: String, remedy: &str| {
        Err(KubeletConfigError::new("spec.kubeletConfig.staticPodPath", message, remedy))
    };
    if is_control_plane(pool) {
        if raw.to_string().contains("\"staticPodPath\"") {
            return wrong(
                format!(
                    "KubeletConfiguration: staticPodPath is not allowed to be set for control \
                     plane pool {name:?}"
                ),
                "remove the field",
            );
        }
        return Ok(());
    }
    let settings = decode_settings(config)?.unwrap_or_default();
    match settings.get("staticPodPath").and_then(Value::as_str) {
        None | Some("") => Ok(()),
        Some(path) => wrong(
            format!(
                "KubeletConfiguration: staticPodPath must be empty for pool {name:?}, but \
                 contains: {path}"
            ),
            "remove the field, or set it to \"\" to disable static pods",
        ),
    }
}

/// Whether the pool has control plane machines, by its name or its selector.
fn is_control_plane(pool: &MachineConfigPool) -> bool {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    if [object::POOL_MASTER, object::POOL_ARBITER].contains(&name) {
        return true;
    }
    let Some(selector) = &pool.spec.node_selector else { return false };
    let by_label =
        selector.match_labels.iter().flatten().any(|(key, _)| key == label::NODE_ROLE_MASTER);
    let by_expression = selector.match_expressions.iter().flatten().any(|requirement| {
        requirement.key == label::NODE_ROLE_MASTER
            && matches!(requirement.operator.as_str(), "Exists" | "In")
    });
    by_label || by_expression
}

/// Formats a value like Go's `%v`.
fn as_go_prints(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(as_go_prints).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{key}:{}", as_go_prints(value)))
                .collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}
