//! Lists as text that is made while the client reads it: one object is decoded at a time.
//!
//! An object takes much more memory decoded than as text. A list of all objects at once, which a client asks for with one
//! request, would take gigabytes. Called by [`super::response`].

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::compression::StreamedBytes;
use super::content_negotiation::ResponseForm;
use super::offload::run_offloaded;
use super::response::{
    ListMeta, ObjectRenderer, build_response, decode_entry, partial_metadata, to_requested_version,
};
use super::visibility::Redaction;
use crate::kind_registry::ResourceKind;
use crate::object;
use crate::request_shares::StreamedMemory;
use crate::status::ApiError;
use crate::store::StoreEntry;
use crate::table::{IncludeObject, table, table_row};

/// Long lists are sent in chunks of about this size.
const CHUNK_BYTES: usize = 64 << 10;

/// How the items of a list are made from stored entries.
pub(super) enum ListItem {
    /// As they are stored.
    Stored,
    /// Decoded, one by one.
    Shaped(ItemShape),
}

/// The form of the items of a list.
pub(super) struct ItemShape {
    kind: Arc<ResourceKind>,
    form: ResponseForm,
    include: IncludeObject,
    redact: Option<Redaction>,
    /// Ages in a table are counted from here.
    now: Timestamp,
}

impl ItemShape {
    pub(super) fn new(renderer: &ObjectRenderer<'_>) -> Self {
        Self {
            kind: Arc::clone(renderer.kind),
            form: renderer.accept.form,
            include: renderer.include,
            redact: renderer.redact,
            now: Timestamp::now(),
        }
    }

    /// Decodes an entry in the API version of the kind, without what the user may not see.
    fn value(&self, entry: &StoreEntry) -> Result<Value, ApiError> {
        let mut object = decode_entry(entry)?;
        to_requested_version(&self.kind, &mut object);
        if let Some(redact) = self.redact {
            redact(&mut object);
        }
        Ok(match self.form {
            ResponseForm::Table => table_row(&self.kind, &object, self.include, self.now),
            ResponseForm::PartialMetadata => partial_metadata(&object),
            ResponseForm::Object | ResponseForm::AggregatedDiscovery => object,
        })
    }

    /// The text before the first item.
    fn head(&self, meta: &ListMeta) -> String {
        match self.form {
            ResponseForm::Table => {
                let mut empty = table(&self.kind, &[], meta.to_value(), self.include, self.now);
                if let Some(fields) = empty.as_object_mut() {
                    fields.remove("rows");
                }
                let text = empty.to_string();
                format!("{},\"rows\":[", text.strip_suffix('}').unwrap_or(&text))
            }
            ResponseForm::PartialMetadata => {
                list_head("meta.k8s.io/v1", "PartialObjectMetadataList", meta)
            }
            ResponseForm::Object | ResponseForm::AggregatedDiscovery => {
                list_head(&self.kind.api_version(), &self.kind.list_kind, meta)
            }
        }
    }
}

fn list_head(version: &str, kind: &str, meta: &ListMeta) -> String {
    let head = json!([version, kind, meta.to_value()]);
    format!(
        "{{\"apiVersion\":{},\"kind\":{},\"metadata\":{},\"items\":[",
        head[0], head[1], head[2]
    )
}

/// Responds with a list whose items are made while it is sent. A slow client holds the shared entries, not a copy of the
/// whole text.
pub(super) fn streamed_list(
    kind: &ResourceKind,
    entries: Vec<StoreEntry>,
    meta: &ListMeta,
    item: ListItem,
) -> Response {
    let head = match &item {
        ListItem::Stored => list_head(&kind.api_version(), &kind.list_kind, meta),
        ListItem::Shaped(shape) => shape.head(meta),
    };
    let size: usize = entries.iter().map(|entry| entry.value.len()).sum();
    let text = ListChunks { head: Some(head), entries: entries.into_iter(), first: true, item };
    if size < CHUNK_BYTES {
        let body = Body::from(text.flatten().collect::<Bytes>());
        return build_response(StatusCode::OK, "application/json", body);
    }
    let memory = StreamedMemory(size_of_val(text.entries.as_slice()) + CHUNK_BYTES);
    let body = Body::from_stream(futures::stream::iter(text.map(Ok::<_, Infallible>)));
    let mut response = build_response(StatusCode::OK, "application/json", body);
    response.extensions_mut().insert(memory);
    response.extensions_mut().insert(StreamedBytes(size));
    response
}

