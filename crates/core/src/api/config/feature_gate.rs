//! FeatureGate: the features that are enabled in the cluster.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use serde_json::json;

use crate::api::condition::{self, Condition};
use crate::api::nullable::{Nullable, UnknownFields};
use crate::api::rules::rule;
use crate::api::schema;

/// The name of a feature.
const FEATURE_NAME_PATTERN: &str = r"^([A-Za-z0-9-]+\.)*[A-Za-z0-9-]+\.?$";

/// The features that are enabled in the cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "FeatureGate",
    status = "FeatureGateStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "Which features of the cluster are switched on."
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "has(oldSelf.featureSet) ? has(self.featureSet) : true",
    ".spec.featureSet cannot be removed"
)]))]
pub struct FeatureGateSpec {
    /// A set of features; empty for the default set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "enum" = ["CustomNoUpgrade", "DevPreviewNoUpgrade", "TechPreviewNoUpgrade", "OKD", ""],
        "x-kubernetes-validations" = [
            rule(
                "oldSelf == 'CustomNoUpgrade' ? self == 'CustomNoUpgrade' : true",
                "CustomNoUpgrade may not be changed"
            ),
            rule(
                "oldSelf == 'TechPreviewNoUpgrade' ? self == 'TechPreviewNoUpgrade' : true",
                "TechPreviewNoUpgrade may not be changed"
            ),
            rule(
                "oldSelf == 'DevPreviewNoUpgrade' ? self == 'DevPreviewNoUpgrade' : true",
                "DevPreviewNoUpgrade may not be changed"
            ),
            rule("oldSelf == 'OKD' ? self != '' : true", "OKD cannot transition to Default")
        ]
    ))]
    pub feature_set: Option<String>,
    /// Individual features, if the set is `CustomNoUpgrade`.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    pub custom_no_upgrade: Nullable<CustomFeatureGates>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Individual features.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CustomFeatureGates {
    /// The enabled features.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::each_item(json!({"pattern": FEATURE_NAME_PATTERN})))]
    pub enabled: Option<Vec<String>>,
    /// The disabled features.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::each_item(json!({"pattern": FEATURE_NAME_PATTERN})))]
    pub disabled: Option<Vec<String>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The features of each version of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FeatureGateStatus {
    /// The conditions of the feature gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::standard_conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// The features of each version.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["version"]
    ))]
    pub feature_gates: Option<Vec<FeatureGateDetails>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The features of one version of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["version"]))]
pub struct FeatureGateDetails {
    /// The version.
    pub version: String,
    /// The enabled features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<Vec<FeatureGateAttributes>>,
    /// The disabled features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Vec<FeatureGateAttributes>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A feature, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct FeatureGateAttributes {
    /// The name of the feature.
    #[schemars(regex(pattern = FEATURE_NAME_PATTERN))]
    pub name: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

impl FeatureGateStatus {
    /// Whether a feature is enabled in the given version. A feature that is not listed is disabled.
    pub fn is_enabled(&self, version: &str, feature: &str) -> bool {
        self.feature_gates
            .iter()
            .flatten()
            .filter(|details| details.version == version)
            .flat_map(|details| details.enabled.iter().flatten())
            .any(|enabled| enabled.name == feature)
    }
}

schema::kind_schema!(
    FeatureGate,
    schema::RootSchema::new::<FeatureGateSpec>()
        .status::<FeatureGateStatus>()
        .preserve_unknown_fields(),
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_enabled_only_where_it_is_listed() {
        let status: FeatureGateStatus = serde_json::from_value(json!({"featureGates": [
            {"version": "4.20.0", "enabled": [{"name": "Old"}]},
            {"version": "4.21.0", "enabled": [{"name": "New"}], "disabled": [{"name": "Old"}]},
        ]}))
        .unwrap();
        assert!(status.is_enabled("4.21.0", "New"));
        assert!(!status.is_enabled("4.21.0", "Old"));
        assert!(status.is_enabled("4.20.0", "Old"));
        assert!(!status.is_enabled("4.22.0", "New"));
    }
}
