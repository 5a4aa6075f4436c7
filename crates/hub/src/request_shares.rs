//! What one client may use at the same time: requests, open watches, and the memory of responses.
//!
//! Every identity has shares of its own, so one that floods the hub or does not read its responses holds up nobody else:
//! its requests wait in order, and from a number on they get 429. Administrators and controllers wait for reads only,
//! which take processor time while writes wait for the disk. Components in the process never wait. Called by the router.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use axum::response::Response;
use hyper::body::Body as _;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::UserInfo;
use crate::held_body;
use crate::status::ApiError;

/// Shares that nobody holds are forgotten when there are more than this.
const MAX_SHARES: usize = 10_000;

/// The shares of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ShareLimits {
    /// Requests that wait, run, or whose response is not read yet.
    requests: usize,
    /// Requests that run. Decoding and encoding a long list takes a processor for a while.
    running: usize,
    /// Whether writes run whatever else does.
    writes_freely: bool,
    watches: usize,
    /// Memory of responses that the client has not read, in KiB. One response may have more, if it is the only one.
    response_kib: usize,
}

/// One machine: a daemon has a few requests and less than ten watches.
const MACHINE: ShareLimits = ShareLimits {
    requests: 200,
    running: 4,
    writes_freely: false,
    watches: 50,
    response_kib: 8 << 10,
};
/// All users of one token.
const TOKEN: ShareLimits =
    ShareLimits { requests: 1000, watches: 2000, response_kib: 64 << 10, ..MACHINE };
/// An administrator or a controller.
const PRIVILEGED: ShareLimits = ShareLimits {
    requests: 10_000,
    writes_freely: true,
    watches: Semaphore::MAX_PERMITS,
    response_kib: Semaphore::MAX_PERMITS,
    ..MACHINE
};

impl ShareLimits {
    fn of(user: &UserInfo) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        match user.node_name() {
            _ if user.is_privileged() => Self { running: processors.max(4), ..PRIVILEGED },
            Some(_) => MACHINE,
            None => TOKEN,
        }
    }
}

/// The shares of all identities.
#[derive(Debug, Default)]
pub(crate) struct RequestShares {
    shares: Mutex<HashMap<String, Weak<RequestShare>>>,
}

impl RequestShares {
    /// The share of a user.
    pub(crate) fn of(&self, user: &UserInfo) -> Arc<RequestShare> {
        let limits = ShareLimits::of(user);
        let mut shares = self.shares.lock();
        let known = shares.get(&user.user).and_then(Weak::upgrade);
        if let Some(share) = known.filter(|share| share.limits == limits) {
            return share;
        }
        if shares.len() >= MAX_SHARES {
            shares.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::new(RequestShare::new(limits));
        shares.insert(user.user.clone(), Arc::downgrade(&share));
        share
    }
}

/// What one identity uses at the moment.
#[derive(Debug)]
pub(crate) struct RequestShare {
    limits: ShareLimits,
    requests: Arc<Semaphore>,
    running: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    response_kib: Arc<Semaphore>,
}

impl RequestShare {
    fn new(limits: ShareLimits) -> Self {
        let semaphore = |size| Arc::new(Semaphore::new(size));
        Self {
            limits,
            requests: semaphore(limits.requests),
            running: semaphore(limits.running),
            watches: semaphore(limits.watches),
            response_kib: semaphore(limits.response_kib),
        }
    }

    /// Begins a request. It is open until its response is sent.
    ///
    /// # Errors
    /// 429: this identity has too many open requests, or reads no responses.
    pub(crate) fn open_request(self: &Arc<Self>) -> Result<OpenRequest, ApiError> {
        let permit = Arc::clone(&self.requests).try_acquire_owned().map_err(|_| {
            let limit = self.limits.requests;
            let message =
                format!("this client has {limit} open requests, the limit: wait for the responses");
            ApiError::quota_exceeded(message, 1)
        })?;
        // A committed write must not fail because of its response.
        if self.response_kib.available_permits() == 0 {
            return Err(self.unread_responses());
        }
        Ok(OpenRequest { share: Arc::clone(self), permit })
    }

    /// Opens a watch.
    ///
    /// # Errors
    /// 429: this identity has too many open watches.
    pub(crate) fn open_watch(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.watches).try_acquire_owned().map_err(|_| {
            let limit = self.limits.watches;
            let message = format!("this client has {limit} open watches, the limit: close some");
            ApiError::quota_exceeded(message, 5)
        })
    }

    /// Reserves the memory of a response. One that is larger than the share needs all of it.
    ///
    /// # Errors
    /// 429: responses that this identity has not read yet take too much.
    pub(crate) fn hold_memory(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let permits = self.permits(bytes);
        let held = Arc::clone(&self.response_kib).try_acquire_many_owned(permits);
        held.map_err(|_| self.unread_responses())
    }

