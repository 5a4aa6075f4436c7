//! CRIOCredentialProviderConfig: the images for which the container runtime requests credentials.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use serde_json::{Value, json};

use crate::api::condition::{self, Condition};
use crate::api::nullable::UnknownFields;
use crate::api::rules::{rule, singleton};
use crate::api::schema;

/// The images for which the container runtime uses the credentials of the pod's namespace.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "CRIOCredentialProviderConfig",
    status = "CRIOCredentialProviderConfigStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "For which images the container runtime asks for credentials."
)]
#[serde(rename_all = "camelCase", default)]
pub struct CRIOCredentialProviderConfigSpec {
    /// Images, as hosts with optional wildcards, ports and paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 50),
        extend("x-kubernetes-list-type" = "set"),
        transform = schema::each_item(image())
    )]
    pub match_images: Option<Vec<String>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The schema of one entry of the list.
fn image() -> Value {
    json!({
        "minLength": 1,
        "maxLength": 512,
        "x-kubernetes-validations": [
            rule("self != '*'", "global wildcard '*' is not allowed"),
            rule(
                r"self.matches('^((\\*|[a-z0-9]([a-z0-9-]*[a-z0-9])?)(\\.(\\*|[a-z0-9]([a-z0-9-]*[a-z0-9])?))*)(:[0-9]+)?(/[-a-z0-9._/]*)?$')",
                "invalid matchImages value, must be a valid fully qualified domain name in lowercase with optional wildcard, port, and path",
            ),
        ],
    })
}

/// Whether the settings were applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("minProperties" = 1))]
pub struct CRIOCredentialProviderConfigStatus {
    /// The conditions of the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::standard_conditions", length(min = 1, max = 16))]
    pub conditions: Option<Vec<Condition>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    CRIOCredentialProviderConfig,
    schema::RootSchema::new::<CRIOCredentialProviderConfigSpec>()
        .status::<CRIOCredentialProviderConfigStatus>()
        .rules(vec![singleton("criocredentialproviderconfig")])
        .preserve_unknown_fields(),
);
