//! Compresses large responses, as kube-apiserver does: reads of more than 128 KiB, at level 1, for clients that accept
//! gzip, and never watches.
//!
//! A body is compressed while its client reads it. What that takes is the state of the encoder, which counts as memory of the
//! response, and processor time, of which each machine and token has a budget ([`crate::compression_budget`]). Over it the
//! text is sent as it is. Called by the router.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use hyper::body::{Body as _, Frame};
use std::io::Write as _;

use crate::auth::UserInfo;
use crate::hub::Hub;
use crate::request_shares::{StreamedMemory, WatchResponse};

/// Shorter bodies are sent as they are; the limit of kube-apiserver.
const MIN_BYTES: usize = 128 << 10;
/// What an encoder needs, with its buffers.
const ENCODER_BYTES: usize = 512 << 10;
/// A body is compressed in pieces of this size.
const PIECE_BYTES: usize = 32 << 10;
/// So many pieces are compressed before other tasks of the thread may run: less than ten milliseconds.
const PIECES_PER_POLL: usize = 16;

/// In the extensions of a response: the estimated size of a body that is made while it is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamedBytes(pub(super) usize);

/// Compresses a response if the client accepts that, it is large enough, and the user has not used up the budget.
pub(super) fn compress_if_accepted(
    hub: &Hub,
    user: &UserInfo,
    method: &Method,
    headers: &HeaderMap,
    response: Response,
) -> Response {
    if *method != Method::GET || !accepts_gzip(headers) {
        return response;
    }
    let Some(size) = compressible_size(&response) else { return response };
    if !user.is_privileged() && !hub.inner.compression.lock().take(&user.user, size) {
        return response;
    }
    compress(response)
}

/// The size of a response that may be compressed.
fn compressible_size(response: &Response) -> Option<usize> {
    let headers = response.headers();
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default();
    let is_document = ["application/json", "application/yaml"]
        .iter()
        .any(|kind| content_type.split(';').next() == Some(kind));
    // An entity tag stands for the exact bytes.
    let is_plain = !headers.contains_key(header::CONTENT_ENCODING)
        && !headers.contains_key(header::ETAG)
        && response.extensions().get::<WatchResponse>().is_none();
    if !is_document || !is_plain || response.status() != StatusCode::OK {
        return None;
    }
    let streamed = response.extensions().get::<StreamedBytes>().map(|size| size.0);
    let whole = response.body().size_hint().exact();
    let size = streamed.or_else(|| whole.and_then(|size| usize::try_from(size).ok()))?;
    (size > MIN_BYTES).then_some(size)
}

fn compress(response: Response) -> Response {
    let held = response.extensions().get::<StreamedMemory>().map(|memory| memory.0);
    let whole = response.body().size_hint().exact();
    let whole = whole.and_then(|size| usize::try_from(size).ok());
    let memory = held.or(whole).unwrap_or(0) + ENCODER_BYTES;
    let mut response = response.map(|inner| {
        let encoder = GzEncoder::new(Vec::new(), Compression::fast());
        Body::new(GzipBody { inner, rest: Bytes::new(), encoder: Some(encoder) })
    });
    response.extensions_mut().insert(StreamedMemory(memory));
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

/// Whether the client accepts gzip.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(',')).any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let is_gzip = parts.next() == Some("gzip");
        let quality = parts.find_map(|part| part.strip_prefix("q="));
        is_gzip && quality.is_none_or(|text| text.parse::<f32>().is_ok_and(|quality| quality > 0.0))
    })
}

/// A body that is compressed while it is read.
struct GzipBody {
    inner: Body,
    /// What is left of the last frame.
    rest: Bytes,
    /// Nothing once the end is sent.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl hyper::body::Body for GzipBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        for _ in 0..PIECES_PER_POLL {
            let Some(encoder) = &mut this.encoder else { return Poll::Ready(None) };
            if this.rest.is_empty() {
                match ready!(Pin::new(&mut this.inner).poll_frame(context)) {
                    // JSON has no trailers.
                    Some(Ok(frame)) => this.rest = frame.into_data().unwrap_or_default(),
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => return Poll::Ready(this.end()),
                }
            }
            let length = this.rest.len().min(PIECE_BYTES);
            if let Err(error) = encoder.write_all(&this.rest.split_to(length)) {
                return Poll::Ready(Some(Err(axum::Error::new(error))));
            }
            if encoder.get_ref().len() >= PIECE_BYTES {
                let made = std::mem::take(encoder.get_mut());
                return Poll::Ready(Some(Ok(Frame::data(made.into()))));
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.encoder.is_none()
    }
}

