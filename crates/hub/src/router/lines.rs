//! The lines of a watch: events, bookmarks and errors as JSON.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};

use super::accept::Accept;
use super::answer::Renderer;
use super::select::Selection;
use crate::object;
use crate::registry::Kind;
use crate::status::ApiError;
use crate::store::{Entry, Event, EventKind};
use crate::table::IncludeObject;

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
pub(super) struct Writer {
    pub(super) kind: Arc<Kind>,
    pub(super) accept: Accept,
    pub(super) include: IncludeObject,
    pub(super) selection: Selection,
    /// Whether the next table needs its headings.
    pub(super) headers: bool,
}

impl Writer {
    pub(super) fn event(&mut self, event: &Event) -> Result<Option<Bytes>, ApiError> {
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

    pub(super) fn line(&mut self, kind: &str, entry: &Entry) -> Result<Bytes, ApiError> {
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

    pub(super) fn bookmark(&mut self, revision: u64, initial: bool) -> Bytes {
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

    pub(super) fn error(&self, error: &ApiError) -> Bytes {
        line(&json!({"type": "ERROR", "object": error.to_status()}))
    }
}

fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
