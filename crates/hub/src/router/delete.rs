//! Delete, of one object and of many.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::answer::{self, ListMeta};
use super::body;
use super::call::Call;
use super::select::Selection;
use super::{read, write};
use crate::finalize::{self, Step};
use crate::hub::now;
use crate::object::{self, meta};
use crate::registry::Kind;
use crate::request::{Options, Propagation};
use crate::schema::FieldError;
use crate::status::ApiError;
use crate::store::{Expect, Op};

/// How often a delete is tried when others write too.
const TRIES: usize = 10;

/// The options of a delete, from its body and its query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct DeleteOptions {
    propagation: Propagation,
    uid: Option<String>,
    revision: Option<String>,
    dry_run: bool,
}

impl DeleteOptions {
    fn read(options: &Options, sent: &Value) -> Result<Self, ApiError> {
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let policy = match sent["propagationPolicy"].as_str() {
            None | Some("") => None,
            Some(policy) => Some(Propagation::parse(policy).ok_or_else(|| {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                let error = FieldError::not_supported("propagationPolicy", policy, &known);
                ApiError::invalid_named("meta.k8s.io", "DeleteOptions", "", vec![error])
            })?),
        };
        let orphan = (sent["orphanDependents"] == true).then_some(Propagation::Orphan);
        Ok(Self {
            propagation: policy.or(orphan).or(options.propagation).unwrap_or_default(),
            uid: text(&sent["preconditions"]["uid"]),
            revision: text(&sent["preconditions"]["resourceVersion"]),
            dry_run: options.dry_run || sent["dryRun"] == json!(["All"]),
        })
    }

    /// Whether the object is the one that is meant.
    fn fits(&self, object: &Value) -> Result<(), String> {
        let (uid, revision) = (meta(object, "uid"), meta(object, "resourceVersion"));
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

fn options(
    call: &Call<'_>,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<DeleteOptions, ApiError> {
    let sent = if body.is_empty() { Value::Null } else { body::parse(content_type, body)?.value };
    DeleteOptions::read(&call.options, &sent)
}

/// `DELETE .../NAME`
pub(super) async fn delete(
    call: &Call<'_>,
    name: &str,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Response, ApiError> {
    let options = options(call, content_type, body)?;
    if finalize::is_immortal(call.kind, name) {
        let reason = "this namespace may not be deleted";
        return Err(ApiError::forbidden_because(call.kind, name, reason));
    }
    let key = object::key(call.kind, call.namespace(), name);
    match remove(call, &key, name, &options).await? {
        Left::Object(object) => Ok(call.renderer().object(StatusCode::OK, &object)),
        Left::Nothing(object) => Ok(answer::json_answer(StatusCode::OK, &success(call, &object))),
    }
}

/// What a delete leaves.
enum Left {
    /// The object, marked.
    Object(Value),
    /// Nothing; this is what it was.
    Nothing(Value),
}

async fn remove(
    call: &Call<'_>,
    key: &str,
    name: &str,
    options: &DeleteOptions,
) -> Result<Left, ApiError> {
    for _ in 0..TRIES {
        let entry = call.hub.inner.store.get(key);
        let entry = entry.ok_or_else(|| ApiError::not_found(call.kind, name))?;
        let object = call.renderer().value(&entry)?;
        options.fits(&object).map_err(|why| mismatch(call.kind, name, &why))?;
        let expect = Expect::Revision(entry.revision);
        match finalize::delete(call.kind, &object, options.propagation, &now()) {
            Step::Nothing => return Ok(Left::Object(object)),
            Step::Mark(marked) if options.dry_run => return Ok(Left::Object(marked)),
            Step::Remove if options.dry_run => return Ok(Left::Nothing(object)),
            Step::Mark(marked) => {
                if let Some(entry) = write::put(call, key.to_owned(), &marked, expect).await? {
                    return Ok(Left::Object(call.renderer().value(&entry)?));
                }
            }
            Step::Remove => {
                let op = Op::Delete { key: key.to_owned(), expect };
                if write::commit(call, op).await?.is_some() {
                    return Ok(Left::Nothing(object));
                }
            }
        }
    }
    Err(ApiError::modified(call.kind, name))
}

/// 409: not the object that is meant. A real server names the kind here, not the resource.
fn mismatch(kind: &Kind, name: &str, why: &str) -> ApiError {
    let named = Kind { plural: kind.kind.clone(), ..kind.clone() };
    ApiError::conflict(&named, name, why)
}

fn success(call: &Call<'_>, object: &Value) -> Value {
    let mut details = json!({"name": meta(object, "name")});
    if !call.kind.group.is_empty() {
        details["group"] = call.kind.group.as_str().into();
    }
    details["kind"] = call.kind.plural.as_str().into();
    details["uid"] = meta(object, "uid").into();
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Success", "details": details,
    })
}

/// `DELETE` of many.
pub(super) async fn delete_collection(
    call: &Call<'_>,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Response, ApiError> {
    let options = options(call, content_type, body)?;
    let selection = Selection::new(call.kind, call.namespace(), &call.options)?;
    let (entries, meta) = read::select(&call.hub.inner.store, &selection, &call.options)?;
    let mut objects = Vec::with_capacity(entries.len());
    for entry in &entries {
        let object = call.renderer().value(entry)?;
        let name = object::meta(&object, "name");
        if finalize::is_immortal(call.kind, name) {
            continue;
        }
        match remove(call, &entry.key, name, &options).await {
            Ok(Left::Object(object) | Left::Nothing(object)) => objects.push(object),
            // Somebody else was faster: it is gone, as it should be.
            Err(error) if error.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let meta = ListMeta { revision: meta.revision, ..ListMeta::default() };
    let list = call.renderer().list_of(&objects, &meta);
    Ok(call.renderer().write(StatusCode::OK, &list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_from_body_and_query() {
        let query = Options { propagation: Some(Propagation::Orphan), ..Options::default() };
        let read = |sent: Value| DeleteOptions::read(&query, &sent);
        assert_eq!(read(Value::Null).unwrap().propagation, Propagation::Orphan);
        let found = read(json!({
            "propagationPolicy": "Foreground", "dryRun": ["All"],
            "preconditions": {"uid": "a", "resourceVersion": "1"}
        }))
        .unwrap();
        assert_eq!(found.propagation, Propagation::Foreground);
        assert!(found.dry_run);
        assert!(read(json!({"propagationPolicy": "x"})).is_err());
        let object = |uid: &str, revision: &str| json!({"metadata": {"uid": uid, "resourceVersion": revision}});
        assert!(found.fits(&object("a", "1")).is_ok());
        assert!(found.fits(&object("b", "1")).is_err());
        assert!(found.fits(&object("a", "2")).is_err());
    }
}
