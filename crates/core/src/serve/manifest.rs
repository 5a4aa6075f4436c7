//! Encodes a MachineConfig as Go does: the fields in the order of Go's types, including the empty
//! ones that Go never omits.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::ser::{Error as _, SerializeMap as _};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::api::MachineConfig;
use crate::go::escape::escape_html;
use crate::ignition::IgnitionVersion;

/// The metadata fields in the order of Go's type. `managedFields` is of no use on a machine and
/// omitted.
const METADATA_FIELDS: [&str; 14] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
];

/// The whole object, indented.
pub(super) fn dump(config: &MachineConfig) -> Result<Vec<u8>, serde_json::Error> {
    let ignition = config.spec.config.as_ref().unwrap_or(&Value::Null);
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    ManifestObject::new(config, ignition).serialize(&mut serializer)?;
    Ok(escape_html(text))
}

/// The object without the Ignition config that the machine applies anyway: what remains for the
/// daemon to do on the first boot.
pub(super) fn encapsulated(
    config: &MachineConfig,
    version: &IgnitionVersion,
) -> Result<Vec<u8>, serde_json::Error> {
    let empty = json!({"ignition": {"version": version.to_string()}});
    serde_json::to_vec(&ManifestObject::new(config, &empty)).map(escape_html)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ManifestObject<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: ManifestMetadata<'a>,
    spec: ManifestSpec<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ManifestSpec<'a> {
    #[serde(rename = "osImageURL")]
    os_image_url: &'a str,
    #[serde(rename = "baseOSExtensionsContainerImage", skip_serializing_if = "str::is_empty")]
    extensions_image: &'a str,
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
            if let Some(value) = fields.get(name) {
                map.serialize_entry(name, value)?;
            }
        }
        map.end()
    }
}

impl<'a> ManifestObject<'a> {
    fn new(config: &'a MachineConfig, ignition: &'a Value) -> Self {
        let spec = &config.spec;
        Self {
            kind: "MachineConfig",
            api_version: "machineconfiguration.openshift.io/v1",
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
        let object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {"name": "rendered-worker-1", "labels": {"a": "b"}, "uid": "u"},
            "spec": {"config": {"ignition": {"version": "3.5.0"}}, "kernelArguments": ["a<b"]},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn fields_are_in_the_order_of_go() {
        let text = String::from_utf8(encapsulated(&config(), &IgnitionVersion::new(2, 2)).unwrap())
            .unwrap();
        assert_eq!(
            text,
            r#"{"kind":"MachineConfig","apiVersion":"machineconfiguration.openshift.io/v1","#
                .to_owned()
                + r#""metadata":{"name":"rendered-worker-1","uid":"u","labels":{"a":"b"}},"#
                + r#""spec":{"osImageURL":"","config":{"ignition":{"version":"2.2.0"}},"#
                + r#""kernelArguments":["a\u003cb"],"extensions":null,"fips":false,"kernelType":""}}"#
        );
    }

    #[test]
    fn the_dump_is_indented() {
        let text = String::from_utf8(dump(&config()).unwrap()).unwrap();
        assert!(text.starts_with("{\n    \"kind\": \"MachineConfig\",\n"), "{text}");
        assert!(text.contains("            \"ignition\": {\n"), "{text}");
        assert!(text.ends_with("\n}"), "{text}");
    }
}
