//! Probes the kubelet every half minute. The result is a metric and a log line; it never degrades the
//! machine. After a change that restarts services, a kubelet that ran before has to run again: the health
//! gate waits for it.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::Uri;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use machinist_core::daemon::kubelet_health::{HealthzResponse, evaluate_healthz};
use machinist_core::health::FailedCheck;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::metrics::DaemonMetrics;

/// The interval of the probes, and their timeout.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
/// The maximum size of a response.
const MAX_RESPONSE_SIZE: usize = 64 << 10;

/// How long a kubelet may take to run again after a change.
pub(super) const RESTART_DEADLINE: Duration = Duration::from_secs(300);
/// How long it has to respond without interruption.
const STABLE: Duration = Duration::from_secs(2);
/// The timeout of one probe while the daemon waits.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between two of them.
const WAIT_INTERVAL: Duration = Duration::from_millis(500);

/// Whether the kubelet responds now.
pub(super) async fn responds(endpoint: &Uri) -> bool {
    matches!(timeout(WAIT_TIMEOUT, probe(endpoint)).await, Ok(Ok(_)))
}

/// Waits until a kubelet that ran before a change runs again.
pub(super) async fn wait_until_running(
    endpoint: &Uri,
    deadline: Duration,
) -> Result<(), FailedCheck> {
    let begin = Instant::now();
    let mut since: Option<Instant> = None;
    loop {
        let problem = match timeout(WAIT_TIMEOUT, probe(endpoint)).await {
            Ok(Ok(_)) if since.get_or_insert_with(Instant::now).elapsed() >= STABLE => {
                return Ok(());
            }
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(format!("{error:#}")),
            Err(_) => Some(format!("no response in {} seconds", WAIT_TIMEOUT.as_secs())),
        };
        if let Some(problem) = problem {
            since = None;
            if begin.elapsed() >= deadline {
                let problem = format!("it ran before the change, and now: {problem}");
                return Err(FailedCheck { check: "kubelet".to_owned(), problem });
            }
        }
        tokio::time::sleep(WAIT_INTERVAL).await;
    }
}

/// Probes forever.
pub(super) async fn probe_forever(endpoint: Uri, metrics: DaemonMetrics) {
    let mut failures = 0;
    loop {
        tokio::time::sleep(PROBE_INTERVAL).await;
        let response = match timeout(PROBE_INTERVAL, probe(&endpoint)).await {
            Ok(Ok(text)) => HealthzResponse::Body(text),
            Ok(Err(error)) => HealthzResponse::Unreachable(format!("{error:#}")),
            Err(_) => HealthzResponse::Unreachable(format!(
                "no response in {} seconds",
                PROBE_INTERVAL.as_secs()
            )),
        };
        let outcome = evaluate_healthz(failures, &response);
        failures = outcome.failures;
        metrics.set_kubelet_failures(failures);
        if let Some(warning) = outcome.warning {
            // MCO's literal lines.
            tracing::warn!("{warning}");
        }
    }
}

/// The response of the kubelet.
async fn probe(endpoint: &Uri) -> Result<String> {
    let Some(host) = endpoint.host().filter(|_| endpoint.scheme_str() == Some("http")) else {
        bail!("--kubelet-healthz-endpoint {endpoint}: write it as http://HOST:PORT/PATH");
    };
    let address = (host.trim_matches(['[', ']']), endpoint.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(address).await.with_context(|| endpoint.to_string())?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = async {
        let path = endpoint.path_and_query().map_or("/", |path| path.as_str());
        let request = http::Request::get(path).header(http::header::HOST, host);
        let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        let body = Limited::new(response.into_body(), MAX_RESPONSE_SIZE).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
        Ok(String::from_utf8_lossy(&body).into_owned())
    };
    tokio::select! {
        body = request => body,
        ended = connection => {
            ended?;
            bail!("{endpoint}: the connection ended without a response")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::get;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn any_response_of_the_kubelet_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/healthz", get(|| async { "ok" }))
            .route("/bad", get(|| async { (StatusCode::INTERNAL_SERVER_ERROR, "not yet") }));
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        for (path, expected) in [("/healthz", "ok"), ("/bad", "not yet"), ("/none", "")] {
            let endpoint = format!("http://{address}{path}").parse().unwrap();
            assert_eq!(probe(&endpoint).await.unwrap(), expected);
        }
        let endpoint: Uri = format!("http://{address}/healthz").parse().unwrap();
        assert!(responds(&endpoint).await);
        assert_eq!(wait_until_running(&endpoint, Duration::ZERO).await, Ok(()));
        server.abort();
        let _ = server.await;
        let endpoint: Uri = format!("http://{address}/healthz").parse().unwrap();
        probe(&endpoint).await.unwrap_err();
        assert!(!responds(&endpoint).await);
        let failed = wait_until_running(&endpoint, Duration::ZERO).await.unwrap_err().to_string();
        assert!(failed.starts_with("kubelet: it ran before the change, and now: "), "{failed}");
        let error = probe(&"https://localhost/".parse().unwrap()).await.unwrap_err().to_string();
        assert!(error.contains("--kubelet-healthz-endpoint"), "{error}");
    }
}
