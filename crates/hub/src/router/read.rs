//! Handles get and list requests, including pagination and resourceVersion semantics.

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::ResourceRequest;
use super::offload::run_offloaded;
use super::response::ListMeta;
use super::selection::Selection;
use crate::object;
use crate::request::{QueryOptions, VersionMatch};
use crate::schema::FieldError;
use crate::status::ApiError;
use crate::store::{RevisionError, Store, StoreEntry, StorePage};

/// A continue token: the last key of the previous page and the revision of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ContinueToken {
    v: String,
    rv: u64,
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

impl ContinueToken {
    fn encode(revision: u64, start: &str) -> String {
        let token = Self { v: TOKEN_VERSION.to_owned(), rv: revision, start: start.to_owned() };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    fn decode(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let token: Self = serde_json::from_slice(&bytes).ok()?;
        (token.v == TOKEN_VERSION && token.rv > 0).then_some(token)
    }
}

/// Which state a list returns.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ListView {
    /// The current state.
    Now,
    /// The current state, which must be at least at this revision.
    NotOlderThan(u64),
    /// The state at this revision, after this key.
    At(u64, Option<String>),
}

/// Applies the rules of resourceVersion, resourceVersionMatch, limit and continue.
fn list_view(options: &QueryOptions) -> Result<ListView, ApiError> {
    let given = parse_revision(&options.resource_version)?;
    if !options.continue_token.is_empty() {
        let token = ContinueToken::decode(&options.continue_token).ok_or_else(|| {
            ApiError::bad_request("invalid continue token: continue key is not valid")
        })?;
        if given.is_some_and(|revision| revision > 0) {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        if options.version_match.is_some() {
            return Err(invalid_option(FieldError::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden when continue is provided",
            )));
        }
        return Ok(ListView::At(token.rv, Some(token.start)));
    }
    match (options.version_match, given) {
        (Some(_), None) => Err(invalid_option(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ))),
        (Some(VersionMatch::Exact), Some(0)) => Err(invalid_option(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ))),
        (Some(VersionMatch::Exact), Some(revision)) => Ok(ListView::At(revision, None)),
        // A limit with a resourceVersion has always meant the first page of exactly that revision.
        (None, Some(revision)) if revision > 0 && options.limit > 0 => {
            Ok(ListView::At(revision, None))
        }
        (_, Some(0) | None) => Ok(ListView::Now),
        (_, Some(revision)) => Ok(ListView::NotOlderThan(revision)),
    }
}

/// Parses a resourceVersion; `None` if it is empty.
pub(super) fn parse_revision(text: &str) -> Result<Option<u64>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        let detail = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        ApiError::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: {detail}"
        ))
    })
}

/// 422: a list option is invalid.
pub(super) fn invalid_option(error: FieldError) -> ApiError {
    ApiError::invalid_options("meta.k8s.io", "ListOptions", "", vec![error])
}

/// 410 or 504: the revision cannot be served.
pub(super) fn too_old_error(error: RevisionError, continued: bool) -> ApiError {
    match error {
        RevisionError::Compacted { .. } if continued => ApiError::gone(
            "The provided continue parameter is too old to display a consistent list result. You \
             can start a new list without the continue parameter, or use the continue token in \
             this response to retrieve the remainder of the results. Continuing with the provided \
             token results in an inconsistent list - objects that were created, modified, or \
             deleted between the time the first chunk was returned and now may show up in the list.",
        ),
        RevisionError::Compacted { requested, oldest } => {
            ApiError::gone(format!("too old resource version: {requested} ({oldest})"))
        }
        RevisionError::FutureRevision { requested, current } => {
            ApiError::future_revision(requested, current)
        }
        RevisionError::Closed => {
            ApiError::internal("the store is closed because the server is stopping")
        }
    }
}

/// Waits briefly for a future revision: the client may have read it from another server.
async fn wait_for_revision(call: &ResourceRequest<'_>, requested: u64) -> Result<(), ApiError> {
    let store = &call.hub.inner.store;
    let reached = async {
        while store.revision() < requested {
            let Ok(mut changes) = store.watch("", store.revision()) else { continue };
            if changes.next().await.is_err() {
                break;
            }
        }
    };
    if store.revision() < requested {
        let _ = tokio::time::timeout(call.hub.inner.revision_wait, reached).await;
    }
    let current = store.revision();
    if current < requested { Err(ApiError::future_revision(requested, current)) } else { Ok(()) }
}

