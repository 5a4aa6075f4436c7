//! Values that JSON distinguishes and Rust's `Option` does not.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Fields of an object that this version has no name for.
///
/// Every API type has such a map, so that reading an object, changing one field and writing it back
/// loses nothing that a newer version added.
pub type UnknownFields = BTreeMap<String, Value>;

/// A field that may be absent, `null` or set, for readers that distinguish the three.
///
/// ```
/// use machinist_core::api::Nullable;
///
/// let proxy: Nullable<String> = Nullable::Set("http://proxy:3128".to_owned());
/// assert_eq!(proxy.as_ref().map(String::as_str), Some("http://proxy:3128"));
/// assert_eq!(Nullable::<String>::Null.as_ref(), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nullable<T> {
    /// The field is absent.
    #[default]
    Absent,
    /// The field is `null`.
    Null,
    /// The field has a value.
    Set(T),
}

impl<T> Nullable<T> {
    /// The value, if there is one.
    pub fn as_ref(&self) -> Option<&T> {
        match self {
            Self::Set(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }

    /// The value, if there is one, as a mutable reference.
    pub fn as_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Set(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }

    /// The value itself, if there is one.
    pub fn into_option(self) -> Option<T> {
        match self {
            Self::Set(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }

    /// Whether there is a value.
    pub fn is_set(&self) -> bool {
        matches!(self, Self::Set(_))
    }

    /// Whether the field is absent.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// The value, or an explicit `null` when there is none.
    pub fn or_null(value: Option<T>) -> Self {
        value.map_or(Self::Null, Self::Set)
    }
}

impl<T> From<T> for Nullable<T> {
    fn from(value: T) -> Self {
        Self::Set(value)
    }
}

impl<T: Serialize> Serialize for Nullable<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_ref().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Nullable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::or_null)
    }
}

impl<T: JsonSchema> JsonSchema for Nullable<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = T::json_schema(generator);
        schema.insert("nullable".into(), true.into());
        schema
    }
}
