//! Encodes a MachineConfig as MCO's server does: the fields in the order of Go's types, including the
//! empty ones that Go never omits.
//!
//! MCO's JSON library omits every time that is not a pointer, so there is no `creationTimestamp`. Its
//! client drops `kind` and `apiVersion` of what it reads from a cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::ser::{Error as _, SerializeMap as _};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::ServeMode;
use crate::api::MachineConfig;
use crate::go::escape::escape_html;
use crate::ignition::IgnitionVersion;

/// The metadata fields in the order of Go's type. `managedFields` is of no use on a machine and
/// omitted.
const METADATA_FIELDS: [&str; 13] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
];
/// The fields of an owner reference in the order of Go's type.
const OWNER_FIELDS: [&str; 6] =
    ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

/// The whole object, indented.
pub(super) fn dump(config: &MachineConfig, mode: ServeMode) -> Result<Vec<u8>, serde_json::Error> {
    let ignition = config.spec.config.as_ref().unwrap_or(&Value::Null);
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    ManifestObject::new(config, ignition, mode).serialize(&mut serializer)?;
    Ok(escape_html(text))
}

/// The object without the Ignition config that the machine applies anyway: what remains for the
/// daemon to do on the first boot.
pub(super) fn encapsulated(
    config: &MachineConfig,
    version: &IgnitionVersion,
    mode: ServeMode,
) -> Result<Vec<u8>, serde_json::Error> {
    let empty = json!({"ignition": {"version": version.to_string()}});
    serde_json::to_vec(&ManifestObject::new(config, &empty, mode)).map(escape_html)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ManifestObject<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    metadata: ManifestMetadata<'a>,
    spec: ManifestSpec<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ManifestSpec<'a> {
    #[serde(rename = "osImageURL")]
    os_image_url: &'a str,
    #[serde(rename = "baseOSExtensionsContainerImage")]
    extensions_image: &'a str,
    #[serde(skip_serializing_if = "Value::is_null")]
    config: &'a Value,
    kernel_arguments: Option<&'a [String]>,
    extensions: Option<&'a [String]>,
    fips: bool,
    kernel_type: &'a str,
}

struct ManifestMetadata<'a>(&'a ObjectMeta);

impl Serialize for ManifestMetadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = serde_json::to_value(self.0).map_err(S::Error::custom)?;
        let mut map = serializer.serialize_map(None)?;
        for name in METADATA_FIELDS {
            match (name, fields.get(name)) {
                ("ownerReferences", Some(Value::Array(owners))) => {
                    let owners: Vec<_> =
                        owners.iter().map(|owner| InOrder(owner, &OWNER_FIELDS)).collect();
                    map.serialize_entry(name, &owners)?;
                }
                (_, Some(value)) => map.serialize_entry(name, value)?,
                (_, None) => {}
            }
        }
        map.end()
    }
}

/// The fields of an object in this order.
struct InOrder<'a>(&'a Value, &'a [&'static str]);

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.1.iter().filter_map(|name| Some((name, self.0.get(name)?)));
        serializer.collect_map(fields)
    }
}

impl<'a> ManifestObject<'a> {
    fn new(config: &'a MachineConfig, ignition: &'a Value, mode: ServeMode) -> Self {
        let spec = &config.spec;
        let is_manifest = mode == ServeMode::Bootstrap;
        Self {
            kind: is_manifest.then_some("MachineConfig"),
            api_version: is_manifest.then_some("machineconfiguration.openshift.io/v1"),
            metadata: ManifestMetadata(&config.metadata),
            spec: ManifestSpec {
                os_image_url: spec.os_image_url.as_deref().unwrap_or_default(),
                extensions_image: spec
                    .base_os_extensions_container_image
                    .as_deref()
                    .unwrap_or_default(),
                config: ignition,
                kernel_arguments: spec.kernel_arguments.as_deref(),
                extensions: spec.extensions.as_deref(),
                fips: spec.fips.unwrap_or_default(),
                kernel_type: spec.kernel_type.as_deref().unwrap_or_default(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> MachineConfig {
        let owner = json!({"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u",
            "blockOwnerDeletion": true, "controller": true});
        let object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {"name": "rendered-worker-1", "labels": {"a": "b"}, "uid": "u",
                "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [owner]},
            "spec": {"config": {"ignition": {"version": "3.5.0"}}, "kernelArguments": ["a<b"]},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn fields_are_in_the_order_of_go() {
        let body = r#""metadata":{"name":"rendered-worker-1","uid":"u","labels":{"a":"b"},"#
            .to_owned()
            + r#""ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u","#
            + r#""controller":true,"blockOwnerDeletion":true}]},"#
            + r#""spec":{"osImageURL":"","baseOSExtensionsContainerImage":"","#
            + r#""config":{"ignition":{"version":"2.2.0"}},"#
            + r#""kernelArguments":["a\u003cb"],"extensions":null,"fips":false,"kernelType":""}}"#;
        let types =
            r#"{"kind":"MachineConfig","apiVersion":"machineconfiguration.openshift.io/v1","#;
        for (mode, start) in [(ServeMode::Cluster, "{"), (ServeMode::Bootstrap, types)] {
            let text = encapsulated(&config(), &IgnitionVersion::new(2, 2), mode).unwrap();
            assert_eq!(String::from_utf8(text).unwrap(), format!("{start}{body}"));
        }
    }

    #[test]
    fn the_dump_is_indented() {
        let text = String::from_utf8(dump(&config(), ServeMode::Bootstrap).unwrap()).unwrap();
        assert!(text.starts_with("{\n    \"kind\": \"MachineConfig\",\n"), "{text}");
        assert!(text.contains("            \"ignition\": {\n"), "{text}");
        assert!(text.ends_with("\n}"), "{text}");
    }
}
