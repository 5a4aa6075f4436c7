//! Encodes the events, bookmarks and errors of a watch as JSON lines.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};

use super::content_negotiation::AcceptedFormat;
use super::response::ObjectRenderer;
use super::selection::Selection;
use super::visibility::Redaction;
use crate::kind_registry::ResourceKind;
use crate::object;
use crate::status::ApiError;
use crate::store::{StoreEntry, StoreEvent, StoreEventKind};
use crate::table::IncludeObject;

/// The type of an event, as seen by a watch with a selector.
fn event_type(kind: StoreEventKind, before: bool, now: bool) -> Option<&'static str> {
    match (kind, before, now) {
        (StoreEventKind::Put, false, true) => Some("ADDED"),
        (StoreEventKind::Put, true, true) => Some("MODIFIED"),
        // The object no longer matches the selector.
        (StoreEventKind::Put, true, false) | (StoreEventKind::Delete, true, _) => Some("DELETED"),
        (StoreEventKind::Put, false, false) | (StoreEventKind::Delete, false, _) => None,
    }
}

/// Encodes events as lines.
pub(super) struct WatchEncoder {
    pub(super) kind: Arc<ResourceKind>,
    pub(super) accept: AcceptedFormat,
    pub(super) include: IncludeObject,
    pub(super) selection: Selection,
    pub(super) redact: Option<Redaction>,
    /// Whether the next table includes its column definitions.
    pub(super) needs_table_headers: bool,
}

impl WatchEncoder {
    pub(super) fn encode_event(&mut self, event: &StoreEvent) -> Result<Option<Bytes>, ApiError> {
        if self.selection.is_exact && *event.entry.key != *self.selection.prefix {
            return Ok(None);
        }
        let before = event.previous.as_ref().is_some_and(|entry| self.selection.matches(entry));
        let now = event.kind == StoreEventKind::Put && self.selection.matches(&event.entry);
        let Some(kind) = event_type(event.kind, before, now) else { return Ok(None) };
        // An object that no longer matches is sent in its old state, at the revision of the change.
        match (&event.previous, kind) {
            (Some(previous), "DELETED") => {
                let entry = StoreEntry { revision: event.revision, ..previous.clone() };
                self.encode_entry(kind, &entry).map(Some)
            }
            _ => self.encode_entry(kind, &event.entry).map(Some),
        }
    }

    pub(super) fn encode_entry(
        &mut self,
        kind: &str,
        entry: &StoreEntry,
    ) -> Result<Bytes, ApiError> {
        let renderer = ObjectRenderer {
            kind: &self.kind,
            accept: self.accept,
            include: self.include,
            pretty: false,
            redact: self.redact,
            scale: None,
        };
        let mut out = BytesMut::with_capacity(entry.value.len() + 96);
        out.put_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
        if renderer.is_stored_form() {
            object::write_with_revision(&mut out, &entry.value, entry.revision);
        } else {
            let object = renderer.value(entry)?;
            let shaped = renderer.transform(&object, self.needs_table_headers);
            self.needs_table_headers = false;
            out.put_slice(shaped.unwrap_or(object).to_string().as_bytes());
        }
        out.put_slice(b"}\n");
        Ok(out.freeze())
    }

    pub(super) fn encode_bookmark(&mut self, revision: u64, initial: bool) -> Bytes {
        let mut object = json!({
            "apiVersion": self.kind.api_version(),
            "kind": self.kind.kind,
            "metadata": {"creationTimestamp": null, "resourceVersion": revision.to_string()},
        });
        if initial {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        line(&json!({"type": "BOOKMARK", "object": self.transformed(object)}))
    }

    /// Returns a bookmark in the form of the other events.
    fn transformed(&mut self, object: Value) -> Value {
        let renderer = ObjectRenderer {
            kind: &self.kind,
            accept: self.accept,
            include: self.include,
            pretty: false,
            redact: self.redact,
            scale: None,
        };
        let shaped = renderer.transform(&object, self.needs_table_headers);
        self.needs_table_headers = false;
        shaped.unwrap_or(object)
    }

    pub(super) fn encode_error(&self, error: &ApiError) -> Bytes {
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
    fn an_object_that_stops_matching_is_deleted() {
        use StoreEventKind::{Delete, Put};
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