impl GzipBody {
    fn end(&mut self) -> Option<Result<Frame<Bytes>, axum::Error>> {
        let last = self.encoder.take()?.finish();
        Some(last.map(|last| Frame::data(last.into())).map_err(axum::Error::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::response::build_response;
    use flate2::read::GzDecoder;
    use http_body_util::BodyExt as _;
    use std::io::Read as _;

    fn unpack(bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        GzDecoder::new(bytes).read_to_end(&mut text).unwrap();
        text
    }

    fn json(body: Body) -> Response {
        build_response(StatusCode::OK, "application/json", body)
    }

    #[tokio::test]
    async fn any_body_is_the_same_after_unpacking() {
        let random: Vec<u8> =
            (0..900_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for text in [vec![], b"x".to_vec(), vec![b'a'; 5 << 20], random] {
            let chunks: Vec<_> = text.chunks(70_001).map(Bytes::copy_from_slice).collect();
            let stream = futures::stream::iter(chunks.into_iter().map(Ok::<_, axum::Error>));
            for body in [Body::from(text.clone()), Body::from_stream(stream)] {
                let mut body = compress(json(body)).into_body();
                let mut packed = Vec::new();
                while let Some(frame) = body.frame().await {
                    let data = frame.unwrap().into_data().unwrap();
                    assert!(data.len() <= 4 * PIECE_BYTES, "{}", data.len());
                    packed.extend_from_slice(&data);
                }
                assert!(unpack(&packed) == text && packed.len() < text.len() + 1000);
            }
        }
    }

    #[tokio::test]
    async fn an_error_of_the_body_is_passed_on() {
        let failed = [Ok(Bytes::from_static(b"x")), Err(std::io::Error::other("broken"))];
        let body = Body::from_stream(futures::stream::iter(failed));
        assert!(compress(json(body)).into_body().collect().await.is_err());
    }

    #[test]
    fn large_documents_are_compressed() {
        let large = || Body::from(vec![b' '; MIN_BYTES + 1]);
        let size = |response: &Response| compressible_size(response);
        assert_eq!(size(&json(large())), Some(MIN_BYTES + 1));
        assert_eq!(
            size(&build_response(StatusCode::OK, "application/yaml", large())),
            Some(131_073)
        );
        assert_eq!(size(&json(Body::from(vec![b' '; MIN_BYTES]))), None);
        assert_eq!(
            size(&build_response(StatusCode::OK, "application/octet-stream", large())),
            None
        );
        assert_eq!(size(&build_response(StatusCode::CONFLICT, "application/json", large())), None);
        let mut watch = json(large());
        watch.extensions_mut().insert(WatchResponse);
        assert_eq!(size(&watch), None);
        let mut tagged = json(large());
        tagged.headers_mut().insert(header::ETAG, HeaderValue::from_static("\"a\""));
        assert_eq!(size(&tagged), None);
        let mut streamed =
            json(Body::from_stream(futures::stream::empty::<Result<Bytes, axum::Error>>()));
        assert_eq!(size(&streamed), None);
        streamed.extensions_mut().insert(StreamedBytes(MIN_BYTES + 1));
        streamed.extensions_mut().insert(StreamedMemory(1000));
        assert_eq!(size(&streamed), Some(MIN_BYTES + 1));
        let held = compress(streamed).extensions().get::<StreamedMemory>().map(|memory| memory.0);
        assert_eq!(held, Some(1000 + ENCODER_BYTES));
    }

    #[test]
    fn gzip_is_used_only_if_accepted() {
        for (text, expected) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip;q=x", false),
            ("identity", false),
            ("x-gzip", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(text));
            assert_eq!(accepts_gzip(&headers), expected, "{text}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
