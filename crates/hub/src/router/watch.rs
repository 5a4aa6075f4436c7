//! Watch: the events of a part of the objects, as a stream of JSON lines.
//!
//! A client that does not read holds up nobody: its events wait in the history of the store, and
//! when that has gone on, the client gets a 410 and lists again.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use super::accept::Accept;
use super::answer::{self, Renderer};
use super::call::Call;
use super::read::{invalid_option, revision, too_old};
use super::select::Selection;
use crate::object;
use crate::registry::Kind;
use crate::request::{Options, VersionMatch};
use crate::schema::FieldError;
use crate::status::ApiError;
use crate::store::{self, Entry, Event, EventKind};
use crate::table::IncludeObject;

/// How often a client is told how far it is, if it wants to know.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long a watch lasts if the client does not say: this, and up to twice this.
const LONG: u64 = 1800;
/// Events are put together into pieces of about this size, if there are many.
const PIECE: usize = 32 * 1024;

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// With everything that is there, then on; a bookmark says where the first part ends.
    State {
        /// Whether the client wants that bookmark.
        marked: bool,
    },
    /// After a revision.
    After(u64),
    /// Now.
    Now,
}

/// The rules of resourceVersion for watches.
fn start(options: &Options) -> Result<Start, ApiError> {
    let forbidden =
        |text: &str| invalid_option(FieldError::forbidden("resourceVersionMatch", text));
    let given = revision(&options.resource_version)?;
    match (options.initial_events, options.version_match) {
        (None, Some(_)) => Err(forbidden(
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
        (None, None) => Ok(match given {
            None | Some(0) => Start::State { marked: false },
            Some(revision) => Start::After(revision),
        }),
        (Some(_), Some(VersionMatch::NotOlderThan)) => Ok(match options.initial_events {
            Some(true) => Start::State { marked: options.bookmarks },
            _ => given.filter(|revision| *revision > 0).map_or(Start::Now, Start::After),
        }),
        (Some(_), _) => Err(forbidden(
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )),
    }
}

/// `GET ...?watch=true`
pub(super) fn watch(call: &Call<'_>) -> Result<Response, ApiError> {
    let selection = Selection::new(call.kind, call.namespace(), &call.options)?;
    let start = start(&call.options)?;
    let store = &call.hub.inner.store;
    let renderer = call.renderer();
    let mut writer = Writer {
        kind: Arc::clone(call.kind),
        accept: renderer.accept,
        include: renderer.include,
        selection,
        headers: true,
    };
    let mut waiting = VecDeque::new();
    let after = match start {
        Start::Now => store.revision(),
        Start::After(revision) => revision,
        Start::State { marked } => {
            let page = store.list(&writer.selection.prefix, None, None);
            for entry in &page.entries {
                if writer.selection.matches(entry)? {
                    waiting.push_back(writer.line("ADDED", entry)?);
                }
            }
            if marked {
                waiting.push_back(writer.bookmark(page.revision, true));
            }
            page.revision
        }
    };
    let source = match store.watch(&writer.selection.prefix, after) {
        Ok(watch) => Some(watch),
        Err(error @ store::TooOld::NotYet { .. }) => return Err(too_old(error, false)),
        Err(error) => {
            waiting.push_back(writer.error(&too_old(error, false)));
            None
        }
    };
    let length = length(call.options.timeout_seconds, rand_fraction());
    let stream = Stream {
        source,
        writer,
        waiting,
        bookmarks: call.options.bookmarks,
        next_bookmark: Instant::now() + BOOKMARK_EVERY,
        end: Box::pin(tokio::time::sleep(length)),
        stop: call.hub.stopping(),
    };
    let body = futures::stream::unfold(stream, |mut stream| async move {
        let piece = stream.next().await?;
        Some((Ok::<Bytes, Infallible>(piece), stream))
    });
    Ok(answer::respond(StatusCode::OK, "application/json", Body::from_stream(body)))
}

/// How long a watch lasts; `fraction` of 256 spreads the ends of those that began together.
fn length(asked: Option<u64>, fraction: u8) -> Duration {
    match asked {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.min(LONG * 48)),
        _ => Duration::from_secs(LONG + LONG * u64::from(fraction) / 256),
    }
}

fn rand_fraction() -> u8 {
    uuid::Uuid::new_v4().as_bytes()[0]
}

/// A watch on its way.
struct Stream {
    source: Option<store::Watch>,
    writer: Writer,
    waiting: VecDeque<Bytes>,
    bookmarks: bool,
    next_bookmark: Instant,
    end: std::pin::Pin<Box<Sleep>>,
    stop: CancellationToken,
}

/// What woke the stream.
enum Wake {
    Event(Result<Arc<Event>, store::TooOld>),
    Bookmark,
    End,
    Stop,
}

impl Stream {
    /// The next piece; none at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.take_waiting() {
                return Some(piece);
            }
            let source = self.source.as_mut()?;
            let wake = tokio::select! {
                biased;
                () = self.stop.cancelled() => Wake::Stop,
                event = source.next() => Wake::Event(event),
                () = &mut self.end => Wake::End,
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => Wake::Bookmark,
            };
            match wake {
                Wake::Stop => return None,
                Wake::Event(event) => {
                    self.take(event);
                    self.take_more();
                }
                Wake::Bookmark => self.mark(),
                Wake::End => {
                    if self.bookmarks {
                        self.mark();
                    }
                    self.source = None;
                }
            }
        }
    }

    fn mark(&mut self) {
        let Some(source) = &self.source else { return };
        self.waiting.push_back(self.writer.bookmark(source.seen(), false));
        self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
    }

    fn take(&mut self, event: Result<Arc<Event>, store::TooOld>) {
        let line = match event {
            Ok(event) => self.writer.event(&event),
            Err(store::TooOld::Closed) => {
                self.source = None;
                return;
            }
            Err(error) => Err(too_old(error, false)),
        };
        match line {
            Ok(line) => self.waiting.extend(line),
            Err(error) => {
                self.waiting.push_back(self.writer.error(&error));
                self.source = None;
            }
        }
    }

    /// What is there already goes into the same piece.
    fn take_more(&mut self) {
        let mut size: usize = self.waiting.iter().map(Bytes::len).sum();
        while size < PIECE {
            let Some(source) = self.source.as_mut() else { return };
            let event = match source.try_next() {
                Ok(None) => return,
                Ok(Some(event)) => Ok(event),
                Err(error) => Err(error),
            };
            let before = self.waiting.len();
            self.take(event);
            size += self.waiting.iter().skip(before).map(Bytes::len).sum::<usize>() + 64;
        }
    }

    fn take_waiting(&mut self) -> Option<Bytes> {
        let first = self.waiting.pop_front()?;
        if self.waiting.is_empty() || first.len() >= PIECE {
            return Some(first);
        }
        let mut piece = BytesMut::from(&first[..]);
        while let Some(line) = self.waiting.front() {
            if piece.len() + line.len() > PIECE {
                break;
            }
            piece.put_slice(line);
            self.waiting.pop_front();
        }
        Some(piece.freeze())
    }
}

