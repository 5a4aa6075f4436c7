//! JSON patch (RFC 6902), with the deviations of Kubernetes.

use serde_json::{Map, Value};

use super::{PatchError, json_type};

/// Maximum number of operations.
const MAX_OPERATIONS: usize = 10_000;
/// Maximum number of bytes by which `copy` may grow the document.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

pub(super) fn apply(target: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = decode(patch)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut document = target.clone();
    let mut copied = 0;
    for operation in operations {
        apply_operation(&mut document, operation, &mut copied).map_err(PatchError::DoesNotApply)?;
    }
    Ok(document)
}

/// One operation. All members but `value` are strings.
#[derive(Clone, Copy)]
struct PatchOperation<'a> {
    fields: Option<&'a Map<String, Value>>,
}

impl<'a> PatchOperation<'a> {
    fn string_member(self, name: &str) -> Result<&'a str, String> {
        let field = self.fields.and_then(|fields| fields.get(name)).and_then(Value::as_str);
        field.ok_or_else(|| format!("operation missing {name} field: missing value"))
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

fn apply_operation(
    document: &mut Value,
    operation: PatchOperation<'_>,
    copied: &mut usize,
) -> Result<(), String> {
    match operation.string_member("op").unwrap_or("unknown") {
        "add" => {
            let value = operation.value().cloned().unwrap_or(Value::Null);
            add(document, operation.string_member("path")?, value)
        }
        "remove" => remove(document, operation.string_member("path")?).map(|_| ()),
        "replace" => replace(document, operation),
        "move" => {
            let value = remove(document, operation.string_member("from")?)?;
            add(document, operation.string_member("path")?, value)
        }
        "copy" => {
            let value = get(document, operation.string_member("from")?)?.unwrap_or(Value::Null);
            *copied += value.to_string().len();
            if *copied > MAX_COPIED_BYTES {
                return Err(format!("copies more than {MAX_COPIED_BYTES} bytes"));
            }
            add(document, operation.string_member("path")?, value)
        }
        "test" => test(document, operation),
        other => Err(format!("Unexpected kind: {other}")),
    }
}

fn replace(document: &mut Value, operation: PatchOperation<'_>) -> Result<(), String> {
    let path = operation.string_member("path")?;
    let value = operation.value();
    if path.is_empty() {
        match value {
            Some(value @ (Value::Object(_) | Value::Array(_))) => *document = value.clone(),
            // Kubernetes accepts this and does nothing.
            Some(_) => {}
            None => return Err("replace operation without a value".into()),
        }
        return Ok(());
    }
    let value = value.cloned().unwrap_or(Value::Null);
    let (parent, key) = parent(document, path)?;
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

fn test(document: &mut Value, operation: PatchOperation<'_>) -> Result<(), String> {
    let path = operation.string_member("path")?;
    let Some(wanted) = operation.value() else {
        return Err("test operation without a value".into());
    };
    let found = if path.is_empty() { Some(document.clone()) } else { get(document, path)? };
    if found.as_ref().unwrap_or(&Value::Null) == wanted {
        Ok(())
    } else {
        Err(format!("testing value {path} failed: test failed"))
    }
}

/// The value at a path; `None` if the object has no such field.
fn get(document: &mut Value, path: &str) -> Result<Option<Value>, String> {
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Object(fields) => Ok(fields.get(&key).cloned()),
        Value::Array(items) => {
            let index = array_index(&key, items.len())?;
            Ok(items.get(index).cloned())
        }
        _ => Err(missing_path_error(path)),
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let index = array_index(&key, items.len() + 1)?;
            items.insert(index, value);
        }
        _ => return Err(missing_path_error(path)),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Result<Value, String> {
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Object(fields) => fields.remove(&key).ok_or_else(|| missing_path_error(path)),
        Value::Array(items) => {
            let index = array_index(&key, items.len())?;
            Ok(items.remove(index))
        }
        _ => Err(missing_path_error(path)),
    }
}

/// Returns the parent of a path and the last segment. Text before the first slash is ignored.
fn parent<'a>(document: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), String> {
    let mut steps: Vec<String> =
        path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    let key = steps.pop().ok_or_else(|| missing_path_error(path))?;
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

/// Parses an index below `size`. A negative one counts from the end.
fn array_index(key: &str, size: usize) -> Result<usize, String> {
    let index: i64 = key.parse().map_err(|_| format!("not an array index: '{key}'"))?;
    let found = if index < 0 {
        usize::try_from(index.unsigned_abs()).ok().and_then(|back| size.checked_sub(back))
    } else {
        usize::try_from(index).ok().filter(|index| *index < size)
    };
    found.ok_or_else(|| format!("Unable to access invalid index: {key}"))
}

fn missing_path_error(path: &str) -> String {
    format!("doc is missing path: \"{path}\": missing value")
}
