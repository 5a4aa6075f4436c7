//! Answers one request: lets `core::metrics_access` decide, has tokens reviewed, and renders the page.

use std::net::IpAddr;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use machinist_core::metrics_access::{
    ListenerProtection, MetricsDecision, MetricsPage, MetricsRejection, MetricsRequest,
    ReviewResult, decide,
};

use super::token_reviewer::TokenReviewer;
use super::{MetricsEndpoint, render};

/// How long a client should wait before it asks again, in seconds.
const RETRY_AFTER: &str = "5";

/// Answers the requests of a metrics endpoint.
#[derive(Debug)]
pub(super) struct MetricsHandler {
    pub(super) endpoint: MetricsEndpoint,
    pub(super) protection: ListenerProtection,
    /// Who verifies tokens; none if the listener is open.
    pub(super) reviewer: Option<TokenReviewer>,
}

impl MetricsHandler {
    pub(super) async fn handle(&self, head: &Parts, address: IpAddr) -> Response<Full<Bytes>> {
        let authorization = head.headers.get(header::AUTHORIZATION);
        let request = MetricsRequest {
            method: head.method.as_str(),
            path: head.uri.path(),
            authorization: authorization.map(|value| value.to_str().unwrap_or_default()),
        };
        let decision = match decide(self.protection, request, None) {
            MetricsDecision::Review(token) => {
                let result = match &self.reviewer {
                    Some(reviewer) => reviewer.review(token, address).await,
                    None => ReviewResult::Failed,
                };
                decide(self.protection, request, Some(&result))
            }
            decision => decision,
        };
        let mut response = match decision {
            MetricsDecision::Serve(page) => self.page(page),
            // Only a decision without a result asks for a review.
            MetricsDecision::Review(_) => rejection(&MetricsRejection::ReviewFailed),
            MetricsDecision::Reject(reason) => {
                tracing::debug!(%address, path = request.path, status = reason.status(), "rejected");
                rejection(&reason)
            }
        };
        if head.method == Method::HEAD {
            *response.body_mut() = Full::default();
        }
        response
    }

    fn page(&self, page: MetricsPage) -> Response<Full<Bytes>> {
        match page {
            MetricsPage::Metrics => {
                let mut response = text(StatusCode::OK, render(&self.endpoint.sources));
                let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                response.headers_mut().insert(header::CONTENT_TYPE, kind);
                response
            }
            MetricsPage::Healthz => text(StatusCode::OK, "ok".to_owned()),
            MetricsPage::Readyz { details } => {
                let (status, body) = self.endpoint.readiness.response(details);
                text(status, body)
            }
        }
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn rejection(reason: &MetricsRejection) -> Response<Full<Bytes>> {
    let status = StatusCode::from_u16(reason.status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let mut response = text(status, format!("{}\n", reason.text()));
    let extra = match status {
        StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
        StatusCode::SERVICE_UNAVAILABLE => Some((header::RETRY_AFTER, RETRY_AFTER)),
        StatusCode::METHOD_NOT_ALLOWED => Some((header::ALLOW, "GET, HEAD")),
        _ => None,
    };
    if let Some((name, value)) = extra {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