/// What an event is to a watch that sees only a part of the objects.
fn event_type(kind: EventKind, before: bool, now: bool) -> Option<&'static str> {
    match (kind, before, now) {
        (EventKind::Put, false, true) => Some("ADDED"),
        (EventKind::Put, true, true) => Some("MODIFIED"),
        // It left the part that is watched.
        (EventKind::Put, true, false) | (EventKind::Delete, true, _) => Some("DELETED"),
        (EventKind::Put, false, false) | (EventKind::Delete, false, _) => None,
    }
}

/// Makes lines of events.
struct Writer {
    kind: Arc<Kind>,
    accept: Accept,
    include: IncludeObject,
    selection: Selection,
    /// Whether the next table needs its headings.
    headers: bool,
}

impl Writer {
    fn event(&mut self, event: &Event) -> Result<Option<Bytes>, ApiError> {
        if self.selection.is_exact && *event.entry.key != *self.selection.prefix {
            return Ok(None);
        }
        let before = match &event.previous {
            Some(entry) => self.selection.matches(entry)?,
            None => false,
        };
        let now = event.kind == EventKind::Put && self.selection.matches(&event.entry)?;
        let Some(kind) = event_type(event.kind, before, now) else { return Ok(None) };
        // What left is shown as it was, at the revision at which it left.
        match (&event.previous, kind) {
            (Some(previous), "DELETED") => {
                let entry = Entry { revision: event.revision, ..previous.clone() };
                self.line(kind, &entry).map(Some)
            }
            _ => self.line(kind, &event.entry).map(Some),
        }
    }

