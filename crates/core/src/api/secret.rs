//! Values that must not be displayed.

use std::fmt;

use k8s_openapi::ByteString;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that no log, error or panic message may contain: a pull secret, a key.
///
/// ```
/// use machinist_core::api::SecretBytes;
///
/// assert_eq!(format!("{:?}", SecretBytes(b"hunter2".to_vec())), "<7 secret bytes>");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretBytes(pub Vec<u8>);

impl fmt::Debug for SecretBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "<{} secret bytes>", self.0.len())
    }
}

impl Serialize for SecretBytes {
    /// Writes the bytes as base64.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ByteString(self.0.clone()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SecretBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ByteString::deserialize(deserializer).map(|bytes| Self(bytes.0))
    }
}
