//! One request to the API server and its response, both in JSON.

use std::fmt;

use anyhow::{Context as _, Result};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

/// Any JSON.
pub const ACCEPT_JSON: &str = "application/json";
/// A server-side table, where the server makes one.
pub const ACCEPT_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
/// Only the metadata of a list's objects.
pub const ACCEPT_METADATA: &str =
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
/// A JSON merge patch.
pub const MERGE_PATCH: &str = "application/merge-patch+json";

/// The API server's refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiStatusError {
    /// The status code.
    pub code: u16,
    /// The reason in one word, such as `NotFound`.
    pub reason: String,
    /// The server's message.
    pub message: String,
}

impl ApiStatusError {
    /// Parses the body of a response.
    #[must_use]
    pub fn from_response(code: u16, body: &[u8]) -> Self {
        let status: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |field| status.get(field).and_then(Value::as_str).unwrap_or_default();
        let (reason, mut message) = (text("reason").to_owned(), text("message").to_owned());
        if message.is_empty() {
            message = format!("the server answered {code}");
        }
        Self { code, reason, message }
    }
}

impl fmt::Display for ApiStatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.reason.is_empty() {
            write!(f, " ({})", self.reason)?;
        }
        Ok(())
    }
}

impl std::error::Error for ApiStatusError {}

/// The status code, if the error is a refusal by the server.
#[must_use]
pub fn status_code(error: &anyhow::Error) -> Option<u16> {
    error.downcast_ref::<ApiStatusError>().map(|refusal| refusal.code)
}

/// A successful response.
#[derive(Debug, Clone)]
pub struct JsonResponse {
    /// The object, list or table.
    pub body: Value,
    /// The server's warnings.
    pub warnings: Vec<String>,
}

/// A client of the API server for objects as JSON.
#[derive(Clone)]
pub struct ApiClient {
    client: Client,
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiClient").finish_non_exhaustive()
    }
}

impl ApiClient {
    /// Wraps a kube client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The namespace for requests that name none.
    #[must_use]
    pub fn default_namespace(&self) -> &str {
        self.client.default_namespace()
    }

    /// Reads an object or a list.
    ///
    /// # Errors
    /// An [`ApiStatusError`], or the API server does not respond.
    pub async fn get(&self, path: &str) -> Result<Value> {
        self.get_as(path, ACCEPT_JSON).await
    }

    /// Reads with an `Accept` header, such as [`ACCEPT_TABLE`].
    ///
    /// # Errors
    /// An [`ApiStatusError`], or the API server does not respond.
    pub async fn get_as(&self, path: &str, accept: &str) -> Result<Value> {
        let request = Request::get(path).header("accept", accept).body(Body::empty())?;
        Ok(self.send(request).await?.body)
    }

    /// Reads a list with all its pages as one.
    ///
    /// # Errors
    /// An [`ApiStatusError`], or the API server does not respond.
    pub async fn list_as(&self, path: &str, accept: &str) -> Result<Value> {
        let first = self.get_as(&with_query(path, &[("limit", PAGE_SIZE)]), accept).await?;
        let Some(mut token) = next_page(&first) else { return Ok(first) };
        let mut all = first;
        loop {
            let query = [("limit", PAGE_SIZE), ("continue", token.as_str())];
            let mut page = self.get_as(&with_query(path, &query), accept).await?;
            for field in ["items", "rows"] {
                if let (Some(Value::Array(more)), Some(Value::Array(all))) =
                    (page.get_mut(field).map(Value::take), all.get_mut(field))
                {
                    all.extend(more);
                }
            }
            match next_page(&page) {
                Some(next) => token = next,
                None => return Ok(all),
            }
        }
    }

    /// Creates, patches or deletes.
    ///
    /// # Errors
    /// An [`ApiStatusError`], or the API server does not respond.
    pub async fn write(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<JsonResponse> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("accept", ACCEPT_JSON)
            .header("content-type", content_type)
            .body(Body::from(serde_json::to_vec(body)?))?;
        self.send(request).await
    }

