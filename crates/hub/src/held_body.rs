//! A response body that holds something until the client has read it: its place in a limit, for example.
//!
//! Called by the shares of an identity and by the port.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// A body goes to the connection in pieces of this size.
const PIECE_BYTES: usize = 32 << 10;

/// Keeps `held` until the response is sent or its connection ends.
pub(crate) fn hold_until_sent(response: Response, held: impl Send + Unpin + 'static) -> Response {
    let body = |inner| HeldBody { inner, rest: Bytes::new(), has_ended: false, _held: held };
    response.map(|inner| Body::new(body(inner)))
}

struct HeldBody<T> {
    inner: Body,
    /// What is left of the last frame. Pieces of it are copied: a part of a buffer would keep all of it.
    rest: Bytes,
    has_ended: bool,
    _held: T,
}

impl<T: Unpin> hyper::body::Body for HeldBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => {
                    self.has_ended = true;
                    return Poll::Ready(end);
                }
            }
        }
        let length = self.rest.len().min(PIECE_BYTES);
        let piece = Bytes::copy_from_slice(&self.rest.split_to(length));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// True only after a poll found nothing more: HTTP/2 polls again when the client has made space for the last piece.
    fn is_end_stream(&self) -> bool {
        self.has_ended
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.rest.len() as u64;
        let exact = self.inner.size_hint().exact();
        exact.map_or_else(SizeHint::default, |size| SizeHint::with_exact(size + left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use hyper::body::Body as _;
    use std::sync::Arc;

    #[tokio::test]
    async fn the_last_piece_does_not_end_it() {
        let held = Arc::new(());
        let text = "x".repeat(PIECE_BYTES + 1);
        let response = Response::new(Body::from(text.clone()));
        let mut response = hold_until_sent(response, Arc::clone(&held));
        assert_eq!(response.body().size_hint().exact(), Some(text.len() as u64));
        let mut sizes = Vec::new();
        while let Some(frame) = response.body_mut().frame().await {
            sizes.push(frame.unwrap().into_data().unwrap().len());
            assert!(!response.body().is_end_stream() && Arc::strong_count(&held) == 2);
            assert_eq!(
                response.body().size_hint().exact(),
                Some((text.len() - sizes.iter().sum::<usize>()) as u64)
            );
        }
        assert_eq!(sizes, [PIECE_BYTES, 1]);
        assert!(response.body().is_end_stream());
        drop(response);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
