//! The file that holds the current config of a machine, in the form that MCO writes.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::api::MachineConfig;
use crate::go::escape::escape_html;

/// The name of the config of a machine that has none yet.
pub const EMPTY_CONFIG_NAME: &str = "mco-empty-mc";

/// The config of a machine that has none yet.
#[must_use]
pub fn empty_config() -> MachineConfig {
    let mut config = MachineConfig::default();
    config.metadata.name = Some(EMPTY_CONFIG_NAME.to_owned());
    config.spec.config = Some(json!({"ignition": {"version": "3.5.0"}}));
    config
}

/// Whether a config asks for nothing, so that a machine that has it is as it was before its first config.
#[must_use]
pub fn asks_for_nothing(config: &MachineConfig) -> bool {
    let spec = &config.spec;
    let is_unset = |value: &Value| match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(|value| match value {
            Value::Array(items) => items.is_empty(),
            other => other.is_null(),
        }),
        _ => false,
    };
    let asks_in_ignition = spec.config.as_ref().and_then(Value::as_object).is_some_and(|config| {
        config.iter().any(|(key, value)| key != "ignition" && !is_unset(value))
    });
    let is_given = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    let lists = [&spec.kernel_arguments, &spec.extensions];
    !asks_in_ignition
        && lists.iter().all(|list| list.as_ref().is_none_or(Vec::is_empty))
        && !is_given(&spec.os_image_url)
        && matches!(spec.kernel_type.as_deref(), None | Some("" | "default"))
        && spec.fips != Some(true)
}

/// A MachineConfig as it is rendered: one without `spec.config` gets an empty Ignition config. Machines
/// refuse a config without one, as in MCO, because rendered configs always have one.
#[must_use]
pub fn with_ignition_config(mut config: MachineConfig) -> MachineConfig {
    if config.spec.config.as_ref().is_none_or(Value::is_null) {
        config.spec.config = empty_config().spec.config;
    }
    config
}

/// Wraps an Ignition config in a MachineConfig; the name is derived from the contents.
#[must_use]
pub fn from_ignition(ignition: Value) -> MachineConfig {
    let digest = Sha256::digest(ignition.to_string().as_bytes());
    let mut config = MachineConfig::default();
    config.metadata.name = Some(format!("ignition-{}", crate::hex::hex(&digest[..8])));
    config.spec.config = Some(ignition);
    config
}

/// Reads the file.
pub fn parse_current_config(bytes: &[u8]) -> Result<MachineConfig, serde_json::Error> {
    let mut value: Value = serde_json::from_slice(bytes)?;
    // MCO leaves out `apiVersion` and `kind`.
    if let Some(map) = value.as_object_mut() {
        map.entry("apiVersion").or_insert_with(|| "machineconfiguration.openshift.io/v1".into());
        map.entry("kind").or_insert_with(|| "MachineConfig".into());
    }
    serde_json::from_value(value)
}

/// The text of the file: no `apiVersion` and `kind`, every field of the spec, JSON as Go writes it.
#[must_use]
pub fn current_config_bytes(config: &MachineConfig) -> Vec<u8> {
    let spec = &config.spec;
    // The image has a file of its own.
    let plain = crate::os::with_layered_image(config.clone(), None);
    let metadata = serde_json::to_value(&plain.metadata).unwrap_or(Value::Null);
    let list = |list: &Option<Vec<String>>| list.as_ref().map_or(Value::Null, |list| json!(list));
    let fields = [
        ("osImageURL", json!(spec.os_image_url.as_deref().unwrap_or_default())),
        (
            "baseOSExtensionsContainerImage",
            json!(spec.base_os_extensions_container_image.as_deref().unwrap_or_default()),
        ),
        ("config", spec.config.clone().unwrap_or(Value::Null)),
        ("kernelArguments", list(&spec.kernel_arguments)),
        ("extensions", list(&spec.extensions)),
        ("fips", json!(spec.fips.unwrap_or_default())),
        ("kernelType", json!(spec.kernel_type.as_deref().unwrap_or_default())),
    ];
    let mut parts: Vec<String> =
        fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    // Unknown fields of newer versions are kept.
    let others: Map<String, Value> = spec
        .other
        .iter()
        .filter(|(name, _)| *name != "kernelArguments")
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    parts.extend(others.iter().map(|(name, value)| format!("{}:{value}", json!(name))));
    let text = format!("{{\"metadata\":{metadata},\"spec\":{{{}}}}}", parts.join(","));
    escape_html(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_that_asks_for_nothing() {
        let rendered = json!({
            "config": {"ignition": {"version": "3.5.0"}, "storage": {"files": []}, "systemd": {}, "passwd": {}},
            "kernelArguments": [], "extensions": [], "fips": false, "kernelType": "default", "osImageURL": "",
        });
        let asks = |pointer: &str, value: Value| {
            let mut spec = rendered.clone();
            if let Some(place) = spec.pointer_mut(pointer) {
                *place = value;
            }
            let config = json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
                "metadata": {"name": "x"}, "spec": spec,
            });
            !asks_for_nothing(&serde_json::from_value(config).unwrap())
        };
        assert!(asks_for_nothing(&empty_config()));
        assert!(!asks("", rendered.clone()));
        for (pointer, value) in [
            ("/config/storage", json!({"files": [{"path": "/a"}]})),
            ("/config/systemd", json!({"units": [{"name": "a.service"}]})),
            ("/config/passwd", json!({"users": [{"name": "core"}]})),
            ("/kernelArguments", json!(["a"])),
            ("/extensions", json!(["a"])),
            ("/fips", json!(true)),
            ("/kernelType", json!("realtime")),
            ("/osImageURL", json!("r/os@sha256:a")),
        ] {
            assert!(asks(pointer, value.clone()), "{pointer}: {value}");
        }
    }
}