    /// Sends bytes that are no object.
    ///
    /// # Errors
    /// An [`ApiStatusError`], or the API server does not respond.
    pub(crate) async fn upload(&self, path: &str, body: Body) -> Result<Value> {
        let request = Request::put(path)
            .header("accept", ACCEPT_JSON)
            .header("content-type", "application/octet-stream")
            .body(body)?;
        Ok(self.send(request).await?.body)
    }

    /// Opens a stream, whose lines arrive as they are sent.
    ///
    /// # Errors
    /// An [`ApiStatusError`], or the API server does not respond.
    pub(super) async fn open_stream(&self, path: &str, accept: &str) -> Result<Body> {
        let request = Request::get(path).header("accept", accept).body(Body::empty())?;
        let response = self.client.send(request).await.context("the API server does not answer")?;
        let code = response.status();
        if code.is_success() {
            return Ok(response.into_body());
        }
        let body = response.into_body().collect().await?.to_bytes();
        Err(ApiStatusError::from_response(code.as_u16(), &body).into())
    }

    async fn send(&self, request: Request<Body>) -> Result<JsonResponse> {
        let response = self.client.send(request).await.context("the API server does not answer")?;
        let code = response.status();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.filter_map(|text| warning(text.to_str().ok()?)).collect();
        let body =
            response.into_body().collect().await.context("the response broke off")?.to_bytes();
        if !code.is_success() {
            return Err(ApiStatusError::from_response(code.as_u16(), &body).into());
        }
        let body = serde_json::from_slice(&body).context("the response is not JSON")?;
        Ok(JsonResponse { body, warnings })
    }
}

/// How many objects a page of a list has.
const PAGE_SIZE: &str = "500";

fn next_page(list: &Value) -> Option<String> {
    let token = list.pointer("/metadata/continue").and_then(Value::as_str)?;
    (!token.is_empty()).then(|| token.to_owned())
}

/// The text of a `Warning` header: `299 - "the text"`.
fn warning(header: &str) -> Option<String> {
    let quoted = header.split_once('"')?.1;
    let text = quoted.rsplit_once('"').map_or(quoted, |(text, _)| text);
    Some(text.replace("\\\"", "\"").replace("\\\\", "\\"))
}

/// A path with a query; empty values are left out.
#[must_use]
pub fn with_query(path: &str, query: &[(&str, &str)]) -> String {
    let mut text = path.to_owned();
    let mut separator = if path.contains('?') { '&' } else { '?' };
    for (name, value) in query.iter().filter(|(_, value)| !value.is_empty()) {
        text.push(separator);
        text.push_str(name);
        text.push('=');
        text.push_str(&percent_encode(value));
        separator = '&';
    }
    text
}

/// Text, encoded for a path or a query.
#[must_use]
pub fn percent_encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encoded = |byte: u8| {
        if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(encoded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        assert_eq!(with_query("/a", &[]), "/a");
        assert_eq!(
            with_query("/a", &[("x", ""), ("y", "k=v,w"), ("z", "1")]),
            "/a?y=k%3Dv%2Cw&z=1"
        );
        assert_eq!(with_query("/a?b=1", &[("c", "é")]), "/a?b=1&c=%C3%A9");
    }

    #[test]
    fn warnings() {
        assert_eq!(warning("299 - \"field \\\"a\\\"\"").as_deref(), Some("field \"a\""));
        assert_eq!(warning("nonsense"), None);
    }

    #[test]
    fn refusals() {
        let refusal =
            ApiStatusError::from_response(404, br#"{"reason":"NotFound","message":"x not found"}"#);
        assert_eq!(refusal.to_string(), "x not found (NotFound)");
        assert_eq!(
            ApiStatusError::from_response(502, b"<html>").to_string(),
            "the server answered 502"
        );
        assert_eq!(status_code(&refusal.into()), Some(404));
    }
}
