//! Handles delete requests, of one object and of collections.

use axum::response::Response;
use futures::{StreamExt as _, TryStreamExt as _};
use http::StatusCode;
use serde_json::{Value, json};

use super::resource_request::ResourceRequest;
use super::response::{self, ListMeta};
use super::{definitions, node_identity, read, write};
use crate::body;
use crate::deletion::{self, DeletionStep};
use crate::hub::now_rfc3339;
use crate::kind_registry::ResourceKind;
use crate::object::{self, metadata_str};
use crate::request::{DeletionPropagation, QueryOptions};
use crate::schema::FieldError;
use crate::status::ApiError;
use crate::store::{Precondition, StoreEntry, StoreOp};

/// How many objects of a collection are deleted at a time: their writes share syncs, and others get between them.
const CONCURRENT_DELETES: usize = 256;
/// How often a delete is retried after conflicting writes.
const MAX_ATTEMPTS: usize = 10;

/// The options of a delete, from its body and its query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct DeleteOptions {
    propagation: DeletionPropagation,
    uid: Option<String>,
    revision: Option<String>,
    dry_run: bool,
}

impl DeleteOptions {
    fn parse(options: &QueryOptions, sent: &Value) -> Result<Self, ApiError> {
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let policy = match sent["propagationPolicy"].as_str() {
            None | Some("") => None,
            Some(policy) => Some(DeletionPropagation::parse(policy).ok_or_else(|| {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                let error = FieldError::not_supported("propagationPolicy", policy, &known);
                ApiError::invalid_options("meta.k8s.io", "DeleteOptions", "", vec![error])
            })?),
        };
        let orphan = (sent["orphanDependents"] == true).then_some(DeletionPropagation::Orphan);
        Ok(Self {
            propagation: policy.or(orphan).or(options.propagation).unwrap_or_default(),
            uid: text(&sent["preconditions"]["uid"]),
            revision: text(&sent["preconditions"]["resourceVersion"]),
            dry_run: options.dry_run || sent["dryRun"] == json!(["All"]),
        })
    }

    /// Checks the preconditions.
    fn check_preconditions(&self, object: &Value) -> Result<(), String> {
        let (uid, revision) =
            (metadata_str(object, "uid"), metadata_str(object, "resourceVersion"));
        match (&self.uid, &self.revision) {
            (Some(wanted), _) if wanted != uid => Err(format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            )),
            (_, Some(wanted)) if wanted != revision => Err(format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({revision}). The object might have been modified"
            )),
            _ => Ok(()),
        }
    }
}

fn parse_options(
    call: &ResourceRequest<'_>,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<DeleteOptions, ApiError> {
    let sent = if body.is_empty() { Value::Null } else { body::decode(content_type, body)?.value };
    DeleteOptions::parse(&call.options, &sent)
}

/// `DELETE .../NAME`
pub(super) async fn delete(
    call: &ResourceRequest<'_>,
    name: &str,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Response, ApiError> {
    let options = parse_options(call, content_type, body)?;
    if deletion::is_protected(call.kind, name) {
        let reason = "this namespace may not be deleted";
        return Err(ApiError::forbidden_because(call.kind, name, reason));
    }
    let key = object::storage_key(call.kind, call.namespace(), name);
    match delete_object(call, &key, name, &options).await? {
        DeleteResult::Marked(object) => Ok(call.renderer().object(StatusCode::OK, &object)),
        DeleteResult::Removed(object) => {
            Ok(response::json_response(StatusCode::OK, &success_status(call, &object)))
        }
    }
}

/// The result of a delete.
enum DeleteResult {
    /// The object is marked for deletion.
    Marked(Value),
    /// The object was removed; this is its last state.
    Removed(Value),
}

async fn delete_object(
    call: &ResourceRequest<'_>,
    key: &str,
    name: &str,
    options: &DeleteOptions,
) -> Result<DeleteResult, ApiError> {
    for _ in 0..MAX_ATTEMPTS {
        let entry = call.hub.inner.store.get(key);
        let entry = entry.ok_or_else(|| ApiError::not_found(call.kind, name))?;
        let Ok(object) = call.renderer().value(&entry) else {
            match remove_unreadable(call, &entry, name, options).await? {
                Some(removed) => return Ok(removed),
                None => continue,
            }
        };
        options
            .check_preconditions(&object)
            .map_err(|why| precondition_failed(call.kind, name, &why))?;
        let expect = Precondition::Revision(entry.revision);
        match deletion::decide_deletion(call.kind, &object, options.propagation, &now_rfc3339()) {
            DeletionStep::NoChange => return Ok(DeleteResult::Marked(object)),
            DeletionStep::MarkForDeletion(marked) if options.dry_run => {
                return Ok(DeleteResult::Marked(marked));
            }
            DeletionStep::Remove if options.dry_run => return Ok(DeleteResult::Removed(object)),
            DeletionStep::MarkForDeletion(marked) => {
                if let Some(entry) =
                    write::put_marked_object(call, key.to_owned(), &marked, expect).await?
                {
                    return Ok(DeleteResult::Marked(call.renderer().value(&entry)?));
                }
            }
            DeletionStep::Remove => {
                let mut ops = vec![StoreOp::Delete { key: key.to_owned(), expect }];
                ops.extend(node_identity::on_delete(call, &object));
                if write::commit(call, ops).await?.is_some() {
                    return Ok(DeleteResult::Removed(object));
                }
            }
        }
    }
    Err(ApiError::modified_conflict(call.kind, name))
}

/// Removes an entry that cannot be decoded. Its finalizers and dependents are unknown, and keeping
/// it helps nobody. `None` means a conflict.
async fn remove_unreadable(
    call: &ResourceRequest<'_>,
    entry: &StoreEntry,
    name: &str,
    options: &DeleteOptions,
) -> Result<Option<DeleteResult>, ApiError> {
    if options.uid.is_some() {
        let why = "the stored object cannot be decoded, so its UID is unknown: delete it without a UID precondition";
        return Err(precondition_failed(call.kind, name, why));
    }
    let removed = json!({
        "apiVersion": call.kind.api_version(), "kind": call.kind.kind, "metadata": {"name": name},
    });
    if options.dry_run {
        return Ok(Some(DeleteResult::Removed(removed)));
    }
    let expect = Precondition::Revision(entry.revision);
    let op = StoreOp::Delete { key: entry.key.to_string(), expect };
    let done = write::commit(call, vec![op]).await?;
    if done.is_some() {
        tracing::warn!(key = &*entry.key, "deleted a stored object that could not be read");
    }
    Ok(done.map(|_| DeleteResult::Removed(removed)))
}

/// 409: a precondition failed. kube-apiserver names the kind here, not the resource.
fn precondition_failed(kind: &ResourceKind, name: &str, why: &str) -> ApiError {
    let named = ResourceKind { plural: kind.kind.clone(), ..kind.clone() };
    ApiError::conflict(&named, name, why)
}

fn success_status(call: &ResourceRequest<'_>, object: &Value) -> Value {
    let mut details = json!({"name": metadata_str(object, "name")});
    if !call.kind.group.is_empty() {
        details["group"] = call.kind.group.as_str().into();
    }
    details["kind"] = call.kind.plural.as_str().into();
    details["uid"] = metadata_str(object, "uid").into();
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Success", "details": details,
    })
}

