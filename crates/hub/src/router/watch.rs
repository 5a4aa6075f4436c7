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
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use super::answer;
use super::call::Call;
use super::lines::Writer;
use super::read::{invalid_option, revision, too_old};
use super::select::Selection;
use crate::figures::Open;
use crate::request::{Options, VersionMatch};
use crate::schema::FieldError;
use crate::status::ApiError;
use crate::store::{self, Entry, Event};

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
    let writer = Writer {
        kind: Arc::clone(call.kind),
        accept: renderer.accept,
        include: renderer.include,
        selection,
        headers: true,
    };
    let mut waiting = VecDeque::new();
    let (mut initial, mut end_of_initial) = (Vec::new(), None);
    let after = match start {
        Start::Now => store.revision(),
        Start::After(revision) => revision,
        Start::State { marked } => {
            let page = store.list(&writer.selection.prefix, None, None);
            initial = page.entries;
            end_of_initial = marked.then_some(page.revision);
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
        initial: initial.into_iter(),
        end_of_initial,
        waiting,
        bookmarks: call.options.bookmarks,
        next_bookmark: Instant::now() + BOOKMARK_EVERY,
        end: Box::pin(tokio::time::sleep(length)),
        stop: call.hub.stopping(),
        _open: call.hub.inner.figures.watch(),
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
    /// What was there at the start and is not told yet: the entries are shared, their lines would
    /// not be.
    initial: std::vec::IntoIter<Entry>,
    /// The revision of the bookmark that ends it.
    end_of_initial: Option<u64>,
    waiting: VecDeque<Bytes>,
    bookmarks: bool,
    next_bookmark: Instant,
    end: std::pin::Pin<Box<Sleep>>,
    stop: CancellationToken,
    /// Counted until the stream is dropped.
    _open: Open,
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
            self.take_initial();
            if let Some(piece) = self.take_waiting() {
                return Some(piece);
            }
            if !self.initial.as_slice().is_empty() {
                tokio::task::yield_now().await;
                continue;
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

    /// A piece of what was there at the start.
    fn take_initial(&mut self) {
        let mut size: usize = self.waiting.iter().map(Bytes::len).sum();
        while size < PIECE {
            let Some(entry) = self.initial.next() else { break };
            let line = match self.writer.selection.matches(&entry) {
                Ok(false) => {
                    size += entry.value.len(); // reading it took its time too
                    continue;
                }
                Ok(true) => self.writer.line("ADDED", &entry),
                Err(error) => Err(error),
            };
            match line {
                Ok(line) => {
                    size += line.len();
                    self.waiting.push_back(line);
                }
                Err(error) => return self.fail(&error),
            }
        }
        if self.initial.as_slice().is_empty()
            && let Some(revision) = self.end_of_initial.take()
        {
            self.waiting.push_back(self.writer.bookmark(revision, true));
        }
    }

    /// Says what is wrong, and ends.
    fn fail(&mut self, error: &ApiError) {
        self.waiting.push_back(self.writer.error(error));
        (self.initial, self.end_of_initial) = (Vec::new().into_iter(), None);
        self.source = None;
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
            Err(error) => self.fail(&error),
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
    fn lengths() {
        assert_eq!(length(Some(5), 0), Duration::from_secs(5));
        assert_eq!(length(None, 0), Duration::from_secs(1800));
        assert_eq!(length(Some(0), 128), Duration::from_secs(2700));
    }
}
