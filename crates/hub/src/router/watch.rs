//! Handles watch requests: the events of a selection as a stream of JSON lines.
//!
//! A client that does not read blocks nobody: its events stay in the store's history. When the
//! history is compacted past them, the client gets a 410 and lists again.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures::StreamExt as _;
use http::StatusCode;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use super::authentication::Credential;
use super::read::{invalid_option, parse_revision, too_old_error};
use super::resource_request::ResourceRequest;
use super::watch_encoder::WatchEncoder;
use super::watch_rights::WatchRights;
use super::{BufferedRequest, response, upgrade};
use crate::metrics::OpenWatch;
use crate::random;
use crate::request::{QueryOptions, VersionMatch};
use crate::request_shares::{WatchMemory, WatchResponse};
use crate::schema::FieldError;
use crate::status::ApiError;
use crate::store::{self, StoreEntry, StoreEvent};

/// How often a client that allows bookmarks gets one.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Lifetime of a watch without timeoutSeconds: this, up to twice this.
const MIN_TIMEOUT_SECONDS: u64 = 1800;
/// Pending events are merged into chunks of about this size.
const CHUNK_BYTES: usize = 32 * 1024;

/// Where a watch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchStart {
    /// With the current state, then its changes. A bookmark ends the initial state.
    InitialEvents {
        /// Whether the client wants that bookmark.
        marked: bool,
    },
    /// After a revision.
    After(u64),
    /// Now.
    Now,
}

