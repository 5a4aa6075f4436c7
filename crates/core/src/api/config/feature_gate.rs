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

/// A feature that changes what Machinist generates or does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// ClusterImagePolicies and ImagePolicies.
    SigstoreImageVerification,
    /// Image policies with the root of trust `PKI`.
    SigstoreImageVerificationPki,
    /// The additional stores of a ContainerRuntimeConfig.
    AdditionalStorageConfig,
    /// The OSImageStream.
    OsStreams,
}

impl Feature {
    /// All features.
    pub const ALL: [Self; 4] = [
        Self::SigstoreImageVerification,
        Self::SigstoreImageVerificationPki,
        Self::AdditionalStorageConfig,
        Self::OsStreams,
    ];

    /// The name of its feature gate.
    #[must_use]
    pub fn gate(self) -> &'static str {
        match self {
            Self::SigstoreImageVerification => "SigstoreImageVerification",
            Self::SigstoreImageVerificationPki => "SigstoreImageVerificationPKI",
            Self::AdditionalStorageConfig => "AdditionalStorageConfig",
            Self::OsStreams => "OSStreams",
        }
    }
}

/// The features of a cluster, as its FeatureGate `cluster` has them.
///
/// A cluster whose FeatureGate has a status, as an OpenShift cluster's has, has the features that
/// the status enables. Elsewhere nobody lists them: every feature is on that the spec does not
/// disable.
#[derive(Clone, Copy, Debug, Default)]
pub struct FeatureGates<'a>(Option<&'a FeatureGate>);

impl<'a> FeatureGates<'a> {
    /// The features of a cluster with this FeatureGate.
    #[must_use]
    pub fn of(feature_gate: Option<&'a FeatureGate>) -> Self {
        Self(feature_gate)
    }

    /// Whether a feature is on.
    #[must_use]
    pub fn is_on(self, feature: Feature) -> bool {
        let Some(gate) = self.0 else { return true };
        let listed = gate.status.as_ref().and_then(|status| status.feature_gates.as_deref());
        let Some(details) = listed.and_then(<[FeatureGateDetails]>::last) else {
            let chosen = gate.spec.custom_no_upgrade.as_ref();
            let disabled = chosen.and_then(|chosen| chosen.disabled.as_ref());
            return !disabled.into_iter().flatten().any(|name| name == feature.gate());
        };
        let is_in = |features: &Option<Vec<FeatureGateAttributes>>| {
            features.iter().flatten().any(|it| it.name == feature.gate())
        };
        match feature {
            // MCO relies on the API server to refuse such policies, and lists the gate only while
            // the feature can be switched off.
            Feature::SigstoreImageVerificationPki => !is_in(&details.disabled),
            _ => is_in(&details.enabled),
        }
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
    fn features_are_on_unless_the_feature_gate_says_otherwise() {
        use Feature::{
            AdditionalStorageConfig, OsStreams, SigstoreImageVerification,
            SigstoreImageVerificationPki,
        };
        let on = |object: serde_json::Value| -> Vec<Feature> {
            let gate: Option<FeatureGate> = serde_json::from_value(object).unwrap();
            let gates = FeatureGates::of(gate.as_ref());
            Feature::ALL.into_iter().filter(|feature| gates.is_on(*feature)).collect()
        };
        assert_eq!(on(json!(null)), Feature::ALL, "nobody says anything");
        let spec = |spec: serde_json::Value| json!({"metadata": {"name": "cluster"}, "spec": spec});
        assert_eq!(on(spec(json!({}))), Feature::ALL);
        let custom = json!({"customNoUpgrade": {"disabled": ["OSStreams"], "enabled": ["X"]}});
        let without_streams =
            [SigstoreImageVerification, SigstoreImageVerificationPki, AdditionalStorageConfig];
        assert_eq!(on(spec(custom)), without_streams);
        // With a status, a feature that is not listed is off.
        let mut listed = spec(json!({"customNoUpgrade": {"disabled": ["OSStreams"]}}));
        listed["status"] = json!({"featureGates": [
            {"version": "1", "enabled": [{"name": "AdditionalStorageConfig"}]},
            {"version": "2", "enabled": [{"name": "OSStreams"}],
                "disabled": [{"name": "SigstoreImageVerificationPKI"}]},
        ]});
        assert_eq!(on(listed.clone()), [OsStreams]);
        listed["status"]["featureGates"][1]["disabled"] = json!([]);
        assert_eq!(on(listed), [SigstoreImageVerificationPki, OsStreams]);
    }

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
