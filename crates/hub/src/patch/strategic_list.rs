//! Lists in a strategic merge patch: sets of scalars, and objects identified by a key.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::PatchError;
use super::merge_rules::{ListMerge, item_rules};
use super::strategic::{DIRECTIVE, go_print, go_type, merge_map, unknown_directive};

/// Merges the items of a patch into a list.
pub(super) fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    how: ListMerge,
) -> Result<Vec<Value>, PatchError> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let type_ = element_type(&[&original, &patch])?;
    if type_ != "map[string]interface {}" {
        let mut merged = original.clone();
        merged.extend(patch.iter().cloned());
        return reorder(deduplicate(merged), &patch, &original, ListMerge::Values);
    }
    let ListMerge::Key(key) = how else {
        return Err(PatchError::Failed("cannot merge lists without merge key for ".to_owned()));
    };
    let (original, patch) = take_directives(original, patch, key)?;
    let merged = merge_objects(original.clone(), &patch, key)?;
    reorder(merged, &patch, &original, how)
}

/// Removes `$patch: delete` and `$patch: replace` items from the patch and applies them.
fn take_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut rest = Vec::with_capacity(patch.len());
    let mut gone: HashMap<String, ()> = HashMap::new();
    let mut replace = false;
    for item in patch {
        let Value::Object(fields) = &item else { continue };
        let Some(directive) = fields.get(DIRECTIVE) else {
            rest.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let value = fields.get(key).ok_or_else(|| missing_key_error(fields, key))?;
                gone.insert(value.to_string(), ());
            }
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(PatchError::Failed(
                    "merging lists cannot yet be specified in the patch".into(),
                ));
            }
            _ => return Err(unknown_directive(directive, fields)),
        }
    }
    if replace {
        return Ok((rest, Vec::new()));
    }
    original
        .retain(|item| item.get(key).is_none_or(|value| !gone.contains_key(&value.to_string())));
    Ok((original, rest))
}

fn merge_objects(
    mut original: Vec<Value>,
    patch: &[Value],
    key: &'static str,
) -> Result<Vec<Value>, PatchError> {
    let mut index = key_positions(&original, ListMerge::Key(key));
    for item in patch {
        let Value::Object(fields) = item else { continue };
        let value = fields.get(key).ok_or_else(|| missing_key_error(fields, key))?;
        let name = value.to_string();
        match index.get(&name).and_then(|at| original.get_mut(*at)) {
            Some(slot) => {
                let old = slot.as_object().cloned().unwrap_or_default();
                *slot = Value::Object(merge_map(old, fields.clone(), item_rules())?);
            }
            None => {
                index.insert(name, original.len());
                original.push(item.clone());
            }
        }
    }
    Ok(original)
}

/// Sorts a merged list: items of the patch in the patch's order, the others in the server's,
/// interleaved by the server's order where it knows both.
pub(super) fn reorder(
    merged: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    how: ListMerge,
) -> Result<Vec<Value>, PatchError> {
    let in_patch = key_positions(patch_order, how);
    let in_server = key_positions(server_order, how);
    let mut named = Vec::new();
    let mut others = Vec::new();
    for item in merged {
        let key = match (key_of(&item, how), how, &item) {
            (Some(key), _, _) => key,
            (None, ListMerge::Key(key), Value::Object(fields)) => {
                return Err(missing_key_error(fields, key));
            }
            (None, _, _) => item.to_string(),
        };
        let server = in_server.get(&key).copied();
        match in_patch.get(&key) {
            Some(at) => named.push((*at, server, item)),
            None => others.push((server.unwrap_or(0), server, item)),
        }
    }
    named.sort_by_key(|(at, ..)| *at);
    others.sort_by_key(|(at, ..)| *at);
    Ok(interleave(others, named))
}

