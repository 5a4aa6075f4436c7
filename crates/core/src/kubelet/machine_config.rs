//! The MachineConfig of a KubeletConfig: kubelet.conf, log level, reserved resources.

use serde_json::{Map, Value};

use super::base::{BaseError, CONFIGURATION};
use super::check::{KubeletConfigError, decode_settings, unknown_fields};
use super::settings_file::{BaseConfiguration, generate_drop_in};
use crate::api::KubeletConfig;
use crate::generated_config::{GeneratedConfig, GeneratedFile, machine_config};
use crate::go::json;
use crate::go::types::KUBELET;
use crate::go::yaml::to_go_yaml;
use crate::tls_profile::tls_parameters;

/// The kubelet's configuration file.
pub const KUBELET_CONF: &str = "/etc/kubernetes/kubelet.conf";
/// The environment file with the resources reserved for the system.
const NODE_SIZING: &str = "/etc/node-sizing-enabled.env";
/// The drop-in with the log level.
const LOGGING: &str = "/etc/systemd/system/kubelet.service.d/20-logging.conf";

/// The values of `enforceNodeAllocatable` that enforce the system's reservation.
const SYSTEM_RESERVED: [&str; 2] = ["system-reserved", "system-reserved-compressible"];

/// The MachineConfig that a KubeletConfig generates for a pool, over the pool's base configuration.
///
/// # Errors
/// A kubelet would not start with the result.
pub fn generate(
    config: &KubeletConfig,
    pool: &str,
    name: &str,
    base: &BaseConfiguration,
) -> Result<GeneratedConfig, KubeletConfigError> {
    if base.is_drop_in() {
        return generate_drop_in(config, pool, name, base);
    }
    let mut merged = base.config.clone();
    if let Some(profile) = &config.spec.tls_security_profile {
        let spoken = tls_parameters(Some(profile));
        set_text(&mut merged, "tlsMinVersion", &spoken.min_version);
        match spoken.cipher_suites.is_empty() {
            true => remove(&mut merged, "tlsCipherSuites"),
            false => set(&mut merged, "tlsCipherSuites", spoken.cipher_suites.into()),
        }
    }
    let mut settings = decode_settings(config)?;
    let reserved = settings.as_mut().map_or_else(Map::new, take_reserved);
    let mut warnings = Vec::new();
    if let Some(settings) = &mut settings {
        remove(settings, "featureGates");
        // Go's type cannot distinguish `false` from unset in this field; the raw JSON can.
        let raw = config.spec.kubelet_config.as_ref().map_or_else(String::new, Value::to_string);
        if raw.contains("\"protectKernelDefaults\":false") {
            remove(&mut merged, "protectKernelDefaults");
        }
        warnings = unknown_fields(config);
        warnings.extend(settings_without_effect(config, &merged));
        json::merge(&KUBELET, CONFIGURATION, &mut merged, settings);
        release_system_cgroup(&mut merged, settings);
    }
    disable_reserved_cpu_enforcement(&mut merged);
    check_cgroups(&merged)?;
    let mut files = Vec::new();
    files.extend(node_sizing(config.spec.auto_sizing_reserved, &reserved));
    files.extend(config.spec.log_level.map(|level| {
        GeneratedFile::new(
            LOGGING,
            format!("[Service]\nEnvironment=\"KUBELET_LOG_LEVEL={level}\"\n"),
        )
    }));
    files.push(kubelet_conf(&merged));
    let object = config.metadata.name.as_deref().unwrap_or_default();
    Ok(GeneratedConfig {
        machine_config: machine_config(name, pool, &files),
        from: vec![format!("KubeletConfig {object}")],
        warnings,
    })
}

/// The configuration as a file.
pub(super) fn kubelet_conf(config: &Value) -> GeneratedFile {
    let mut written = json::encode(&KUBELET, CONFIGURATION, config);
    // Kubernetes' encoder always writes kind and version.
    set_text(&mut written, "apiVersion", "kubelet.config.k8s.io/v1beta1");
    set_text(&mut written, "kind", CONFIGURATION);
    GeneratedFile::new(KUBELET_CONF, to_go_yaml(&written))
}

/// Removes the settings that the kubelet's unit reads from another file.
fn take_reserved(settings: &mut Value) -> Map<String, Value> {
    let mut taken = Map::new();
    if let Some(all) = settings.get_mut("systemReserved").and_then(Value::as_object_mut) {
        for name in ["memory", "cpu", "ephemeral-storage"] {
            taken.extend(all.remove(name).map(|value| (name.to_owned(), value)));
        }
        if all.is_empty() {
            remove(settings, "systemReserved");
        }
    }
    taken
}

