//! Ignition configs: parse, validate, convert between versions, merge, decode contents.
//!
//! ```text
//! JSON ─ parse (any version: 2.0–2.2, 3.0–3.5) ─→ Config (always 3.5) ─ merge ─→ Config
//!                                                      └─ convert::down ─→ JSON of 3.4 … 3.1, 2.2
//! ```
//!
//! There is one set of types for specification 3 ([`schema`]); a field knows the minor version that
//! introduced it. What is an error, what is a warning and what a later config overrides follows
//! Ignition 2.26 and the converter of the Machine Config Operator; differential tests compare the
//! results with both.

pub mod config_part;
pub mod contents;
pub mod convert;
pub mod data_url;
pub mod etcd_index;
pub mod keyed_list;
pub mod parse;
pub mod path_limits;
pub mod report;
#[cfg(any(test, feature = "fuzzing"))]
pub mod robustness;
pub mod schema;
pub mod unpacked_size;
pub mod v2;
pub mod validate;
pub mod version;

pub use parse::{IgnitionError, ParsedConfig, empty_config, merge, parse, parse_and_upgrade};
pub use report::IgnitionReport;
pub use schema::Config;
pub use version::IgnitionVersion;