    fn permits(&self, bytes: usize) -> u32 {
        let kib = bytes.div_ceil(1024).min(self.limits.response_kib);
        u32::try_from(kib).unwrap_or(u32::MAX)
    }

    fn unread_responses(&self) -> ApiError {
        let message = format!(
            "the responses that this client has not read take more than {} MiB: read them first",
            self.limits.response_kib >> 10
        );
        ApiError::quota_exceeded(message, 1)
    }
}

/// A request that is not answered yet, or whose response is not read yet.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    share: Arc<RequestShare>,
    permit: OwnedSemaphorePermit,
}

impl OpenRequest {
    /// Waits until the request may run, and lets the next one run when the permit is dropped.
    pub(crate) async fn run(
        &self,
        is_read: bool,
    ) -> Result<Option<OwnedSemaphorePermit>, ApiError> {
        if self.share.limits.writes_freely && !is_read {
            return Ok(None);
        }
        let running = Arc::clone(&self.share.running).acquire_owned().await;
        running.map(Some).map_err(|error| ApiError::internal(error.to_string())) // it is never closed
    }

    /// Counts the request and its memory until the response is sent, and keeps the share that they are part of. A write is done: its response is sent in any case.
    ///
    /// # Errors
    /// 429: see [`RequestShare::hold_memory`].
    pub(crate) fn respond(self, response: Response, is_read: bool) -> Result<Response, ApiError> {
        if response.extensions().get::<WatchResponse>().is_some() {
            return Ok(response);
        }
        let streamed = response.extensions().get::<StreamedMemory>().map(|memory| memory.0);
        let whole = response.body().size_hint().exact();
        let whole = whole.and_then(|size| usize::try_from(size).ok());
        let bytes = streamed.or(whole).unwrap_or(0);
        let memory = if is_read {
            Some(self.share.hold_memory(bytes)?)
        } else {
            let left = self.share.response_kib.available_permits().saturating_mul(1024);
            self.share.hold_memory(bytes.min(left)).ok()
        };
        Ok(held_body::hold_until_sent(response, (memory, self.permit, self.share)))
    }
}

/// The memory of the events that an open watch has encoded and its client has not read.
#[derive(Debug)]
pub(crate) struct WatchMemory {
    share: Option<Arc<RequestShare>>,
    held: Vec<OwnedSemaphorePermit>,
    /// What the next event needs and its identity does not have.
    missing: Option<usize>,
    /// Held, and not used yet.
    granted: usize,
}

impl WatchMemory {
    /// That of a watch of an identity, or of one without limits.
    pub(crate) fn new(share: Option<Arc<RequestShare>>) -> Self {
        Self { share, held: Vec::new(), missing: None, granted: 0 }
    }

    /// Whether an event of this size may be encoded now.
    pub(crate) fn reserve(&mut self, bytes: usize) -> bool {
        let Some(share) = &self.share else { return true };
        if self.granted >= bytes.max(1) {
            self.granted = 0;
            return true;
        }
        match share.hold_memory(bytes) {
            Ok(permit) => {
                self.missing = None;
                self.held.push(permit);
            }
            Err(_) => self.missing = Some(bytes),
        }
        self.missing.is_none()
    }

    /// Whether [`WatchMemory::reserve`] has failed: nothing can be encoded until [`WatchMemory::wait`] returns.
    pub(crate) fn is_missing(&self) -> bool {
        self.missing.is_some()
    }

    /// Waits until the client has read other responses. Cancel safe.
    pub(crate) async fn wait(&mut self) {
        let (Some(share), Some(bytes)) = (&self.share, self.missing) else { return };
        let permits = share.permits(bytes);
        if let Ok(permit) = Arc::clone(&share.response_kib).acquire_many_owned(permits).await {
            self.held.push(permit);
        }
        (self.missing, self.granted) = (None, bytes.max(1));
    }

    /// The client has read what was encoded.
    pub(crate) fn release(&mut self) {
        if self.granted == 0 {
            self.held.clear();
        }
    }
}

/// In the extensions of a response: the memory behind a body that is made while it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamedMemory(pub(crate) usize);

