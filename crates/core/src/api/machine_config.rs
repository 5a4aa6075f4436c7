//! MachineConfig: one part of the configuration of machines.
//!
//! Files, systemd units, users, kernel arguments, an OS image: an administrator writes any number
//! of these, and each pool merges the ones it selects into one rendered config for its machines.

use std::fmt;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::nullable::{Nullable, UnknownFields};
use super::schema;

/// One part of the configuration of machines: files, systemd units, users, kernel arguments, an OS
/// image. A pool merges all MachineConfigs that it selects, in the order of their names.
#[derive(CustomResource, Clone, Default, PartialEq, JsonSchema)]
#[expect(clippy::duplicated_attributes, reason = "columns are alike in type and priority")]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "MachineConfig",
    shortname = "mc",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "A piece of what machines should look like.",
    label("openshift.io/operator-managed", ""),
    printcolumn(
        name = "GeneratedByController",
        type_ = "string",
        description = "The controller version that made this config; empty when a person wrote it.",
        json_path = r".metadata.annotations.machineconfiguration\.openshift\.io/generated-by-controller-version"
    ),
    printcolumn(
        name = "IgnitionVersion",
        type_ = "string",
        description = "The version of the Ignition config inside.",
        json_path = ".spec.config.ignition.version"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(rename_all = "camelCase", default)]
pub struct MachineConfigSpec {
    /// The operating system image, by digest. Set in rendered configs; overrides the default image
    /// if an administrator sets it.
    #[schemars(rename = "osImageURL")]
    pub os_image_url: Option<String>,
    /// The image that holds the packages of `extensions`.
    #[schemars(rename = "baseOSExtensionsContainerImage")]
    pub base_os_extensions_container_image: Option<String>,
    /// An Ignition config: files, units, users.
    #[schemars(schema_with = "schema::any_object")]
    pub config: Option<Value>,
    /// Arguments to add to the kernel command line.
    #[schemars(schema_with = "schema::strings", extend("nullable" = true))]
    pub kernel_arguments: Option<Vec<String>>,
    /// Extensions of the operating system, for example `usbguard`.
    #[schemars(schema_with = "schema::strings")]
    pub extensions: Option<Vec<String>>,
    /// Whether the machine runs in FIPS mode. Fixed at installation.
    pub fips: Option<bool>,
    /// The kernel to run: `default`, `realtime` or `64k-pages`.
    pub kernel_type: Option<String>,
    /// Fields this version does not know. Also records that `kernelArguments` was `null`.
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(MachineConfig, schema::RootSchema::new::<MachineConfigSpec>().spec_optional(),);

impl fmt::Debug for MachineConfigSpec {
    /// Shows everything except the contents of `config`, which may hold keys and pull secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.config.as_ref().and_then(|c| c.pointer("/ignition/version"));
        formatter
            .debug_struct("MachineConfigSpec")
            .field("os_image_url", &self.os_image_url)
            .field("base_os_extensions_container_image", &self.base_os_extensions_container_image)
            .field("config", &format_args!("<Ignition {}>", version.unwrap_or(&Value::Null)))
            .field("kernel_arguments", &self.kernel_arguments)
            .field("extensions", &self.extensions)
            .field("fips", &self.fips)
            .field("kernel_type", &self.kernel_type)
            .field("other", &self.other)
            .finish()
    }
}

/// The serialized spec, where an absent list and a `null` one differ.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MachineConfigSpecWire {
    #[serde(rename = "osImageURL")]
    os_image_url: Option<String>,
    #[serde(rename = "baseOSExtensionsContainerImage")]
    base_os_extensions_container_image: Option<String>,
    config: Option<Value>,
    kernel_arguments: Nullable<Vec<String>>,
    extensions: Option<Vec<String>>,
    fips: Option<bool>,
    kernel_type: Option<String>,
    #[serde(flatten)]
    other: UnknownFields,
}

impl From<MachineConfigSpecWire> for MachineConfigSpec {
    fn from(wire: MachineConfigSpecWire) -> Self {
        let mut other = wire.other;
        if wire.kernel_arguments == Nullable::Null {
            other.insert(KERNEL_ARGUMENTS.to_owned(), Value::Null);
        }
        Self {
            os_image_url: wire.os_image_url,
            base_os_extensions_container_image: wire.base_os_extensions_container_image,
            config: wire.config,
            kernel_arguments: wire.kernel_arguments.into_option(),
            extensions: wire.extensions,
            fips: wire.fips,
            kernel_type: wire.kernel_type,
            other,
        }
    }
}

const KERNEL_ARGUMENTS: &str = "kernelArguments";

impl<'de> Deserialize<'de> for MachineConfigSpec {
    /// Reads a spec. A missing or `null` spec is an empty one, as the schema allows.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<MachineConfigSpecWire>::deserialize(deserializer)?.unwrap_or_default().into())
    }
}

impl Serialize for MachineConfigSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        entry(&mut map, "osImageURL", self.os_image_url.as_ref())?;
        let extensions_image = self.base_os_extensions_container_image.as_ref();
        entry(&mut map, "baseOSExtensionsContainerImage", extensions_image)?;
        entry(&mut map, "config", self.config.as_ref())?;
        entry(&mut map, KERNEL_ARGUMENTS, self.kernel_arguments.as_ref())?;
        entry(&mut map, "extensions", self.extensions.as_ref())?;
        entry(&mut map, "fips", self.fips.as_ref())?;
        entry(&mut map, "kernelType", self.kernel_type.as_ref())?;
        for (name, value) in &self.other {
            let given_since = name == KERNEL_ARGUMENTS && self.kernel_arguments.is_some();
            entry(&mut map, name, (!given_since).then_some(value))?;
        }
        map.end()
    }
}

fn entry<M: SerializeMap>(
    map: &mut M,
    name: &str,
    value: Option<&impl Serialize>,
) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(name, value))
}
