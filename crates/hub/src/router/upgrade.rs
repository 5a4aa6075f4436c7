//! Answers a watch as a WebSocket if the client asks for one.
//!
//! The response is sent by the server; the session runs as a task of the connection, so it counts as its connection
//! does and ends with it. Called by `watch`.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::Stream;
use http::{HeaderValue, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{BufferedRequest, response};
use crate::status::ApiError;
use crate::websocket::{self, Handshake};

/// In the extensions of a request: the tasks that continue on its connection after an upgrade.
#[derive(Debug, Clone, Default)]
pub struct UpgradeTasks {
    tasks: TaskTracker,
    end: CancellationToken,
}

impl UpgradeTasks {
    /// Waits until all tasks have ended. No more can begin.
    pub async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Ends all tasks.
    pub fn abort(&self) {
        self.end.cancel();
    }
}

/// A handshake that is valid, on a connection that can be upgraded.
pub(super) struct WebSocketUpgrade {
    handshake: Handshake,
    connection: OnUpgrade,
    tasks: UpgradeTasks,
}

/// The upgrade that a request asks for; `None` without one.
///
/// # Errors
/// The response that refuses it.
pub(super) fn requested(
    request: &BufferedRequest,
) -> Result<Option<WebSocketUpgrade>, Box<Response>> {
    let parts = &request.parts;
    if !websocket::is_requested(&parts.headers) {
        return Ok(None);
    }
    let handshake = websocket::negotiate(&parts.headers).map_err(|error| refuse(&error))?;
    let connection = parts.extensions.get::<OnUpgrade>().cloned();
    let tasks = parts.extensions.get::<UpgradeTasks>().cloned();
    let (Some(connection), Some(tasks)) = (connection, tasks) else {
        let text = "this connection cannot be upgraded to WebSocket: use HTTP/1.1";
        return Err(refuse(&ApiError::bad_request(text)));
    };
    Ok(Some(WebSocketUpgrade { handshake, connection, tasks }))
}

fn refuse(error: &ApiError) -> Box<Response> {
    let mut response = response::error_response(error);
    let version = HeaderValue::from_static("13");
    response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, version);
    Box::new(response)
}

impl WebSocketUpgrade {
    /// Accepts it. The lines of the pieces follow the response.
    pub(super) fn accept(self, pieces: impl Stream<Item = Bytes> + Send + 'static) -> Response {
        let Self { handshake, connection, tasks } = self;
        let end = tasks.end.clone();
        let session = async move {
            match connection.await {
                Ok(connection) => websocket::serve(TokioIo::new(connection), pieces).await,
                Err(error) => tracing::debug!(%error, "connection was not upgraded"),
            }
        };
        tasks.tasks.spawn(async move { end.run_until_cancelled(session).await });
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let protocol = handshake.protocol.unwrap_or_default();
        for (name, value) in [
            (header::UPGRADE, "websocket"),
            (header::CONNECTION, "Upgrade"),
            (header::SEC_WEBSOCKET_ACCEPT, &handshake.accept),
            (header::SEC_WEBSOCKET_PROTOCOL, &protocol),
        ] {
            if let Some(value) = HeaderValue::from_str(value).ok().filter(|value| !value.is_empty())
            {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}