/// Applies the rules of resourceVersion for watches.
fn watch_start(options: &QueryOptions) -> Result<WatchStart, ApiError> {
    let forbidden =
        |text: &str| invalid_option(FieldError::forbidden("resourceVersionMatch", text));
    let given = parse_revision(&options.resource_version)?;
    match (options.initial_events, options.version_match) {
        (None, Some(_)) => Err(forbidden(
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
        (None, None) => Ok(match given {
            None | Some(0) => WatchStart::InitialEvents { marked: false },
            Some(revision) => WatchStart::After(revision),
        }),
        (Some(_), Some(VersionMatch::NotOlderThan)) => Ok(match options.initial_events {
            Some(true) => WatchStart::InitialEvents { marked: options.bookmarks },
            _ => given.filter(|revision| *revision > 0).map_or(WatchStart::Now, WatchStart::After),
        }),
        (Some(_), _) => Err(forbidden(
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )),
    }
}

/// `GET ...?watch=true`
pub(super) fn watch(
    call: &ResourceRequest<'_>,
    request: &BufferedRequest,
) -> Result<Response, ApiError> {
    let upgrade = match upgrade::requested(request) {
        Ok(upgrade) => upgrade,
        Err(refusal) => return Ok(*refusal),
    };
    let open = call.share.as_ref().map(|share| share.open_watch()).transpose()?;
    let rights = WatchRights::of(call);
    let selection = call.selection()?;
    let start = watch_start(&call.options)?;
    let store = &call.hub.inner.store;
    let renderer = call.renderer();
    let writer = WatchEncoder {
        kind: Arc::clone(call.kind),
        accept: renderer.accept,
        include: renderer.include,
        selection,
        redact: renderer.redact,
        needs_table_headers: true,
    };
    let mut waiting = VecDeque::new();
    let (mut initial, mut end_of_initial, mut list_memory) = (Vec::new(), None, None);
    let after = match start {
        WatchStart::Now => store.revision(),
        WatchStart::After(revision) => revision,
        WatchStart::InitialEvents { marked } => {
            let page = store.list(&writer.selection.prefix, None, None);
            initial = page.entries;
            let bytes = size_of_val(initial.as_slice());
            let share = call.share.as_ref();
            list_memory = share.map(|share| share.hold_memory(bytes)).transpose()?;
            end_of_initial = marked.then_some(page.revision);
            page.revision
        }
    };
    let source = match store.watch(&writer.selection.prefix, after) {
        Ok(watch) => Some(watch),
        Err(error @ store::RevisionError::FutureRevision { .. }) => {
            return Err(too_old_error(error, false));
        }
        Err(error) => {
            waiting.push_back(writer.encode_error(&too_old_error(error, false)));
            None
        }
    };
    let length = watch_timeout(call.options.timeout_seconds, random_fraction());
    let length = until_expiry(call.credential.expires(), jiff::Timestamp::now().as_second())
        .map_or(length, |left| left.min(length));
    let stream = WatchStream {
        source,
        encoder: writer,
        initial: initial.into_iter(),
        end_of_initial,
        list_memory,
        memory: WatchMemory::new(call.share.clone()),
        deferred: None,
        pending: waiting,
        bookmarks: call.options.bookmarks,
        next_bookmark: Instant::now() + BOOKMARK_INTERVAL,
        end: Box::pin(tokio::time::sleep(length)),
        stop: call.hub.cancellation_token(),
        credential: call.credential.clone(),
        rights,
        revocations: call.hub.inner.revocations.subscribe(),
        store: store.clone(),
        _open: call.hub.inner.metrics.watch_opened(),
        _share: open,
    };
    let pieces = futures::stream::unfold(stream, |mut stream| async move {
        let piece = stream.next().await?;
        Some((piece, stream))
    });
    let mut response = if let Some(upgrade) = upgrade {
        upgrade.accept(pieces)
    } else {
        let body = Body::from_stream(pieces.map(Ok::<Bytes, Infallible>));
        response::build_response(StatusCode::OK, "application/json", body)
    };
    response.extensions_mut().insert(WatchResponse);
    Ok(response)
}

/// The lifetime of a watch. `fraction` of 256 spreads the ends of watches that start together.
fn watch_timeout(requested: Option<u64>, fraction: u8) -> Duration {
    match requested {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.min(MIN_TIMEOUT_SECONDS * 48)),
        _ => Duration::from_secs(
            MIN_TIMEOUT_SECONDS + MIN_TIMEOUT_SECONDS * u64::from(fraction) / 256,
        ),
    }
}

/// How long a credential still counts.
fn until_expiry(expires: Option<i64>, now: i64) -> Option<Duration> {
    expires.map(|end| Duration::from_secs(u64::try_from(end.saturating_sub(now)).unwrap_or(0)))
}

/// Without random bytes all watches end together, which costs the hub a peak and nothing else.
fn random_fraction() -> u8 {
    random::bytes::<1>().map_or(0, |[byte]| byte)
}

/// The state of an open watch.
struct WatchStream {
    source: Option<store::StoreWatch>,
    encoder: WatchEncoder,
    /// Initial entries that are not sent yet. Entries are shared with the store; encoded lines
    /// would not be.
    initial: std::vec::IntoIter<StoreEntry>,
    /// The revision of the bookmark that ends the initial state.
    end_of_initial: Option<u64>,
    /// What the list of initial entries takes of the share of the user.
    list_memory: Option<OwnedSemaphorePermit>,
    /// What encoded events take of it.
    memory: WatchMemory,
    /// An event that waits for memory.
    deferred: Option<Arc<StoreEvent>>,
    pending: VecDeque<Bytes>,
    bookmarks: bool,
    next_bookmark: Instant,
    end: std::pin::Pin<Box<Sleep>>,
    stop: CancellationToken,
    /// What the client proved its identity with. The watch ends when it does not count any more.
    credential: Credential,
    /// What the user may see. The watch ends when that changes.
    rights: WatchRights,
    revocations: tokio::sync::watch::Receiver<()>,
    store: store::Store,
    /// Counts the watch as open until the stream is dropped.
    _open: OpenWatch,
    /// Its place among the watches of the user.
    _share: Option<OwnedSemaphorePermit>,
}

/// Why the stream woke up.
enum WatchWakeup {
    Event(Result<Arc<StoreEvent>, store::RevisionError>),
    Bookmark,
    Timeout,
    Memory,
    Revocation,
    Stop,
}

impl WatchStream {
    /// The next chunk; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.pending.is_empty() {
                self.memory.release();
            }
            if let Some(event) = self.deferred.take_if(|_| !self.memory.is_missing()) {
                self.push_event(Ok(event));
            }
            self.push_initial();
            if let Some(piece) = self.take_pending() {
                return Some(piece);
            }
            if !self.initial.as_slice().is_empty() && !self.memory.is_missing() {
                tokio::task::yield_now().await;
                continue;
            }
            let source = self.source.as_mut()?;
            let wake = tokio::select! {
                biased;
                () = self.stop.cancelled() => WatchWakeup::Stop,
                Ok(()) = self.revocations.changed() => WatchWakeup::Revocation,
                event = source.next(), if !self.memory.is_missing() => WatchWakeup::Event(event),
                () = self.memory.wait(), if self.memory.is_missing() => WatchWakeup::Memory,
                () = &mut self.end => WatchWakeup::Timeout,
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => WatchWakeup::Bookmark,
            };
            match wake {
                WatchWakeup::Stop => return None,
                WatchWakeup::Revocation => {
                    let now = jiff::Timestamp::now().as_second();
                    if !self.credential.is_valid(&self.store, now) {
                        self.fail(&ApiError::unauthorized());
                    } else if let Err(error) = self.rights.recheck() {
                        self.fail(&error);
                    } else if !self.rights.is_served(&self.encoder.kind) {
                        // As in Kubernetes: the client lists again, and learns what there is now.
                        self.source = None;
                    }
                }
                WatchWakeup::Event(event) => {
                    self.push_event(event);
                    self.push_ready_events();
                }
                WatchWakeup::Memory => {}
                WatchWakeup::Bookmark => self.push_bookmark(),
                WatchWakeup::Timeout => {
                    if self.bookmarks {
                        self.push_bookmark();
                    }
                    self.source = None;
                }
            }
        }
    }

    /// The next chunk of the initial state.
    fn push_initial(&mut self) {
        let mut size: usize = self.pending.iter().map(Bytes::len).sum();
        while size < CHUNK_BYTES {
            let Some(entry) = self.initial.as_slice().first() else { break };
            if !self.encoder.selection.matches(entry) {
                size += entry.value.len(); // decoding it took time too
                self.initial.next();
                continue;
            }
            if !self.memory.reserve(entry.value.len()) {
                return;
            }
            let Some(entry) = self.initial.next() else { break };
            match self.encoder.encode_entry("ADDED", &entry) {
                Ok(line) => {
                    size += line.len();
                    self.pending.push_back(line);
                }
                Err(error) => return self.fail(&error),
            }
        }
        if self.initial.as_slice().is_empty() {
            self.list_memory = None;
        }
        if self.initial.as_slice().is_empty()
            && let Some(revision) = self.end_of_initial.take()
        {
            self.pending.push_back(self.encoder.encode_bookmark(revision, true));
        }
    }

    /// Sends an error and ends the stream.
    fn fail(&mut self, error: &ApiError) {
        self.pending.push_back(self.encoder.encode_error(error));
        (self.initial, self.end_of_initial) = (Vec::new().into_iter(), None);
        (self.source, self.deferred) = (None, None);
    }

    fn push_bookmark(&mut self) {
        let Some(source) = &self.source else { return };
        self.pending.push_back(self.encoder.encode_bookmark(source.observed_revision(), false));
        self.next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
    }

    fn push_event(&mut self, event: Result<Arc<StoreEvent>, store::RevisionError>) {
        let line = match event {
            Ok(event) if !self.memory.reserve(event.entry.value.len()) => {
                self.deferred = Some(event);
                return;
            }
            Ok(event) => self.encoder.encode_event(&event),
            Err(store::RevisionError::Closed) => {
                self.source = None;
                return;
            }
            Err(error) => Err(too_old_error(error, false)),
        };
        match line {
            Ok(line) => self.pending.extend(line),
            Err(error) => self.fail(&error),
        }
    }

    /// Merges events that are already there into the same chunk.
    fn push_ready_events(&mut self) {
        let mut size: usize = self.pending.iter().map(Bytes::len).sum();
        while size < CHUNK_BYTES && !self.memory.is_missing() {
            let Some(source) = self.source.as_mut() else { return };
            let event = match source.try_next() {
                Ok(None) => return,
                Ok(Some(event)) => Ok(event),
                Err(error) => Err(error),
            };
            let before = self.pending.len();
            self.push_event(event);
            size += self.pending.iter().skip(before).map(Bytes::len).sum::<usize>() + 64;
        }
    }

    fn take_pending(&mut self) -> Option<Bytes> {
        let first = self.pending.pop_front()?;
        if self.pending.is_empty() || first.len() >= CHUNK_BYTES {
            return Some(first);
        }
        let mut piece = BytesMut::from(&first[..]);
        while let Some(line) = self.pending.front() {
            if piece.len() + line.len() > CHUNK_BYTES {
                break;
            }
            piece.put_slice(line);
            self.pending.pop_front();
        }
        Some(piece.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request;

    #[test]
    fn where_a_watch_starts() {
        let table = [
            ("", Some(WatchStart::InitialEvents { marked: false })),
            ("resourceVersion=0", Some(WatchStart::InitialEvents { marked: false })),
            ("resourceVersion=5&allowWatchBookmarks=true", Some(WatchStart::After(5))),
            (
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                Some(WatchStart::InitialEvents { marked: true }),
            ),
            ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", Some(WatchStart::Now)),
            ("sendInitialEvents=true", None),
            ("sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=3", None),
            ("resourceVersionMatch=NotOlderThan&resourceVersion=3", None),
            ("resourceVersion=x", None),
        ];
        for (query, expected) in table {
            assert_eq!(
                watch_start(&request::parse_query(query).unwrap()).ok(),
                expected,
                "{query}"
            );
        }
    }

    #[test]
    fn watch_timeouts() {
        assert_eq!(watch_timeout(Some(5), 0), Duration::from_secs(5));
        assert_eq!(watch_timeout(None, 0), Duration::from_secs(1800));
        assert_eq!(watch_timeout(Some(0), 128), Duration::from_secs(2700));
    }
}
