//! The page that figures and health are read from.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{MetricsSource, render};

/// How a process is that may have to wait for another to step back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ProcessHealth {
    /// It has not reached the API yet.
    #[default]
    Starting,
    /// Another one leads; this one is ready to take over.
    Standby,
    /// It leads, and has seen everything once.
    Leading,
}

impl ProcessHealth {
    fn status(self) -> (StatusCode, &'static str) {
        match self {
            Self::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting"),
            Self::Standby => (StatusCode::OK, "standing by"),
            Self::Leading => (StatusCode::OK, "leading"),
        }
    }
}

/// What a process serves.
#[derive(Debug, Clone, Default)]
pub(crate) struct MetricsEndpoint {
    /// Its figures.
    pub(crate) sources: Vec<MetricsSource>,
    /// How it is; without it, it is ready when it listens.
    pub(crate) health: Option<watch::Receiver<ProcessHealth>>,
}

impl MetricsEndpoint {
    /// Serves `/metrics`, `/healthz` and `/readyz` until it is dropped.
    pub(crate) async fn serve(self, listener: TcpListener) {
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "figures at /metrics, health at /healthz and /readyz");
        }
        if let Err(error) = axum::serve(listener, self.router()).await {
            tracing::warn!(%error, "figures are not served any more");
        }
    }

    fn router(self) -> Router {
        let Self { sources, health } = self;
        let ready = move || {
            let answer = match &health {
                Some(health) => health.borrow().status(),
                None => (StatusCode::OK, "ok"),
            };
            std::future::ready(answer)
        };
        Router::new()
            .route("/metrics", get(move || std::future::ready(render(&sources))))
            .route("/healthz", get(|| async { "ok" }))
            .route("/readyz", get(ready))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_the_lease_is_ready_and_who_starts_is_not() {
        assert_eq!(ProcessHealth::Starting.status().0, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ProcessHealth::Standby.status(), (StatusCode::OK, "standing by"));
        assert_eq!(ProcessHealth::Leading.status(), (StatusCode::OK, "leading"));
    }
}
