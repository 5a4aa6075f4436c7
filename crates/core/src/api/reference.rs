//! References from one object to another.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use super::nullable::UnknownFields;
use super::{rules, schema};

/// Another object, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct NameReference {
    /// The name of the object.
    #[schemars(
        length(max = 253),
        extend("x-kubernetes-validations" = rules::lowercase_subdomain())
    )]
    pub name: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

impl NameReference {
    /// A reference to the object of the given name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), other: UnknownFields::new() }
    }
}

/// Requires a minimum length of the name in a [`NameReference`].
pub(crate) fn name_at_least(characters: u32) -> impl FnMut(&mut Schema) {
    move |reference| {
        schema::adjust(reference, &["properties", "name"], |name| {
            name.insert("minLength".into(), characters.into());
        });
    }
}

/// Another object, by group, resource and name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["group", "name", "resource"]))]
pub struct ResourceReference {
    /// The API group of the object.
    #[schemars(
        length(max = 253),
        extend("x-kubernetes-validations" = rules::lowercase_subdomain())
    )]
    pub group: String,
    /// The resource: the plural of the kind, in lower case.
    #[schemars(
        length(min = 1, max = 63),
        extend("x-kubernetes-validations" = rules::dns_1035_label())
    )]
    pub resource: String,
    /// The namespace, if the object has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        extend("x-kubernetes-validations" = rules::dns_1123_label())
    )]
    pub namespace: Option<String>,
    /// The name of the object.
    #[schemars(
        length(min = 1, max = 253),
        extend("x-kubernetes-validations" = rules::lowercase_subdomain())
    )]
    pub name: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}
