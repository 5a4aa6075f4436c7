//! The HTTP endpoint that serves the metrics and the health of a process.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{MetricsSource, render};

/// The state of a process that takes part in a leader election.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ProcessHealth {
    /// It has not reached the API server yet.
    #[default]
    Starting,
    /// Another process leads, or this one has not filled its caches yet.
    Standby,
    /// It leads, and its caches are filled.
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
    /// Its metrics.
    pub(crate) sources: Vec<MetricsSource>,
    /// Whether it is ready; without this a process is ready as soon as it listens.
    pub(crate) health: Option<Readiness>,
}

/// What `/readyz` reports.
#[derive(Debug, Clone)]
pub(crate) struct Readiness {
    /// Whether the process leads.
    pub(crate) health: watch::Receiver<ProcessHealth>,
    /// What fails right now, a line each.
    pub(crate) failures: watch::Receiver<Vec<String>>,
}

impl Readiness {
    /// Failures make a process unready only while it starts. A leader that cannot write one object still does the rest of
    /// its work, and a standby that could not do one thing would still be better than no leader.
    fn response(&self) -> (StatusCode, String) {
        let health = *self.health.borrow();
        let (status, text) = health.status();
        let failures = self.failures.borrow();
        if failures.is_empty() {
            return (status, text.to_owned());
        }
        let status = match health {
            ProcessHealth::Leading | ProcessHealth::Standby => status,
            ProcessHealth::Starting => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, format!("{text}; failing:\n{}\n", failures.join("\n")))
    }
}

impl MetricsEndpoint {
    /// Serves `/metrics`, `/healthz` and `/readyz` until it is dropped.
    pub(crate) async fn serve(self, listener: TcpListener) {
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "serving /metrics, /healthz and /readyz");
        }
        if let Err(error) = axum::serve(listener, self.router()).await {
            tracing::warn!(%error, "the metrics endpoint has stopped");
        }
    }

    fn router(self) -> Router {
        let Self { sources, health } = self;
        let ready = move || {
            let response = match &health {
                Some(health) => health.response(),
                None => (StatusCode::OK, "ok".to_owned()),
            };
            std::future::ready(response)
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
    fn a_process_that_waits_for_the_lease_is_ready() {
        assert_eq!(ProcessHealth::Starting.status().0, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ProcessHealth::Standby.status(), (StatusCode::OK, "standing by"));
        assert_eq!(ProcessHealth::Leading.status(), (StatusCode::OK, "leading"));
    }

    #[test]
    fn failures_are_named_and_keep_a_starting_process_from_becoming_ready() {
        let (health, failures) =
            (watch::Sender::new(ProcessHealth::Standby), watch::Sender::new(Vec::new()));
        let readiness = Readiness { health: health.subscribe(), failures: failures.subscribe() };
        assert_eq!(readiness.response(), (StatusCode::OK, "standing by".to_owned()));
        failures.send_replace(vec!["list nodes: forbidden".to_owned()]);
        let text = "standing by; failing:\nlist nodes: forbidden\n".to_owned();
        assert_eq!(readiness.response(), (StatusCode::OK, text));
        health.send_replace(ProcessHealth::Starting);
        assert_eq!(readiness.response().0, StatusCode::SERVICE_UNAVAILABLE);
        health.send_replace(ProcessHealth::Leading);
        assert_eq!(readiness.response().0, StatusCode::OK);
        assert!(readiness.response().1.starts_with("leading; failing:"));
    }
}
