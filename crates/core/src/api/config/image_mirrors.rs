//! Mirrors of image registries: the part that digest and tag mirror sets have in common.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::nullable::UnknownFields;
use crate::api::schema;

/// A registry, or a repository in it.
const MIRROR_PATTERN: &str = r"^((?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+)?(?::[0-9]+)?)(?:(?:/[a-z0-9]+(?:(?:(?:[._]|__|[-]*)[a-z0-9]+)+)?)+)?$";

/// [`MIRROR`], or a wildcard for all hosts below a domain.
const SOURCE_PATTERN: &str = r"^\*(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+$|^((?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+)?(?::[0-9]+)?)(?:(?:/[a-z0-9]+(?:(?:(?:[._]|__|[-]*)[a-z0-9]+)+)?)+)?$";

/// The mirrors of one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["source"]))]
pub struct ImageMirrors {
    /// The source that image references name: a registry, a repository, or `*.` and a domain.
    #[schemars(regex(pattern = SOURCE_PATTERN))]
    pub source: String,
    /// The mirrors, in the order in which they are tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        extend("x-kubernetes-list-type" = "set"),
        transform = schema::each_item(json!({"pattern": MIRROR_PATTERN}))
    )]
    pub mirrors: Option<Vec<String>>,
    /// Whether the source is tried if no mirror has the image: `AllowContactingSource` (the
    /// default) or `NeverContactSource`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["NeverContactSource", "AllowContactingSource"]))]
    pub mirror_source_policy: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}
