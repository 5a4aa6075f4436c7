//! Amounts: bytes of a log, size of a disk.

use serde::{Deserialize, Serialize};

/// An amount as somebody wrote it: `8192` or `"10M"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Quantity {
    /// A plain number.
    Number(i64),
    /// A number with a unit, in Kubernetes' notation.
    Text(String),
}