/// `GET .../NAME`
pub(super) async fn get(call: &ResourceRequest<'_>, name: &str) -> Result<Response, ApiError> {
    let store = &call.hub.inner.store;
    if let Some(requested) = parse_revision(&call.options.resource_version)? {
        wait_for_revision(call, requested).await?;
    }
    let key = object::storage_key(call.kind, call.namespace(), name);
    let entry = store.get(&key).ok_or_else(|| ApiError::not_found(call.kind, name))?;
    if call.hub.inner.unreadable.contains(&entry) {
        call.renderer().value(&entry)?; // names the object and the remedy
    }
    call.renderer().entry(StatusCode::OK, &entry)
}

/// `GET` of a collection.
pub(super) async fn list(call: &ResourceRequest<'_>) -> Result<Response, ApiError> {
    let selection = call.selection()?;
    if let ListView::NotOlderThan(requested) = list_view(&call.options)? {
        wait_for_revision(call, requested).await?;
    }
    let (entries, meta) = list_page(&call.hub.inner.store, &selection, &call.options)?;
    call.renderer().list(entries, &meta)
}

/// Returns the entries of one page.
pub(super) fn list_page(
    store: &Store,
    selection: &Selection,
    options: &QueryOptions,
) -> Result<(Vec<StoreEntry>, ListMeta), ApiError> {
    let (mut at, mut after) = match list_view(options)? {
        ListView::NotOlderThan(requested) if requested > store.revision() => {
            return Err(ApiError::future_revision(requested, store.revision()));
        }
        ListView::Now | ListView::NotOlderThan(_) => (None, None),
        ListView::At(revision, after) => (Some(revision), after),
    };
    let limit = (options.limit > 0).then_some(options.limit);
    let chunk = if selection.is_everything() { limit } else { limit.map(|limit| limit.max(500)) };
    let fetch = |at: Option<u64>, after: Option<&str>| -> Result<StorePage, ApiError> {
        match at {
            None => Ok(store.list(&selection.prefix, after, chunk)),
            Some(revision) => store
                .list_at(revision, &selection.prefix, after, chunk)
                .map_err(|error| too_old_error(error, !options.continue_token.is_empty())),
        }
    };
    let mut found: Vec<StoreEntry> = Vec::new();
    loop {
        let page = fetch(at, after.as_deref())?;
        let meta = ListMeta { revision: page.revision, ..ListMeta::default() };
        let count = page.entries.len();
        // Looking into each entry takes a while, and others share the thread.
        let size = page.entries.iter().map(|entry| entry.value.len()).sum();
        let size = if selection.is_everything() { 0 } else { size };
        let selected: Vec<bool> = run_offloaded(size, || {
            page.entries.iter().map(|entry| selection.matches(entry)).collect()
        });
        for (index, (entry, selected)) in page.entries.into_iter().zip(selected).enumerate() {
            if limit.is_some_and(|limit| found.len() >= limit) {
                return Ok((found, with_continue_token(meta, after.as_deref(), None)));
            }
            after = Some(entry.key.to_string());
            if selected {
                found.push(entry);
            }
            let full = limit.is_some_and(|limit| found.len() >= limit);
            let left = count - index - 1 + page.remaining;
            if full && left > 0 && selection.is_everything() {
                return Ok((found, with_continue_token(meta, after.as_deref(), Some(left))));
            }
        }
        if page.remaining == 0 {
            return Ok((found, meta));
        }
        at = Some(page.revision);
    }
}

/// Returns the list metadata of a page that is not the last.
fn with_continue_token(
    mut meta: ListMeta,
    last: Option<&str>,
    remaining: Option<usize>,
) -> ListMeta {
    meta.continue_ = last.map(|last| ContinueToken::encode(meta.revision, last));
    meta.remaining = remaining;
    meta
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request;

    #[test]
    fn list_views() {
        let token = ContinueToken::encode(7, "/a/b");
        let table = [
            (String::new(), Some(ListView::Now)),
            ("resourceVersion=0".into(), Some(ListView::Now)),
            ("resourceVersion=5".into(), Some(ListView::NotOlderThan(5))),
            ("resourceVersion=5&limit=2".into(), Some(ListView::At(5, None))),
            ("resourceVersion=5&resourceVersionMatch=Exact".into(), Some(ListView::At(5, None))),
            (
                "resourceVersion=5&resourceVersionMatch=NotOlderThan".into(),
                Some(ListView::NotOlderThan(5)),
            ),
            ("resourceVersionMatch=Exact".into(), None),
            ("resourceVersion=0&resourceVersionMatch=Exact".into(), None),
            ("resourceVersion=x".into(), None),
            (format!("continue={token}"), Some(ListView::At(7, Some("/a/b".into())))),
            (format!("continue={token}&resourceVersion=3"), None),
            ("continue=nonsense".into(), None),
        ];
        for (query, expected) in table {
            let found = list_view(&request::parse_query(&query).unwrap());
            assert_eq!(found.ok(), expected, "{query}");
        }
    }
}
