//! Responses: objects, lists, tables and errors in the negotiated form.
//!
//! Called by the handlers. Stored JSON is sent as it is where possible.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::BytesMut;
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::content_negotiation::{AcceptedFormat, ResponseEncoding, ResponseForm};
use super::list_response::{ItemShape, ListItem, streamed_list};
use super::offload::run_offloaded;
use super::visibility::Redaction;
use crate::event_conversion;
use crate::kind_registry::{ResourceKind, ScalePaths};
use crate::object;
use crate::scale;
use crate::status::ApiError;
use crate::store::StoreEntry;
use crate::table::{IncludeObject, table};

/// The largest list that is made as a whole, as stored: one in YAML, or with indentation.
const MAX_WHOLE_LIST_BYTES: usize = 8 << 20;

/// Encodes the objects of one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectRenderer<'a> {
    pub(super) kind: &'a Arc<ResourceKind>,
    pub(super) accept: AcceptedFormat,
    pub(super) include: IncludeObject,
    pub(super) pretty: bool,
    /// Replaces what the user may not see.
    pub(super) redact: Option<Redaction>,
    /// Where the scale of an object is, if that is what is shown of it.
    pub(super) scale: Option<&'a ScalePaths>,
}

/// The metadata of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ListMeta {
    pub(super) revision: u64,
    pub(super) continue_: Option<String>,
    pub(super) remaining: Option<usize>,
}

impl ListMeta {
    pub(super) fn to_value(&self) -> Value {
        let mut meta = json!({"resourceVersion": self.revision.to_string()});
        if let Some(token) = &self.continue_ {
            meta["continue"] = token.as_str().into();
        }
        if let Some(remaining) = self.remaining {
            meta["remainingItemCount"] = remaining.into();
        }
        meta
    }
}

/// A stored entry cannot be decoded.
fn corrupt_entry(entry: &StoreEntry, error: &serde_json::Error) -> ApiError {
    ApiError::internal(format!(
        "the stored object {} cannot be decoded ({error}): delete it, or restore a backup",
        entry.key
    ))
}

/// Decodes the object of an entry.
pub(super) fn decode_entry(entry: &StoreEntry) -> Result<Value, ApiError> {
    object::decode(&entry.value, entry.revision).map_err(|error| corrupt_entry(entry, &error))
}