/// The resources reserved for the system: computed by each machine, or as configured.
fn node_sizing(automatic: Option<bool>, reserved: &Map<String, Value>) -> Option<GeneratedFile> {
    let automatic = match (reserved.is_empty(), automatic) {
        (false, _) => false,
        (true, automatic) => automatic?,
    };
    let value = |name: &str, default: &str| {
        let given = reserved.get(name).and_then(Value::as_str).filter(|given| !given.is_empty());
        given.unwrap_or(default).to_owned()
    };
    let (memory, cpu) = (value("memory", "1Gi"), value("cpu", "500m"));
    let storage = value("ephemeral-storage", "1Gi");
    Some(GeneratedFile::new(
        NODE_SIZING,
        format!(
            "NODE_SIZING_ENABLED={automatic}\nSYSTEM_RESERVED_MEMORY={memory}\n\
             SYSTEM_RESERVED_CPU={cpu}\nSYSTEM_RESERVED_ES={storage}\n"
        ),
    ))
}

/// If enforcement is configured without the system's reservation, its cgroup is not needed.
fn release_system_cgroup(merged: &mut Value, settings: &Value) {
    let enforced = strings(settings, "enforceNodeAllocatable");
    let has_cgroup = settings.get("systemReservedCgroup").is_some();
    if !has_cgroup
        && !enforced.is_empty()
        && !enforced.iter().any(|what| SYSTEM_RESERVED.contains(&what.as_str()))
    {
        remove(merged, "systemReservedCgroup");
    }
}

/// With reserved CPUs, no CPU share is reserved in addition.
fn disable_reserved_cpu_enforcement(merged: &mut Value) {
    if merged.get("reservedSystemCPUs").is_none() {
        return;
    }
    remove(merged, "systemReservedCgroup");
    let mut enforced = strings(merged, "enforceNodeAllocatable");
    enforced.retain(|what| !SYSTEM_RESERVED.contains(&what.as_str()));
    if !enforced.iter().any(|what| what == "pods") {
        enforced.insert(0, "pods".to_owned());
    }
    set(merged, "enforceNodeAllocatable", enforced.into());
}

pub(super) fn check_cgroups(merged: &Value) -> Result<(), KubeletConfigError> {
    let text = |name: &str| merged.get(name).and_then(Value::as_str).unwrap_or_default();
    let (reserved, system) = (text("systemReservedCgroup"), text("systemCgroups"));
    if reserved.is_empty() || system.is_empty() || reserved == system {
        return Ok(());
    }
    Err(KubeletConfigError::new(
        "spec.kubeletConfig.systemReservedCgroup",
        format!(
            "invalid merged configuration: systemReservedCgroup ({reserved}) must match \
             systemCgroups ({system})"
        ),
        "give both the same value",
    ))
}

/// Warnings about settings without effect: MCO's merge cannot set a boolean of the base to `false`
/// or a number to zero.
fn settings_without_effect(config: &KubeletConfig, base: &Value) -> Vec<String> {
    let Some(Value::Object(written)) = &config.spec.kubelet_config else { return Vec::new() };
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let is_zero = |value: &Value| match value {
        Value::Bool(is) => !is,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => matches!(text.as_str(), "" | "0s" | "0"),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    let has = |field: &str| base.get(field).is_some_and(|value| !is_zero(value));
    written
        .iter()
        .filter(|(field, value)| is_zero(value) && has(field))
        .map(|(field, value)| {
            format!(
                "KubeletConfig {name}: spec.kubeletConfig.{field}: {value} has no effect: an empty \
                 value does not replace that of the template"
            )
        })
        .collect()
}

fn strings(config: &Value, name: &str) -> Vec<String> {
    let items = config.get(name).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn set(config: &mut Value, name: &str, value: Value) {
    if let Some(config) = config.as_object_mut() {
        config.insert(name.to_owned(), value);
    }
}

pub(super) fn set_text(config: &mut Value, name: &str, value: &str) {
    if value.is_empty() {
        remove(config, name);
    } else {
        set(config, name, value.into());
    }
}

fn remove(config: &mut Value, name: &str) {
    if let Some(config) = config.as_object_mut() {
        config.remove(name);
    }
}

impl From<BaseError> for KubeletConfigError {
    fn from(error: BaseError) -> Self {
        Self::new(
            "spec.machineConfigPoolSelector",
            format!("could not get original kubelet config: {error}"),
            "fix the templates or the ControllerConfig",
        )
    }
}
