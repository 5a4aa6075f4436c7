//! YAML exactly as Go's libraries read and write it.
//!
//! [`parse`] reads YAML as Go does. [`to_go_yaml`] writes it as `github.com/ghodss/yaml` does.
//!
//! The name of a rendered config is a hash over the written YAML, so every byte counts: how strings
//! are quoted, where lines are folded, how keys are sorted. The library matched here is
//! `ghodss/yaml` of February 2019 on `gopkg.in/yaml.v2` 2.4.0. It takes JSON text, reads it as YAML
//! and writes it out again; [`to_go_yaml`] does both at once.
//!
//! Go sees JSON text; this module sees a parsed value and assumes the text that Go's
//! `encoding/json` would write for it. The difference matters in a few corner cases:
//!
//! * Numbers are printed as `serde_json` prints them, so a whole float stays a float: `1e16` becomes
//!   `1e+16`, where Go, had it decoded the number first, would write `10000000000000000`. Without
//!   its feature `float_roundtrip`, `serde_json` may also misread the last digit of a float. Neither
//!   Ignition nor MachineConfigs have floats.
//! * NEL (U+0085) is a line break to the YAML reader, even inside a string, and is folded away. It
//!   would survive if the JSON text escaped it (`\u0085`), but neither Go nor `serde_json` does.
//!   U+2028 and U+2029 are line breaks too; Go's JSON escapes them, so they survive.
//! * Go cannot read some values at all: [`go_yaml_error`] reports them. It cannot read `\/` and
//!   escaped surrogates either, but neither Go nor `serde_json` writes them. Numbers such as `1e400`
//!   are not JSON values to begin with.
//! * Sets of keys without a total order (see `order`) come out of Go in random order. No Ignition
//!   config and no MachineConfig spec has such keys.

mod emit;
mod float;
mod letters;
mod order;
mod parse;
mod reader;
mod resolve;
mod scalar;
mod text;
mod timestamp;

#[cfg(test)]
mod tests;

pub use parse::{YamlError, parse};
pub use reader::{GoYamlError, go_yaml_error};

use serde_json::Value;

/// The YAML that Go writes for `value`, byte for byte, with a line feed at the end.
///
/// ```
/// use machinist_core::go::yaml::to_go_yaml;
///
/// let spec = serde_json::json!({"kernelArguments": ["a: b"], "fips": false});
/// assert_eq!(to_go_yaml(&spec), "fips: false\nkernelArguments:\n- 'a: b'\n");
/// ```
pub fn to_go_yaml(value: &Value) -> String {
    emit::YamlEmitter::document(value)
}
