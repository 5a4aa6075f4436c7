//! JSON patch (RFC 6902), with the deviations of Kubernetes.

use serde_json::{Map, Value};

use super::{PatchError, json_type, too_deep};
use crate::object_limits::{
    MAX_DEPTH, MAX_KEY_BYTES, MAX_OBJECT_BYTES, TooDeep, encoded_bytes, measure, shorten,
};

/// Maximum number of operations.
const MAX_OPERATIONS: usize = 10_000;
/// Maximum number of bytes by which `copy` may grow the document.
const MAX_COPIED_BYTES: usize = MAX_OBJECT_BYTES;
/// Maximum number of values that `copy` may add. In memory, an object of ten bytes takes hundreds.
const MAX_COPIED_VALUES: usize = 50_000;
/// Maximum number of values that all operations together walk over or shift. Ten thousand inserts
/// at the front of a list with a million items would otherwise take a minute.
const MAX_WORK: usize = 20_000_000;

pub(super) fn apply(target: &Value, patch: &Value) -> Result<Value, PatchError> {
    let count = patch.as_array().map_or(0, Vec::len);
    if count > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}"
        )));
    }
    let operations = decode(patch)?;
    let mut patched =
        PatchedDocument { root: target.clone(), copied: 0, copied_values: 0, work: 0 };
    for operation in operations {
        patched.apply(operation)?;
    }
    Ok(patched.root)
}

/// One operation. All members but `value` are strings.
#[derive(Clone, Copy)]
struct PatchOperation<'a> {
    fields: Option<&'a Map<String, Value>>,
}

impl<'a> PatchOperation<'a> {
    fn string_member(self, name: &str) -> Result<&'a str, PatchError> {
        let field = self.fields.and_then(|fields| fields.get(name)).and_then(Value::as_str);
        field
            .ok_or_else(|| does_not_apply(format!("operation missing {name} field: missing value")))
    }

    fn value(self) -> Option<&'a Value> {
        self.fields?.get("value")
    }
}

fn decode(patch: &Value) -> Result<Vec<PatchOperation<'_>>, PatchError> {
    let wrong = |what: String| {
        PatchError::Malformed(format!("error decoding patch: json: cannot unmarshal {what}"))
    };
    let list = match patch {
        Value::Array(list) => list.as_slice(),
        Value::Null => &[],
        other => {
            let type_ = json_type(other);
            return Err(wrong(format!("{type_} into Go value of type []handlers.jsonPatchOp")));
        }
    };
    let mut operations = Vec::with_capacity(list.len());
    for item in list {
        let fields = match item {
            Value::Object(fields) => Some(fields),
            Value::Null => None,
            other => {
                let type_ = json_type(other);
                return Err(wrong(format!("{type_} into Go value of type handlers.jsonPatchOp")));
            }
        };
        for name in ["op", "path", "from"] {
            match fields.and_then(|fields| fields.get(name)) {
                None | Some(Value::Null | Value::String(_)) => {}
                Some(other) => {
                    return Err(wrong(format!(
                        "{} into Go struct field jsonPatchOp.{name} of type string",
                        json_type(other)
                    )));
                }
            }
        }
        operations.push(PatchOperation { fields });
    }
    Ok(operations)
}

/// The document while it is patched. It keeps the depth limit after every operation: a later one
/// could not even be refused, because dropping a document that is too deep overflows the stack.
struct PatchedDocument {
    root: Value,
    copied: usize,
    copied_values: usize,
    work: usize,
}

impl PatchedDocument {
    fn apply(&mut self, operation: PatchOperation<'_>) -> Result<(), PatchError> {
        let path = || operation.string_member("path");
        match operation.string_member("op").unwrap_or("unknown") {
            "add" => self.add(path()?, operation.value().cloned().unwrap_or(Value::Null)),
            "remove" => self.remove(path()?).map(|_| ()),
            "replace" => self.replace(path()?, operation.value()),
            "move" => {
                let value = self.remove(operation.string_member("from")?)?;
                self.add(path()?, value)
            }
            "copy" => {
                let found = get(&self.root, operation.string_member("from")?)?;
                self.copied += found.map_or(1, encoded_bytes);
                self.copied_values =
                    self.copied_values.saturating_add(found.map_or(1, count_values));
                if self.copied > MAX_COPIED_BYTES || self.copied_values > MAX_COPIED_VALUES {
                    return Err(PatchError::TooLarge(format!(
                        "the copy operations add more than {MAX_COPIED_BYTES} bytes or {MAX_COPIED_VALUES} values"
                    )));
                }
                let value = found.cloned().unwrap_or(Value::Null);
                self.add(path()?, value)
            }
            "test" => test(&self.root, path()?, operation.value()),
            other => Err(PatchError::DoesNotApply(format!("Unexpected kind: {other}"))),
        }
    }

    fn replace(&mut self, path: &str, value: Option<&Value>) -> Result<(), PatchError> {
        if path.is_empty() {
            match value {
                Some(value @ (Value::Object(_) | Value::Array(_))) => {
                    self.check_value("", value)?;
                    self.root = value.clone();
                }
                // Kubernetes accepts this and does nothing.
                Some(_) => {}
                None => return Err(does_not_apply("replace operation without a value")),
            }
            return Ok(());
        }
        let value = value.cloned().unwrap_or(Value::Null);
        self.check_value(path, &value)?;
        let (parent, key) = parent_mut(&mut self.root, path)?;
        match parent {
            Value::Object(fields) => {
                fields.insert(key, value);
            }
            Value::Array(items) => {
                let index = array_index(&key, items.len())?;
                items[index] = value;
            }
            _ => return Err(missing_path_error(path)),
        }
        Ok(())
    }

