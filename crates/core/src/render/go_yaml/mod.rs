//! YAML exactly as Go's `github.com/ghodss/yaml` writes it.
//!
//! The name of a rendered config is a hash over such YAML, so every byte counts: how strings are
//! quoted, where lines are folded, how keys are sorted. The library matched here is `ghodss/yaml`
//! of February 2019 on `gopkg.in/yaml.v2` 2.4.0. It takes JSON text, reads it as YAML and writes
//! that out again; [`to_go_yaml`] does both halves at once.
//!
//! Go sees JSON text, and this module sees a value that is already parsed. The text is taken to be
//! what Go's `encoding/json` writes for it. That matters in a few corners only:
//!
//! * Numbers are taken as `serde_json` prints them, so a float stays a float even if it is whole:
//!   `1e16` is written `1e+16`, where Go, had it decoded the number before, would have shown
//!   `10000000000000000`. And `serde_json` without its feature `float_roundtrip` may misread the
//!   last digit of a float. Neither Ignition nor MachineConfigs have floats.
//! * NEL (U+0085) is a line break to the YAML reader, even in a string, and is folded away. Text
//!   in which it is escaped (`\u0085`, as neither Go nor `serde_json` writes it) would keep it.
//!   U+2028 and U+2029, breaks as well, are escaped in Go's JSON and so are kept.
//! * Some values Go cannot read at all: [`go_yaml_refusal`] tells which. It cannot read `\/` and
//!   escaped surrogates either, but a value does not show how its text was escaped, and neither
//!   Go nor `serde_json` writes them. Numbers like `1e400` are no values to begin with.
//! * Sets of keys that have no natural order (see `order`) come out of Go in a random one.
//!   No Ignition config and no MachineConfig spec has such keys.

mod emit;
mod float;
mod letters;
mod order;
mod reader;
mod resolve;
mod scalar;
mod text;
mod timestamp;

#[cfg(test)]
mod tests;

pub use reader::{GoYamlError, go_yaml_error};

use serde_json::Value;

/// The YAML that Go makes of `value`, byte for byte, with a line feed at its end.
///
/// ```
/// use machinist_core::render::go_yaml::to_go_yaml;
///
/// let spec = serde_json::json!({"kernelArguments": ["a: b"], "fips": false});
/// assert_eq!(to_go_yaml(&spec), "fips: false\nkernelArguments:\n- 'a: b'\n");
/// ```
pub fn to_go_yaml(value: &Value) -> String {
    emit::YamlEmitter::document(value)
}
