//! Update and patch.

use std::borrow::Cow;

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::answer;
use super::beside::beside;
use super::body::{self, Sent};
use super::call::{Call, Verb};
use super::check::{check_same_type, check_type, check_uid, parse, set_namespace};
use super::{create, read};
use crate::admit;
use crate::object::{self, Part, meta};
use crate::patch::{self, PatchKind};
use crate::registry::Kind;
use crate::request::FieldValidation;
use crate::schema::FieldError;
use crate::status::ApiError;
use crate::store::{CommitError, Entry, Expect, Op};
use crate::{events, finalize, strategy};

/// How often a write without a resourceVersion is tried when others write too.
const TRIES: usize = 10;

/// The forms of patches that a kind takes.
pub(super) fn patch_types(kind: &Kind) -> &'static [&'static str] {
    if kind.built_in {
        &[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ]
    } else {
        &["application/json-patch+json", "application/merge-patch+json"]
    }
}

/// `PUT`
pub(super) async fn update(
    call: &Call<'_>,
    name: &str,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Response, ApiError> {
    let Sent { value, duplicates } = beside(body.len(), || parse(call.kind, content_type, body))?;
    check_type(call.kind, &value)?;
    let mut value = value;
    set_namespace(call, &mut value)?;
    let sent = meta(&value, "name");
    if sent != name {
        return Err(ApiError::bad_request(if sent.is_empty() {
            format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )
        } else {
            format!("the name of the object ({sent}) does not match the name on the URL ({name})")
        }));
    }
    let key = object::key(call.kind, call.namespace(), name);
    let creates = strategy::creates_on_update(call.kind)
        && call.path.subresource.is_none()
        && meta(&value, "resourceVersion").is_empty();
    if creates && call.hub.inner.store.get(&key).is_none() {
        return create::by_update(call, Sent { value, duplicates }).await;
    }
    change(call, name, &duplicates, false, |_| Ok(value.clone())).await
}

/// `PATCH`
pub(super) async fn patch(
    call: &Call<'_>,
    name: &str,
    kind: PatchKind,
    body: &[u8],
) -> Result<Response, ApiError> {
    let accepted = patch_types(call.kind);
    let rules = patch::strategic_rules(&call.kind.group, &call.kind.kind);
    let rules = rules.filter(|_| call.kind.built_in);
    let supported = match kind {
        PatchKind::Json | PatchKind::Merge => true,
        PatchKind::Strategic => rules.is_some(),
        PatchKind::Apply => false,
    };
    if !supported {
        return Err(ApiError::unsupported_media_type(accepted));
    }
    let Sent { value, duplicates } = beside(body.len(), || body::json(body)).map_err(|error| {
        let reason = error.message.rsplit_once("parse error: ").map_or("", |(_, reason)| reason);
        ApiError::bad_request(format!("error decoding patch: {reason}"))
    })?;
    change(call, name, &duplicates, true, |old| {
        let new =
            patch::apply(kind, old, &value, rules).map_err(|error| error.to_api_error(accepted))?;
        if !new.is_object() {
            return Err(ApiError::bad_request("the patched object is no object"));
        }
        Ok(new)
    })
    .await
}

/// Reads, changes and writes until nobody came between.
async fn change(
    call: &Call<'_>,
    name: &str,
    duplicates: &[String],
    is_patch: bool,
    make: impl Fn(&Value) -> Result<Value, ApiError>,
) -> Result<Response, ApiError> {
    let key = object::key(call.kind, call.namespace(), name);
    for _ in 0..TRIES {
        let entry = call.hub.inner.store.get(&key);
        let entry = entry.ok_or_else(|| ApiError::not_found(call.kind, name))?;
        let size = entry.value.len();
        let old = beside(size, || call.renderer().value(&entry))?;
        let made = beside(size, || make(&old))?;
        // What a patch leaves alone has the revision that was read; it is written again if that
        // has passed, unless the patch itself says which it wants.
        let conditional = !meta(&made, "resourceVersion").is_empty() && !is_patch;
        let (new, warnings) = beside(size, || settle(call, &entry, &old, made, duplicates))?;
        match write(call, &entry, &old, &new).await? {
            Some(mut response) => {
                answer::warn(&mut response, &warnings);
                return Ok(response);
            }
            None if conditional => return Err(ApiError::modified(call.kind, name)),
            None => {}
        }
    }
    Err(ApiError::modified(call.kind, name))
}