/// The order that kube-apiserver assumes when it sorts: new items take the positions of deleted
/// ones.
pub(super) fn server_order(old: &[Value], new: &[Value], how: ListMerge) -> Vec<Value> {
    let ListMerge::Key(_) = how else { return old.to_vec() };
    let (gone, fresh): (Vec<&Value>, Vec<&Value>) =
        new.iter().partition(|item| item.get(DIRECTIVE).is_some());
    let gone: Vec<Value> = gone.into_iter().cloned().collect();
    let gone = key_positions(&gone, how);
    let is_in = |index: &HashMap<String, usize>, item: &Value| {
        key_of(item, how).is_some_and(|key| index.contains_key(&key))
    };
    let mut order: Vec<Value> = old.iter().filter(|item| !is_in(&gone, item)).cloned().collect();
    let there = key_positions(&order, how);
    order.extend(fresh.into_iter().filter(|item| !is_in(&there, item)).cloned());
    order.truncate(old.len());
    order
}

type OrderedItem = (usize, Option<usize>, Value);

/// Puts each of `left` before the first remaining `right` that follows it in the server's order.
fn interleave(left: Vec<OrderedItem>, right: Vec<OrderedItem>) -> Vec<Value> {
    let mut all = Vec::with_capacity(left.len() + right.len());
    let mut left = left.into_iter().peekable();
    for (_, server, item) in right {
        let before = |mine: &OrderedItem| matches!((mine.1, server), (Some(a), Some(b)) if a < b);
        while let Some((_, _, other)) = left.next_if(before) {
            all.push(other);
        }
        all.push(item);
    }
    all.extend(left.map(|(_, _, item)| item));
    all
}

/// Checks that the items of the patch follow `$setElementOrder`.
pub(super) fn check_order(
    patch: &[Value],
    order: &[Value],
    how: ListMerge,
) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let deleted = |item: &&Value| item.get(DIRECTIVE).is_some_and(|what| what == "delete");
    let mut items = patch.iter().filter(|item| !deleted(item)).peekable();
    let mut ordered = order.iter().peekable();
    while let (Some(item), Some(other)) = (items.peek().copied(), ordered.peek().copied()) {
        if item.get(DIRECTIVE).is_some() {
            items.next();
            continue;
        }
        if let (ListMerge::Key(key), Value::Object(fields)) = (how, item)
            && !fields.contains_key(key)
        {
            return Err(missing_key_error(fields, key));
        }
        if key_of(item, how) == key_of(other, how) {
            items.next();
        }
        ordered.next();
    }
    if items.peek().is_some() {
        return Err(PatchError::Failed(format!(
            "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
            go_print(&Value::Array(patch.to_vec())),
            go_print(&Value::Array(order.to_vec()))
        )));
    }
    Ok(())
}

/// The common type of all items.
pub(super) fn element_type(lists: &[&Vec<Value>]) -> Result<&'static str, PatchError> {
    let mut found: Option<&'static str> = None;
    for item in lists.iter().flat_map(|list| list.iter()) {
        let type_ = go_type(item);
        match found {
            None if item.is_array() => {
                return Err(PatchError::DoesNotApply("lists of lists are not supported".into()));
            }
            None => found = Some(type_),
            Some(first) if first != type_ => {
                let all: Vec<Value> = lists.iter().map(|l| Value::Array((*l).clone())).collect();
                return Err(PatchError::Failed(format!(
                    "list element types are not identical: {}",
                    go_print(&Value::Array(all))
                )));
            }
            Some(_) => {}
        }
    }
    found.ok_or_else(|| PatchError::Failed("no elements in any of the given slices".into()))
}

/// The first position of each key in a list.
pub(super) fn key_positions(list: &[Value], how: ListMerge) -> HashMap<String, usize> {
    let mut index = HashMap::with_capacity(list.len());
    for (at, item) in list.iter().enumerate() {
        if let Some(key) = key_of(item, how) {
            index.entry(key).or_insert(at);
        }
    }
    index
}

fn key_of(item: &Value, how: ListMerge) -> Option<String> {
    match how {
        ListMerge::Key(key) => item.get(key).map(ToString::to_string),
        ListMerge::Values | ListMerge::Replace => Some(item.to_string()),
    }
}

fn deduplicate(items: Vec<Value>) -> Vec<Value> {
    let mut seen = std::collections::HashSet::new();
    items.into_iter().filter(|item| seen.insert(item.to_string())).collect()
}

fn missing_key_error(fields: &Map<String, Value>, key: &str) -> PatchError {
    let map = go_print(&Value::Object(fields.clone()));
    PatchError::Failed(format!("map: {map} does not contain declared merge key: {key}"))
}
