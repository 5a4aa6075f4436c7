//! Label and field selectors, from query strings to yes or no.

mod field;
mod label;
pub mod name_validation;

pub use field::FieldSelector;
pub use label::LabelSelector;