    fn line(&mut self, kind: &str, entry: &Entry) -> Result<Bytes, ApiError> {
        let renderer = Renderer {
            kind: &self.kind,
            accept: self.accept,
            include: self.include,
            pretty: false,
        };
        let mut out = BytesMut::with_capacity(entry.value.len() + 96);
        out.put_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
        if renderer.is_plain() {
            object::write_with_revision(&mut out, &entry.value, entry.revision);
        } else {
            let object = renderer.value(entry)?;
            let shaped = renderer.shape(&object, self.headers);
            self.headers = false;
            out.put_slice(shaped.unwrap_or(object).to_string().as_bytes());
        }
        out.put_slice(b"}\n");
        Ok(out.freeze())
    }

    fn bookmark(&mut self, revision: u64, initial: bool) -> Bytes {
        let mut object = json!({
            "apiVersion": self.kind.api_version(),
            "kind": self.kind.kind,
            "metadata": {"creationTimestamp": null, "resourceVersion": revision.to_string()},
        });
        if initial {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        line(&json!({"type": "BOOKMARK", "object": self.shaped(object)}))
    }

    /// A bookmark in the form of the other events.
    fn shaped(&mut self, object: Value) -> Value {
        let renderer = Renderer {
            kind: &self.kind,
            accept: self.accept,
            include: self.include,
            pretty: false,
        };
        let shaped = renderer.shape(&object, self.headers);
        self.headers = false;
        shaped.unwrap_or(object)
    }

    fn error(&self, error: &ApiError) -> Bytes {
        line(&json!({"type": "ERROR", "object": error.to_status()}))
    }
}

fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request;

    #[test]
    fn where_a_watch_starts() {
        let table = [
            ("", Some(Start::State { marked: false })),
            ("resourceVersion=0", Some(Start::State { marked: false })),
            ("resourceVersion=5&allowWatchBookmarks=true", Some(Start::After(5))),
            (
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                Some(Start::State { marked: true }),
            ),
            ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", Some(Start::Now)),
            ("sendInitialEvents=true", None),
            ("sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=3", None),
            ("resourceVersionMatch=NotOlderThan&resourceVersion=3", None),
            ("resourceVersion=x", None),
        ];
        for (query, expected) in table {
            assert_eq!(start(&request::options(query).unwrap()).ok(), expected, "{query}");
        }
    }

    #[test]
    fn what_leaves_a_selector_is_deleted() {
        use EventKind::{Delete, Put};
        let table = [
            (Put, false, true, Some("ADDED")),
            (Put, true, true, Some("MODIFIED")),
            (Put, true, false, Some("DELETED")),
            (Put, false, false, None),
            (Delete, true, false, Some("DELETED")),
            (Delete, false, false, None),
        ];
        for (kind, before, now, expected) in table {
            assert_eq!(event_type(kind, before, now), expected, "{kind:?} {before} {now}");
        }
    }

    #[test]
    fn lengths() {
        assert_eq!(length(Some(5), 0), Duration::from_secs(5));
        assert_eq!(length(None, 0), Duration::from_secs(1800));
        assert_eq!(length(Some(0), 128), Duration::from_secs(2700));
    }
}
