//! Asks the API server for gzip, and bounds what a response may take, packed and unpacked.
//!
//! The API server is trusted with the machine's config, but not with the memory of its processes: a response that never ends,
//! or a few kilobytes that unpack to gigabytes, must be an error of one request. Called by `connect` and by all who have a
//! kubeconfig of their own.

use std::future::Future;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::{HeaderValue, Method, Request, Response, header};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::layer::layer_fn;
use tower::{BoxError, Service};

/// Packed bytes are unpacked in pieces of this size, each to at most about a thousand times as much.
const PIECE_BYTES: usize = 2 << 10;

/// The largest response, and the largest event of a watch. In the extensions of a request it counts instead of that of the
/// client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseLimit(u64);

impl ResponseLimit {
    /// For what runs on a machine: it reads single objects and the pools. An object has at most 3 MiB.
    pub const MACHINE: Self = Self(32 << 20);
    /// For what reads lists of all objects at once.
    pub const LISTS: Self = Self(1 << 30);

    /// For a response of which the size is known, such as a binary, and that is not held in memory.
    #[must_use]
    pub const fn of_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// A client that asks for gzip and refuses responses that are larger than a limit.
///
/// # Errors
/// The configuration is not usable.
pub fn bounded_client(config: Config, limit: ResponseLimit) -> Result<Client, kube::Error> {
    let builder = ClientBuilder::try_from(config)?;
    Ok(builder.with_layer(&layer_fn(move |inner| BoundedResponses { inner, limit })).build())
}

/// A response, or an event of a watch, is larger than the limit.
#[derive(Debug, thiserror::Error)]
#[error("the API server sent more than {} MiB, the limit of one response: check the server", .0 >> 20)]
struct ResponseTooLarge(u64);

/// Sends requests through another service.
struct BoundedResponses<S> {
    inner: S,
    limit: ResponseLimit,
}

impl<S, B> Service<Request<Body>> for BoundedResponses<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<BoundedBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let is_watch = is_watch(request.uri().query().unwrap_or_default());
        if request.method() == Method::GET && !is_watch {
            let asked = request.headers_mut().entry(header::ACCEPT_ENCODING);
            asked.or_insert(HeaderValue::from_static("gzip"));
        }
        let limit = request.extensions().get().copied().unwrap_or(self.limit);
        let response = self.inner.call(request);
        Box::pin(async move { Ok(bound(response.await?, limit, is_watch)) })
    }
}

fn is_watch(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair, "watch" | "watch=true" | "watch=1"))
}

fn bound<B>(
    mut response: Response<B>,
    limit: ResponseLimit,
    is_watch: bool,
) -> Response<BoundedBody<B>> {
    let headers = response.headers_mut();
    let is_packed = headers.get(header::CONTENT_ENCODING).is_some_and(|name| name == "gzip");
    if is_packed {
        headers.remove(header::CONTENT_ENCODING);
        headers.remove(header::CONTENT_LENGTH);
    }
    response.map(|inner| BoundedBody {
        inner,
        packed: Bytes::new(),
        decoder: is_packed.then(|| MultiGzDecoder::new(Vec::new())),
        arrived: 0,
        received: 0,
        limit: limit.0,
        is_watch,
    })
}

/// The body of a response, unpacked, with at most so many bytes.
struct BoundedBody<B> {
    inner: B,
    /// What is not unpacked yet.
    packed: Bytes,
    decoder: Option<MultiGzDecoder<Vec<u8>>>,
    /// Packed bytes, which may unpack to nothing.
    arrived: u64,
    /// Unpacked bytes; of a watch, those of the line that has begun.
    received: u64,
    limit: u64,
    is_watch: bool,
}

impl<B> BoundedBody<B> {
    fn count(&mut self, bytes: &[u8]) -> Result<(), BoxError> {
        if self.is_watch {
            for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
                self.received = if index == 0 { self.received } else { 0 } + line.len() as u64;
                self.check()?;
            }
            return Ok(());
        }
        self.received += bytes.len() as u64;
        self.check()
    }

    fn check(&self) -> Result<(), BoxError> {
        if self.received > self.limit { Err(ResponseTooLarge(self.limit).into()) } else { Ok(()) }
    }

    /// Unpacks a little of what has arrived.
    fn unpack(&mut self) -> io::Result<Bytes> {
        let Some(decoder) = &mut self.decoder else { return Ok(std::mem::take(&mut self.packed)) };
        let length = self.packed.len().min(PIECE_BYTES);
        decoder.write_all(&self.packed.split_to(length))?;
        decoder.flush()?;
        Ok(std::mem::take(decoder.get_mut()).into())
    }

    /// What is left when everything has arrived. An error if it is cut off.
    fn end(&mut self) -> io::Result<Bytes> {
        let decoder = self.decoder.take();
        decoder.map_or(Ok(Bytes::new()), |decoder| decoder.finish().map(Bytes::from))
    }
}

impl<B> HttpBody for BoundedBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            let bytes = if this.packed.is_empty() {
                match ready!(Pin::new(&mut this.inner).poll_frame(context)) {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => {
                            this.arrived += data.len() as u64;
                            if this.arrived > this.limit && !this.is_watch {
                                let error = ResponseTooLarge(this.limit);
                                return Poll::Ready(Some(Err(error.into())));
                            }
                            this.packed = data;
                        }
                        Err(other) => return Poll::Ready(Some(Ok(other))),
                    },
                    Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                    None if this.decoder.is_none() => return Poll::Ready(None),
                    None => match this.end() {
                        Ok(last) if last.is_empty() => return Poll::Ready(None),
                        last => return Poll::Ready(Some(this.counted_frame(last))),
                    },
                }
                continue;
            } else {
                this.unpack()
            };
            if bytes.as_ref().is_ok_and(Bytes::is_empty) {
                continue;
            }
            return Poll::Ready(Some(this.counted_frame(bytes)));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.packed.is_empty() && self.decoder.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.decoder.is_none() && self.packed.is_empty() {
            true => self.inner.size_hint(),
            false => SizeHint::default(),
        }
    }
}

impl<B> BoundedBody<B> {
    fn counted_frame(&mut self, bytes: io::Result<Bytes>) -> Result<Frame<Bytes>, BoxError> {
        let bytes = bytes.map_err(|error| format!("the response is not gzip: {error}"))?;
        self.count(&bytes)?;
        Ok(Frame::data(bytes))
    }
}

#[cfg(test)]
mod tests;
