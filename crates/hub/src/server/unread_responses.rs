//! Ends connections that request again and again and read nothing, as long as their identity is not counted elsewhere.
//!
//! One HTTP/2 connection has hundreds of streams, and each keeps a few kilobytes until its response is read. The
//! requests of machines and tokens are counted by the router; here it is those of anonymous clients, and what was
//! refused because an identity has too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::response::Response;
use http::StatusCode;

use crate::held_body;
use crate::router::Authenticated;

/// The most unread responses of a connection. Whoever reads has none: they are small.
const MAX_UNREAD: usize = 16;

/// The unread responses of one connection.
#[derive(Debug, Clone, Default)]
pub(super) struct UnreadResponses {
    count: Arc<AtomicUsize>,
}

/// One of them. Dropping it subtracts it.
struct UnreadResponse(Arc<AtomicUsize>);

impl Drop for UnreadResponse {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl UnreadResponses {
    /// Counts a response until it is read, unless the router does. Calls `end` if there are too many.
    pub(super) fn count(&self, response: Response, end: impl FnOnce()) -> Response {
        let is_known = response.extensions().get::<Authenticated>().is_some();
        if is_known && response.status() != StatusCode::TOO_MANY_REQUESTS {
            return response;
        }
        if self.count.fetch_add(1, Ordering::Relaxed) >= MAX_UNREAD {
            end();
        }
        held_body::hold_until_sent(response, UnreadResponse(Arc::clone(&self.count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::UserInfo;
    use axum::body::Body;
    use std::cell::Cell;

    fn response(code: StatusCode, user: Option<UserInfo>) -> Response {
        let mut response = Response::new(Body::from("x"));
        *response.status_mut() = code;
        if let Some(user) = user {
            response.extensions_mut().insert(Authenticated(user));
        }
        response
    }

    #[test]
    fn only_what_nobody_else_counts_ends_a_connection() {
        let machine = || Some(UserInfo::node("a"));
        for (code, user, is_ended) in [
            (StatusCode::OK, None, true),
            (StatusCode::UNAUTHORIZED, None, true),
            (StatusCode::OK, machine(), false),
            (StatusCode::FORBIDDEN, machine(), false),
            (StatusCode::TOO_MANY_REQUESTS, machine(), true),
        ] {
            let (unread, ended) = (UnreadResponses::default(), Cell::new(false));
            let count = || unread.count(response(code, user.clone()), || ended.set(true));
            for _ in 0..100 {
                drop(count());
            }
            assert!(!ended.get(), "they are read");
            let mut open: Vec<_> = (0..MAX_UNREAD).map(|_| count()).collect();
            assert!(!ended.get());
            open.push(count());
            assert_eq!(ended.get(), is_ended, "{code} {user:?}");
        }
    }
}
