//! What the controller tells whoever looks after it: figures, and whether it is well.

use anyhow::{Context as _, Result};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::metrics::Metrics;

/// How a controller is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Health {
    /// It has not reached the API yet.
    #[default]
    Starting,
    /// Another controller leads; this one is ready to take over.
    StandingBy,
    /// It leads, and has seen everything once.
    Leading,
}

/// Serves `/metrics`, `/healthz` and `/readyz` until it is dropped.
///
/// # Errors
/// The address cannot be used.
pub(super) async fn serve(
    address: SocketAddr,
    metrics: Metrics,
    health: watch::Receiver<Health>,
) -> Result<(SocketAddr, impl Future<Output = ()>)> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; see --metrics-listen-address"))?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/metrics", get(|State(metrics): State<Metrics>| async move { metrics.text() }))
        .with_state(metrics)
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(move || ready(health.clone())));
    let serving = async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::warn!(%error, "figures are not served any more");
        }
    };
    Ok((address, serving))
}

async fn ready(health: watch::Receiver<Health>) -> (StatusCode, &'static str) {
    match *health.borrow() {
        Health::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting"),
        Health::StandingBy => (StatusCode::OK, "standing by"),
        Health::Leading => (StatusCode::OK, "leading"),
    }
}