/// The text of a list, in chunks.
struct ListChunks {
    /// The text before the first entry, until it is sent. The closing text is sent with the last
    /// entry.
    head: Option<String>,
    entries: std::vec::IntoIter<StoreEntry>,
    first: bool,
    item: ListItem,
}

impl Iterator for ListChunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let head = self.head.take();
        let more = self.entries.as_slice().first().map_or(0, |entry| entry.value.len());
        if head.is_none() && self.entries.as_slice().is_empty() {
            return None;
        }
        let mut out = BytesMut::with_capacity(CHUNK_BYTES.max(more) + 256);
        out.put_slice(head.unwrap_or_default().as_bytes());
        let mut read = 0;
        for entry in self.entries.by_ref() {
            read += entry.value.len();
            let start = out.len();
            if !self.first {
                out.put_u8(b',');
            }
            if put_item(&mut out, &self.item, &entry) {
                self.first = false;
            } else {
                out.truncate(start);
            }
            if out.len() >= CHUNK_BYTES || read >= 4 * CHUNK_BYTES {
                break;
            }
        }
        if self.entries.as_slice().is_empty() {
            out.put_slice(b"]}\n");
        }
        Some(out.freeze())
    }
}

/// Appends an item. `false` if it cannot be decoded: such entries are known from the start, and not selected.
fn put_item(out: &mut BytesMut, item: &ListItem, entry: &StoreEntry) -> bool {
    let shape = match item {
        ListItem::Stored => {
            object::write_with_revision(out, &entry.value, entry.revision);
            return true;
        }
        ListItem::Shaped(shape) => shape,
    };
    match run_offloaded(entry.value.len(), || shape.value(entry).map(|value| value.to_string())) {
        Ok(text) => out.put_slice(text.as_bytes()),
        Err(error) => {
            tracing::warn!(%error, "a list omits an object");
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::content_negotiation::AcceptedFormat;
    use super::*;

    fn entry(index: u64, size: usize) -> StoreEntry {
        let object = json!({"metadata": {"name": format!("n{index}")}, "data": "x".repeat(size)});
        let value = object::encode(&object).unwrap_or_default();
        StoreEntry { key: format!("/{index}").into(), value, created: 1, revision: index + 2 }
    }

    fn items(entries: &[StoreEntry], item: ListItem) -> (usize, Value) {
        let head = Some("{\"items\":[".to_owned());
        let entries: Vec<StoreEntry> = entries.to_vec();
        let text = ListChunks { head, entries: entries.into_iter(), first: true, item };
        let text: Vec<Bytes> = text.collect();
        let mut all: Value = serde_json::from_slice(&text.concat()).unwrap();
        (text.len(), all["items"].take())
    }

    fn shape(form: ResponseForm, redact: Option<Redaction>) -> ListItem {
        let kinds = crate::built_in::kinds();
        let kind = kinds.into_iter().find(|kind| kind.kind == "ConfigMap").unwrap();
        let kind = Arc::new(kind);
        let accept = AcceptedFormat { form, ..AcceptedFormat::default() };
        let include = IncludeObject::Object;
        let renderer =
            ObjectRenderer { kind: &kind, accept, include, pretty: false, redact, scale: None };
        ListItem::Shaped(ItemShape::new(&renderer))
    }

    #[test]
    fn a_list_is_the_same_in_any_number_of_chunks() {
        for (count, size, pieces) in [(0, 0, 1), (3, 10, 1), (100, 4000, 6), (2, 200_000, 2)] {
            let entries: Vec<StoreEntry> = (0..count).map(|index| entry(index, size)).collect();
            let expected: Vec<Value> =
                entries.iter().map(|entry| decode_entry(entry).unwrap()).collect();
            let expected = Value::from(expected);
            assert_eq!(items(&entries, ListItem::Stored), (pieces, expected.clone()));
            assert_eq!(items(&entries, shape(ResponseForm::Object, None)).1, expected);
            let rows = items(&entries, shape(ResponseForm::Table, None)).1;
            let objects: Vec<Value> =
                rows.as_array().unwrap().iter().map(|row| row["object"].clone()).collect();
            assert_eq!(Value::from(objects), expected);
        }
    }

    #[test]
    fn every_item_is_redacted() {
        let entries: Vec<StoreEntry> = (0..200).map(|index| entry(index, 4000)).collect();
        let redact: Redaction = |object| object["data"] = Value::Null;
        for form in [ResponseForm::Object, ResponseForm::Table, ResponseForm::PartialMetadata] {
            let text = items(&entries, shape(form, Some(redact))).1.to_string();
            assert!(!text.contains("xxx") && text.contains("n199"), "{form:?}");
        }
    }
}