impl ObjectRenderer<'_> {
    /// Whether stored bytes can be sent unchanged.
    pub(super) fn is_stored_form(&self) -> bool {
        self.accept == AcceptedFormat::default()
            && !self.pretty
            && self.redact.is_none()
            && self.scale.is_none()
            && !event_conversion::is_events_v1(self.kind)
            && self.kind.defined.is_none()
    }

    /// Decodes a stored object in the API version of the kind.
    pub(super) fn value(&self, entry: &StoreEntry) -> Result<Value, ApiError> {
        let mut object = decode_entry(entry)?;
        to_requested_version(self.kind, &mut object);
        if let Some(redact) = self.redact {
            redact(&mut object);
        }
        Ok(object)
    }

    /// Responds with one stored object.
    pub(super) fn entry(&self, code: StatusCode, entry: &StoreEntry) -> Result<Response, ApiError> {
        if !self.is_stored_form() {
            return Ok(self.object(code, &self.value(entry)?));
        }
        let mut out = BytesMut::with_capacity(entry.value.len() + 64);
        object::write_with_revision(&mut out, &entry.value, entry.revision);
        Ok(build_response(code, "application/json", Body::from(out.freeze())))
    }

    /// Responds with one object.
    pub(super) fn object(&self, code: StatusCode, object: &Value) -> Response {
        if let Some(paths) = self.scale {
            if !scale::has_replicas(paths, object) {
                let field = paths.spec_replicas.replace('/', ".");
                let text = format!("the spec replicas field \"{field}\" does not exist");
                return error_response(&ApiError::internal(text));
            }
            return self.encode(code, &scale::scale_of(paths, object));
        }
        let shaped = self.transform(object, true);
        self.encode(code, shaped.as_ref().unwrap_or(object))
    }

    /// The object in the requested form; `None` if that is the object itself.
    pub(super) fn transform(&self, object: &Value, headers: bool) -> Option<Value> {
        match self.accept.form {
            ResponseForm::Object | ResponseForm::AggregatedDiscovery => None,
            ResponseForm::Table => {
                let meta =
                    json!({"resourceVersion": object::metadata_str(object, "resourceVersion")});
                let mut table = table(
                    self.kind,
                    std::slice::from_ref(object),
                    meta,
                    self.include,
                    Timestamp::now(),
                );
                if !headers {
                    table["columnDefinitions"] = Value::Null;
                }
                Some(table)
            }
            ResponseForm::PartialMetadata => Some(partial_metadata(object)),
        }
    }

    /// Responds with a list of stored objects.
    ///
    /// # Errors
    /// The list is too large to be made as a whole, and its form needs that; or an object cannot be decoded.
    pub(super) fn list(
        &self,
        entries: Vec<StoreEntry>,
        meta: &ListMeta,
    ) -> Result<Response, ApiError> {
        if self.is_stored_form() {
            return Ok(streamed_list(self.kind, entries, meta, ListItem::Stored));
        }
        if self.accept.encoding == ResponseEncoding::Json && !self.pretty {
            let item = ListItem::Shaped(ItemShape::new(self));
            return Ok(streamed_list(self.kind, entries, meta, item));
        }
        let size = entries.iter().map(|entry| entry.value.len()).sum();
        if size > MAX_WHOLE_LIST_BYTES {
            return Err(ApiError::list_too_large(MAX_WHOLE_LIST_BYTES));
        }
        run_offloaded(size, || self.transformed_list(&entries, meta))
    }

    fn transformed_list(
        &self,
        entries: &[StoreEntry],
        meta: &ListMeta,
    ) -> Result<Response, ApiError> {
        let objects =
            entries.iter().map(|entry| self.value(entry)).collect::<Result<Vec<_>, _>>()?;
        let list = match self.accept.form {
            ResponseForm::Table => {
                table(self.kind, &objects, meta.to_value(), self.include, Timestamp::now())
            }
            ResponseForm::PartialMetadata => json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": meta.to_value(),
                "items": objects.iter().map(partial_metadata).collect::<Vec<_>>(),
            }),
            ResponseForm::Object | ResponseForm::AggregatedDiscovery => self.list_of(objects, meta),
        };
        Ok(self.encode(StatusCode::OK, &list))
    }

    /// Encodes a list as one value.
    pub(super) fn list_of(&self, objects: Vec<Value>, meta: &ListMeta) -> Value {
        let mut list = json!({
            "apiVersion": self.kind.api_version(),
            "kind": self.kind.list_kind,
            "metadata": meta.to_value(),
        });
        list["items"] = objects.into(); // without a copy of each
        list
    }

    /// Responds with a value in the negotiated encoding.
    pub(super) fn encode(&self, code: StatusCode, value: &Value) -> Response {
        write(code, value, self.accept.encoding, self.pretty)
    }
}

/// Gives a stored object the form of the API version of a kind.
pub(super) fn to_requested_version(kind: &ResourceKind, object: &mut Value) {
    if event_conversion::is_events_v1(kind) {
        event_conversion::to_events_v1(object);
    }
    if let Some(defined) = &kind.defined {
        defined.convert(object, &kind.group, &kind.version);
    }
}

/// Returns only the metadata of an object.
pub(super) fn partial_metadata(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| Value::Object(Map::new())),
    })
}

pub(super) fn build_response(code: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

pub(super) fn write(
    code: StatusCode,
    value: &Value,
    encoding: ResponseEncoding,
    pretty: bool,
) -> Response {
    match encoding {
        ResponseEncoding::Yaml => match serde_saphyr::to_string(value) {
            Ok(text) => build_response(code, "application/yaml", Body::from(text)),
            Err(error) => self::error_response(&ApiError::internal(error.to_string())),
        },
        ResponseEncoding::Json => {
            let text = if pretty { format!("{value:#}\n") } else { format!("{value}\n") };
            build_response(code, "application/json", Body::from(text))
        }
    }
}

pub(super) fn json_response(code: StatusCode, value: &Value) -> Response {
    write(code, value, ResponseEncoding::Json, false)
}

/// Responds with the `Status` of an error.
pub(super) fn error_response(error: &ApiError) -> Response {
    let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(code, &error.to_status());
    if error.code == 429 || error.code == 503 {
        let details = error.details.as_ref();
        let seconds = details.and_then(|details| details["retryAfterSeconds"].as_u64());
        response.headers_mut().insert(header::RETRY_AFTER, seconds.unwrap_or(1).into());
    }
    response
}

/// Adds `Warning` headers: `299 - "text"`.
pub(super) fn add_warnings(response: &mut Response, warnings: &[String]) {
    for text in warnings.iter().take(16) {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        let text: String = text.chars().filter(|c| !c.is_control()).take(512).collect();
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{text}\"").as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}
