//! Label and field selectors, from query strings to yes or no.

mod field;
mod label;
pub mod names;

pub use field::FieldSelector;
pub use label::LabelSelector;