/// The name of the object with a key.
fn name_in(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or_default()
}

/// `DELETE` of a collection.
pub(super) async fn delete_collection(
    call: &ResourceRequest<'_>,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Response, ApiError> {
    let options = parse_options(call, content_type, body)?;
    let selection = call.selection()?;
    let (entries, meta) = read::list_page(&call.hub.inner.store, &selection, &call.options)?;
    let keys = entries.into_iter().map(|entry| entry.key);
    let keys = keys.filter(|key| !deletion::is_protected(call.kind, name_in(key)));
    let keys = keys.filter(|key| !definitions::is_own(call, name_in(key)));
    // One at a time, each would wait for a sync of its own.
    let deletes = futures::stream::iter(keys)
        .map(|key| {
            let options = &options;
            async move {
                match delete_object(call, &key, name_in(&key), options).await {
                    Ok(DeleteResult::Marked(object) | DeleteResult::Removed(object)) => {
                        Ok(Some(object))
                    }
                    // Another client deleted it first; the result is the same.
                    Err(error) if error.code == 404 => Ok(None),
                    Err(error) => Err(error),
                }
            }
        })
        .buffered(CONCURRENT_DELETES)
        .try_filter_map(|object| std::future::ready(Ok(object)))
        .try_collect();
    // In order, so that watchers see it so: tokio's budget would put some of the writes behind later ones.
    let objects: Vec<Value> = tokio::task::unconstrained(deletes).await?;
    // Nobody knows whether a selector would match these.
    if selection.is_everything() && meta.continue_.is_none() {
        let store = &call.hub.inner.store;
        for key in call.hub.inner.unreadable.keys(store, &selection.prefix) {
            delete_object(call, &key, name_in(&key), &options).await?;
        }
    }
    let meta = ListMeta { revision: meta.revision, ..ListMeta::default() };
    let list = call.renderer().list_of(objects, &meta);
    Ok(call.renderer().encode(StatusCode::OK, &list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_from_body_and_query() {
        let query = QueryOptions {
            propagation: Some(DeletionPropagation::Orphan),
            ..QueryOptions::default()
        };
        let read = |sent: Value| DeleteOptions::parse(&query, &sent);
        assert_eq!(read(Value::Null).unwrap().propagation, DeletionPropagation::Orphan);
        let found = read(json!({
            "propagationPolicy": "Foreground", "dryRun": ["All"],
            "preconditions": {"uid": "a", "resourceVersion": "1"}
        }))
        .unwrap();
        assert_eq!(found.propagation, DeletionPropagation::Foreground);
        assert!(found.dry_run);
        assert!(read(json!({"propagationPolicy": "x"})).is_err());
        let object = |uid: &str, revision: &str| json!({"metadata": {"uid": uid, "resourceVersion": revision}});
        assert!(found.check_preconditions(&object("a", "1")).is_ok());
        assert!(found.check_preconditions(&object("b", "1")).is_err());
        assert!(found.check_preconditions(&object("a", "2")).is_err());
    }
}