    fn add(&mut self, path: &str, value: Value) -> Result<(), PatchError> {
        self.check_value(path, &value)?;
        let (parent, key) = parent_mut(&mut self.root, path)?;
        let shifted = match parent {
            Value::Object(fields) => {
                fields.insert(key, value);
                0
            }
            Value::Array(items) if key == "-" => {
                items.push(value);
                0
            }
            Value::Array(items) => {
                let index = array_index(&key, items.len() + 1)?;
                items.insert(index, value);
                items.len() - index
            }
            _ => return Err(missing_path_error(path)),
        };
        self.count_work(shifted)
    }

    fn remove(&mut self, path: &str) -> Result<Value, PatchError> {
        let (parent, key) = parent_mut(&mut self.root, path)?;
        let (removed, shifted) = match parent {
            Value::Object(fields) => {
                (fields.remove(&key).ok_or_else(|| missing_path_error(path))?, 0)
            }
            Value::Array(items) => {
                let index = array_index(&key, items.len())?;
                (items.remove(index), items.len() - index)
            }
            _ => return Err(missing_path_error(path)),
        };
        self.count_work(shifted)?;
        Ok(removed)
    }

    /// Checks that a value may be put at a path.
    fn check_value(&mut self, path: &str, value: &Value) -> Result<(), PatchError> {
        let above = path.bytes().filter(|byte| *byte == b'/').count();
        let measured = measure(value, MAX_DEPTH.saturating_sub(above))
            .map_err(|_| too_deep(&TooDeep { limit: MAX_DEPTH, path: shorten(path) }))?;
        self.count_work(measured.values)
    }

    fn count_work(&mut self, values: usize) -> Result<(), PatchError> {
        self.work += values;
        if self.work <= MAX_WORK {
            return Ok(());
        }
        Err(PatchError::TooLarge(format!(
            "the operations of the JSON patch move more than {MAX_WORK} values: send the whole list instead"
        )))
    }
}

/// The number of values in a part of the document, which keeps the depth limit.
fn count_values(value: &Value) -> usize {
    measure(value, MAX_DEPTH).map_or(usize::MAX, |measured| measured.values)
}

fn test(document: &Value, path: &str, wanted: Option<&Value>) -> Result<(), PatchError> {
    let Some(wanted) = wanted else {
        return Err(does_not_apply("test operation without a value"));
    };
    let found = if path.is_empty() { Some(document) } else { get(document, path)? };
    if found.unwrap_or(&Value::Null) == wanted {
        Ok(())
    } else {
        Err(does_not_apply(format!("testing value {path} failed: test failed")))
    }
}

/// The value at a path; `None` if the object has no such field.
fn get<'a>(document: &'a Value, path: &str) -> Result<Option<&'a Value>, PatchError> {
    let (steps, key) = split_path(path)?;
    let mut here = document;
    for step in &steps {
        let next = match here {
            Value::Object(fields) => fields.get(step),
            Value::Array(items) => items.get(array_index(step, items.len())?),
            _ => None,
        };
        here = next.ok_or_else(|| missing_path_error(path))?;
    }
    match here {
        Value::Object(fields) => Ok(fields.get(&key)),
        Value::Array(items) => Ok(items.get(array_index(&key, items.len())?)),
        _ => Err(missing_path_error(path)),
    }
}

/// Returns the parent of a path and the last segment.
fn parent_mut<'a>(
    document: &'a mut Value,
    path: &str,
) -> Result<(&'a mut Value, String), PatchError> {
    let (steps, key) = split_path(path)?;
    let mut here = document;
    for step in &steps {
        let next = match here {
            Value::Object(fields) => fields.get_mut(step),
            Value::Array(items) => {
                let index = array_index(step, items.len())?;
                items.get_mut(index)
            }
            _ => None,
        };
        here = next.ok_or_else(|| missing_path_error(path))?;
    }
    Ok((here, key))
}

/// Splits a path into the segments of the parent and the last one. Text before the first slash is
/// ignored.
fn split_path(path: &str) -> Result<(Vec<String>, String), PatchError> {
    let mut steps: Vec<String> =
        path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    let key = steps.pop().ok_or_else(|| missing_path_error(path))?;
    if key.len() > MAX_KEY_BYTES {
        return Err(PatchError::TooLarge(format!(
            "a field name has {} bytes, limit is {MAX_KEY_BYTES}",
            key.len()
        )));
    }
    Ok((steps, key))
}

/// Parses an index below `size`. A negative one counts from the end.
fn array_index(key: &str, size: usize) -> Result<usize, PatchError> {
    let index: i64 =
        key.parse().map_err(|_| does_not_apply(format!("not an array index: '{key}'")))?;
    let found = if index < 0 {
        usize::try_from(index.unsigned_abs()).ok().and_then(|back| size.checked_sub(back))
    } else {
        usize::try_from(index).ok().filter(|index| *index < size)
    };
    found.ok_or_else(|| does_not_apply(format!("Unable to access invalid index: {key}")))
}

fn does_not_apply(why: impl Into<String>) -> PatchError {
    PatchError::DoesNotApply(why.into())
}

fn missing_path_error(path: &str) -> PatchError {
    does_not_apply(format!("doc is missing path: \"{path}\": missing value"))
}
