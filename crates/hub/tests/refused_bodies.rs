//! A request that is refused before its body is needed: the client has sent the body when it gets the reason, within
//! limits. On HTTP/2 it would see a cancelled stream otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::Request;
use tower::ServiceExt as _;

use crate::support::TestHub;

const PART: usize = 10_000;

/// Sends a request without credentials. Returns the code and how many parts of its body were read.
async fn refused(hub: &TestHub, parts: impl Stream<Item = Bytes> + Send + 'static) -> (u16, usize) {
    let read = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&read);
    let counted = parts.map(move |part| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok::<_, std::io::Error>(part)
    });
    let request = Request::post("/api/v1/nodes").body(Body::from_stream(counted)).unwrap();
    let response = hub.hub.router().oneshot(request).await.unwrap();
    (response.status().as_u16(), read.load(Ordering::Relaxed))
}

fn part() -> Bytes {
    Bytes::from(vec![b'x'; PART])
}

#[tokio::test(start_paused = true)]
async fn the_body_of_a_refused_request_is_read_within_limits() {
    let hub = TestHub::start().await;
    let short = stream::repeat_with(part).take(20);
    assert_eq!(refused(&hub, short).await, (401, 20));
    let (code, read) = refused(&hub, stream::repeat_with(part)).await;
    assert!(code == 401 && read * PART < 300_000, "{code} after {read} parts");
    let start = tokio::time::Instant::now();
    let silent = stream::iter([part()]).chain(stream::pending());
    assert_eq!(refused(&hub, silent).await, (401, 1));
    assert!(start.elapsed() < Duration::from_secs(10));
}
