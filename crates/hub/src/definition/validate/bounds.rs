//! Bounds that keep a definition from costing much: its depth, its number of schemas, its patterns and its defaults.

use serde_json::Value;

use crate::object_limits::encoded_bytes;
use crate::schema::FieldError;

/// How the errors begin after which nothing else is checked.
pub(super) const TOO_LARGE: &str = "too large: ";

/// The most versions of a definition.
const MAX_VERSIONS: usize = 32;
/// The most schemas in a definition: each field has one.
const MAX_SCHEMAS: usize = 20_000;
/// The deepest schema. An object that fits it is half as deep.
const MAX_SCHEMA_DEPTH: usize = 45;
/// The longest pattern. Compiled, it may take a thousand times as much.
const MAX_PATTERN_BYTES: usize = 4096;
/// The most patterns in a definition.
const MAX_PATTERNS: usize = 1000;
/// The largest default, and the largest sum of them: each object may grow by it.
const MAX_DEFAULT_BYTES: usize = 64 << 10;
/// The most rules in a definition, and the longest of them.
const MAX_RULES: usize = 500;
const MAX_RULE_BYTES: usize = 16 << 10;

#[derive(Default)]
struct Counts {
    schemas: usize,
    patterns: usize,
    rules: usize,
    default_bytes: usize,
}

/// Returns the bounds that a definition does not keep.
pub(super) fn validate(spec: &Value) -> Option<FieldError> {
    let too_large =
        |path: &str, what: String| Some(FieldError::forbidden(path, format!("{TOO_LARGE}{what}")));
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if versions.len() > MAX_VERSIONS {
        return too_large("spec.versions", format!("at most {MAX_VERSIONS} versions"));
    }
    let mut counts = Counts::default();
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
        if let Some(schema) = version.pointer("/schema/openAPIV3Schema")
            && let Err(what) = count(schema, 0, &mut counts)
        {
            return too_large(&path, what);
        }
        let bounds = [
            (counts.schemas, MAX_SCHEMAS, "schemas"),
            (counts.patterns, MAX_PATTERNS, "patterns"),
            (counts.rules, MAX_RULES, "rules"),
            (counts.default_bytes, MAX_DEFAULT_BYTES, "bytes of defaults"),
        ];
        let broken = bounds.iter().find(|(count, most, _)| count > most);
        if let Some((_, most, what)) = broken {
            return too_large(&path, format!("at most {most} {what} in all versions together"));
        }
    }
    None
}

fn count(schema: &Value, depth: usize, counts: &mut Counts) -> Result<(), String> {
    let Value::Object(fields) = schema else { return Ok(()) };
    if depth > MAX_SCHEMA_DEPTH {
        return Err(format!("schemas may be nested {MAX_SCHEMA_DEPTH} levels deep"));
    }
    counts.schemas += 1;
    for (name, value) in fields {
        match name.as_str() {
            "properties" | "patternProperties" | "definitions" | "dependencies" => {
                let mut inside = value.as_object().into_iter().flat_map(|all| all.values());
                inside.try_for_each(|inside| count(inside, depth + 1, counts))?;
            }
            "allOf" | "anyOf" | "oneOf" => {
                let mut inside = value.as_array().into_iter().flatten();
                inside.try_for_each(|inside| count(inside, depth + 1, counts))?;
            }
            "items" | "additionalProperties" | "additionalItems" | "not" => {
                count(value, depth + 1, counts)?;
            }
            "pattern" => {
                counts.patterns += 1;
                if value.as_str().is_some_and(|text| text.len() > MAX_PATTERN_BYTES) {
                    return Err(format!("a pattern may have {MAX_PATTERN_BYTES} bytes"));
                }
            }
            "default" => counts.default_bytes += encoded_bytes(value),
            "x-kubernetes-validations" => {
                let rules = value.as_array().map(Vec::as_slice).unwrap_or_default();
                counts.rules += rules.len();
                if rules.iter().any(|rule| encoded_bytes(rule) > MAX_RULE_BYTES) {
                    return Err(format!("a rule may have {MAX_RULE_BYTES} bytes"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}
