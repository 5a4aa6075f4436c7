//! Label and field selectors: parsing and matching.
//!
//! Pure. Called by the router for lists, watches and collection deletes, and by machinist's CLI.

mod field;
mod label;

pub use field::FieldSelector;
pub use label::LabelSelector;
