//! The HTTP endpoint that serves the metrics and the health of a process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use http::StatusCode;
use kube::Client;
use machinist_core::metrics_access::ListenerProtection;
use machinist_hub::failure_log::FailureLog;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::handler::MetricsHandler;
use super::security::{MetricsOptions, MetricsSecurity};
use super::token_reviewer::TokenReviewer;
use super::{MetricsSource, serve};
use crate::listen;

/// How often a process whose work does not depend on its metrics tries to serve them.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

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
    /// It does its work; only one process of its kind is needed.
    Ready,
}

impl ProcessHealth {
    fn status(self) -> (StatusCode, &'static str) {
        match self {
            Self::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting"),
            Self::Standby => (StatusCode::OK, "standing by"),
            Self::Leading => (StatusCode::OK, "leading"),
            Self::Ready => (StatusCode::OK, "ok"),
        }
    }
}

/// What a process serves.
#[derive(Debug, Clone)]
pub(crate) struct MetricsEndpoint {
    /// Its metrics.
    pub(crate) sources: Vec<MetricsSource>,
    /// Whether it is ready, and what fails.
    pub(crate) readiness: Readiness,
}

/// What `/readyz` reports.
#[derive(Debug, Clone)]
pub(crate) struct Readiness {
    /// Whether the process leads.
    pub(crate) health: watch::Receiver<ProcessHealth>,
    /// What fails right now.
    pub(crate) failures: FailureLog,
}

impl Readiness {
    /// A process that is ready as soon as it listens, whatever fails.
    pub(crate) fn always(failures: FailureLog) -> Self {
        Self { health: watch::channel(ProcessHealth::Ready).1, failures }
    }

    /// Failures make a process unready only while it starts. A leader that cannot write one object still does the rest of
    /// its work, and a standby that could not do one thing would still be better than no leader. They name objects of the
    /// cluster: without `details` only their number is shown.
    pub(super) fn response(&self, details: bool) -> (StatusCode, String) {
        let health = *self.health.borrow();
        let (status, text) = health.status();
        let failures = self.failures.lines();
        if failures.is_empty() {
            return (status, text.to_owned());
        }
        let status = match health {
            ProcessHealth::Leading | ProcessHealth::Standby | ProcessHealth::Ready => status,
            ProcessHealth::Starting => StatusCode::SERVICE_UNAVAILABLE,
        };
        let failing = match details {
            true => failures.join("\n"),
            false => format!("{} (send a token that may read /metrics)", failures.len()),
        };
        (status, format!("{text}; failing:\n{failing}\n"))
    }
}

impl MetricsEndpoint {
    /// Serves until it is dropped, for a process whose work must not depend on its metrics: what fails is logged and
    /// retried.
    pub(crate) async fn serve_with_retries(self, options: MetricsOptions, client: Client) {
        const TASK: &str = "serve metrics";
        let failures = self.readiness.failures.clone();
        loop {
            let mut tasks = JoinSet::new();
            let started = async {
                let listener = listen::bind(options.listen, "--metrics-listen").await?;
                let client = Some(client.clone());
                self.clone().start(listener, &options.security, client, &mut tasks).await
            };
            if failures.record(TASK, "", started.await).is_some() {
                while tasks.join_next().await.is_some() {}
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Serves `/metrics`, `/healthz` and `/readyz` until the tasks end. Tokens are verified with the API server of `client`.
    ///
    /// # Errors
    /// The certificate cannot be used, or the listener needs authentication and there is no API server.
    pub(crate) async fn start(
        self,
        listener: TcpListener,
        security: &MetricsSecurity,
        client: Option<Client>,
        tasks: &mut JoinSet<()>,
    ) -> Result<()> {
        let address = listener.local_addr()?;
        let protection = security.protection(address, client.is_some())?;
        let (mut acceptor, mut reviewer) = (None, None);
        if protection == ListenerProtection::Authenticated {
            let failures = &self.readiness.failures;
            acceptor = Some(security.acceptor(tasks, failures).await?);
            reviewer = client.map(|client| TokenReviewer::new(client, failures.clone()));
        }
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        tracing::info!(%address, scheme, "serving /metrics, /healthz and /readyz");
        let handler = Arc::new(MetricsHandler { endpoint: self, protection, reviewer });
        tasks.spawn(serve::run(listener, acceptor, handler));
        Ok(())
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
            (watch::Sender::new(ProcessHealth::Standby), FailureLog::default());
        let readiness = Readiness { health: health.subscribe(), failures: failures.clone() };
        assert_eq!(readiness.response(true), (StatusCode::OK, "standing by".to_owned()));
        failures.failed("list nodes", "", "forbidden");
        let text = "standing by; failing:\nlist nodes: forbidden\n".to_owned();
        assert_eq!(readiness.response(true), (StatusCode::OK, text));
        let (status, text) = readiness.response(false);
        assert!(status == StatusCode::OK && text.contains("failing:\n1 (send"), "{text}");
        assert!(!text.contains("nodes"), "{text}");
        health.send_replace(ProcessHealth::Starting);
        assert_eq!(readiness.response(true).0, StatusCode::SERVICE_UNAVAILABLE);
        health.send_replace(ProcessHealth::Leading);
        assert_eq!(readiness.response(true).0, StatusCode::OK);
        assert!(readiness.response(true).1.starts_with("leading; failing:"));
        let always = Readiness::always(failures).response(true);
        assert_eq!(always, (StatusCode::OK, "ok; failing:\nlist nodes: forbidden\n".to_owned()));
    }
}