/// The object as it would be stored, or what is wrong with it. Pure but for the rules of the hub.
fn settle(
    call: &Call<'_>,
    entry: &Entry,
    old: &Value,
    mut new: Value,
    duplicates: &[String],
) -> Result<(Value, Vec<String>), ApiError> {
    let (kind, name) = (call.kind, meta(old, "name"));
    let subresource = call.path.subresource.as_deref();
    check_same_type(kind, &new)?;
    let admission = call.hub.inner.admission(kind);
    let strict = call.options.field_validation == FieldValidation::Strict;
    let sent = (strict && call.verb == Verb::Patch).then(|| new.clone());
    let unknown = admission.shape(kind, &mut new)?;
    let judged = admit::judge_fields(kind, call.options.field_validation, &unknown, duplicates);
    let warnings = judged.map_err(|error| match &sent {
        Some(sent) => patch::unreadable(sent, reason_of(&error)),
        None => error,
    })?;
    if meta(&new, "name") != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            meta(&new, "name")
        )));
    }
    check_uid(call, old, &new)?;
    let version = read::revision(meta(&new, "resourceVersion"))?;
    if version.is_some_and(|version| version != 0 && version != entry.revision) {
        return Err(ApiError::modified(kind, name));
    }
    if version.is_none_or(|version| version == 0) && !object::allows_unconditional_update(kind) {
        let value = if kind.built_in { json!("") } else { json!(0) };
        let detail = "must be specified for an update";
        let errors = vec![FieldError::invalid("metadata.resourceVersion", value, detail)];
        return Err(ApiError::invalid_named(&kind.group, &kind.plural, name, errors));
    }
    let errors = object::check_update(old, &new);
    if !errors.is_empty() {
        return Err(ApiError::invalid(kind, name, errors));
    }
    let part = if subresource.is_some() { Part::Status } else { Part::Main };
    object::prepare_update(kind, part, old, &mut new);
    strategy::on_update(kind, old, &mut new, subresource);
    admission.complete(&mut new);
    object::settle_generation(kind, old, &mut new);
    strategy::check_machine(kind, &call.who, old, &new)?;
    admission.check(kind, part, &new, Some(old))?;
    admission.settle(&mut new);
    Ok((new, warnings))
}

/// What is wrong, without the object that it is wrong with.
fn reason_of(error: &ApiError) -> &str {
    error.message.split_once(": ").map_or(error.message.as_str(), |(_, reason)| reason)
}

/// Stores the object, or removes it if its last finalizer went; none if somebody else was faster.
async fn write(
    call: &Call<'_>,
    entry: &Entry,
    old: &Value,
    new: &Value,
) -> Result<Option<Response>, ApiError> {
    if object::same(old, new) {
        return call.renderer().entry(StatusCode::OK, entry).map(Some);
    }
    if call.options.dry_run {
        return Ok(Some(call.renderer().object(StatusCode::OK, new)));
    }
    let key = entry.key.to_string();
    if finalize::is_released(call.kind, new) {
        let expect = Expect::Revision(entry.revision);
        let done = commit(call, Op::Delete { key, expect }).await?;
        return Ok(done.map(|_| call.renderer().object(StatusCode::OK, new)));
    }
    match put(call, key, new, Expect::Revision(entry.revision)).await? {
        Some(entry) => call.renderer().entry(StatusCode::OK, &entry).map(Some),
        None => Ok(None),
    }
}

/// Writes an object; none if the expectation does not hold.
pub(super) async fn put(
    call: &Call<'_>,
    key: String,
    object: &Value,
    expect: Expect,
) -> Result<Option<Entry>, ApiError> {
    let mut stored = Cow::Borrowed(object);
    if events::is_other_form(call.kind) {
        events::to_stored(stored.to_mut());
    }
    let value = object::encode(&stored).map_err(|error| ApiError::internal(error.to_string()))?;
    if value.len() > body::MAX_BODY {
        return Err(ApiError::too_large(body::MAX_BODY));
    }
    commit(call, Op::Put { key, value, expect }).await
}

/// One step of the store; none if its expectation does not hold.
pub(super) async fn commit(call: &Call<'_>, op: Op) -> Result<Option<Entry>, ApiError> {
    match call.hub.inner.store.commit(vec![op]).await {
        Ok(done) => Ok(done.entries.into_iter().next().flatten()),
        Err(CommitError::Conflict { .. }) => Ok(None),
        Err(error) => Err(ApiError::internal(chain(&error))),
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