/// In the extensions of a response: it is a watch, which is counted as such.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchResponse;

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use http_body_util::BodyExt as _;

    fn share(shares: &RequestShares, name: &str) -> Arc<RequestShare> {
        shares.of(&UserInfo::node(name))
    }

    fn respond(share: &Arc<RequestShare>, text: &str, is_read: bool) -> Result<Response, u16> {
        let response = Response::new(Body::from(text.to_owned()));
        let open = share.open_request();
        open.and_then(|open| open.respond(response, is_read)).map_err(|error| error.code)
    }

    #[tokio::test]
    async fn reads_of_administrators_wait_and_writes_do_not() {
        let own = RequestShares::default().of(&UserInfo::admin());
        let open = || own.open_request().unwrap();
        let mut running = Vec::new();
        for _ in 0..own.limits.running {
            running.push(open().run(true).await.unwrap());
        }
        let waiting = open();
        let next = tokio::spawn(async move { waiting.run(true).await.map(drop) });
        tokio::task::yield_now().await;
        assert!(!next.is_finished());
        assert!(open().run(false).await.unwrap().is_none());
        running.pop();
        next.await.unwrap().unwrap();
        drop((own.open_watch().unwrap(), own.hold_memory(100 << 20).unwrap()));
        let open: Vec<_> = (0..PRIVILEGED.requests).map(|_| own.open_request().unwrap()).collect();
        assert_eq!((open.len(), own.open_request().unwrap_err().code), (10_000, 429));
    }

    #[tokio::test]
    async fn requests_wait_for_those_of_the_same_identity() {
        let shares = RequestShares::default();
        let own = share(&shares, "a");
        let mut running = Vec::new();
        for _ in 0..MACHINE.running {
            running.push(own.open_request().unwrap().run(true).await.unwrap());
        }
        let waiting = own.open_request().unwrap();
        let next = tokio::spawn(async move { waiting.run(false).await.map(drop) });
        tokio::task::yield_now().await;
        assert!(!next.is_finished());
        drop(share(&shares, "b").open_request().unwrap().run(true).await.unwrap());
        running.pop();
        next.await.unwrap().unwrap();
    }

    #[test]
    fn requests_and_watches_are_limited_for_each_identity() {
        let shares = RequestShares::default();
        let own = share(&shares, "a");
        let mut open: Vec<_> = (0..MACHINE.requests).map(|_| own.open_request().unwrap()).collect();
        let error = own.open_request().unwrap_err();
        assert!(error.code == 429 && error.message.contains("200 open requests"), "{error}");
        share(&shares, "b").open_request().unwrap();
        open.pop();
        own.open_request().unwrap();

        let mut watches: Vec<_> = (0..MACHINE.watches).map(|_| own.open_watch().unwrap()).collect();
        assert_eq!(own.open_watch().unwrap_err().code, 429);
        drop(share(&shares, "b").open_watch().unwrap());
        watches.pop();
        drop(own.open_watch().unwrap());
    }

    #[tokio::test]
    async fn a_response_counts_until_it_is_read() {
        let shares = RequestShares::default();
        let own = share(&shares, "a");
        let text = "x".repeat(5 << 20);
        let mut first = respond(&own, &text, true).unwrap();
        assert_eq!(respond(&own, &text, true).unwrap_err(), 429);
        assert!(respond(&share(&shares, "b"), &text, true).is_ok());
        assert!(respond(&own, "small", true).is_ok());
        assert_eq!(first.body().size_hint().exact(), Some(text.len() as u64));
        let mut received = 0;
        while received < text.len() {
            let frame = first.body_mut().frame().await.unwrap().unwrap();
            received += frame.into_data().unwrap().len();
        }
        assert_eq!(respond(&own, &text, true).unwrap_err(), 429);
        assert!(first.body_mut().frame().await.is_none());
        drop(first);
        // One that is larger than the share is sent when it is the only one.
        let large = "x".repeat(30 << 20);
        let whole = respond(&own, &large, true).unwrap();
        assert_eq!(respond(&own, "", true).unwrap_err(), 429);
        assert_eq!(whole.into_body().collect().await.unwrap().to_bytes().len(), large.len());
    }

    #[tokio::test]
    async fn a_watch_waits_for_memory() {
        let shares = RequestShares::default();
        let own = share(&shares, "a");
        let [mut first, mut second] = [(); 2].map(|()| WatchMemory::new(Some(Arc::clone(&own))));
        assert!(first.reserve(5 << 20) && first.reserve(3 << 20));
        assert!(!second.reserve(2 << 20) && second.is_missing());
        let wait = tokio::time::timeout(std::time::Duration::from_millis(10), second.wait());
        assert!(wait.await.is_err());
        first.release();
        second.wait().await;
        assert!(!second.is_missing());
        second.release();
        assert!(first.reserve(6 << 20) && !first.reserve(1 << 20), "what was waited for is held");
        assert!(second.reserve(2 << 20) && !second.reserve(1));
        second.release();
        assert!(second.reserve(1 << 20));
        assert!(WatchMemory::new(None).reserve(usize::MAX));
    }

    #[test]
    fn a_write_that_is_done_gets_its_response() {
        let shares = RequestShares::default();
        let own = share(&shares, "a");
        let text = "x".repeat(5 << 20);
        let unread = [respond(&own, &text, true), respond(&own, &text, false)];
        assert!(unread.iter().all(Result::is_ok));
        assert_eq!(respond(&own, "", false).unwrap_err(), 429, "refused before it is done");
    }
}
