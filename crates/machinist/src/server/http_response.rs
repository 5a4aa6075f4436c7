//! HTTP responses: configs with entity tags and gzip, empty responses, redirects.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body_util::Full;

use super::responses::CachedBody;

/// The response type of all routes.
pub(super) type HttpResponse = Response<Full<Bytes>>;

/// A config, compressed if the client accepts gzip. 304 if the client already has it.
pub(super) async fn config_response(made: &CachedBody, headers: &HeaderMap) -> HttpResponse {
    let is_gzip = accepts_gzip(headers);
    let (body, tag) = match is_gzip {
        true => made.gzip().await,
        false => (made.body.clone(), made.etag.clone()),
    };
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == tag);
    let mut response = match is_known {
        true => empty_response(StatusCode::NOT_MODIFIED),
        false => Response::new(Full::new(body)),
    };
    let head = response.headers_mut();
    head.insert(header::ETAG, tag);
    head.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if !is_known {
        head.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if is_gzip {
            head.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
    }
    response
}

/// Whether the client accepts gzip.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let text = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    text.unwrap_or_default().split(',').any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let is_gzip = parts.next() == Some("gzip");
        let is_refused = parts.any(|part| {
            part.strip_prefix("q=").and_then(|q| q.parse::<f64>().ok()).is_some_and(|q| q <= 0.0)
        });
        is_gzip && !is_refused
    })
}

/// A response without a body.
pub(super) fn empty_response(status: StatusCode) -> HttpResponse {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    if status != StatusCode::NOT_MODIFIED {
        // Also for responses that cannot have a body, such as to HEAD.
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(0));
    }
    response
}

/// Redirects the client. As from Go's server, the body for clients that do not follow redirects is only
/// for those that read.
pub(super) fn redirect(method: &Method, target: &str) -> HttpResponse {
    let Ok(location) = HeaderValue::try_from(target) else {
        return empty_response(StatusCode::BAD_REQUEST);
    };
    // A body for clients that do not follow redirects.
    let shown = target.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&#34;");
    let text = format!("<a href=\"{shown}\">Temporary Redirect</a>.\n\n");
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let mut response = Response::new(if is_read { Full::from(text) } else { Full::default() });
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let head = response.headers_mut();
    head.insert(header::LOCATION, location);
    if is_read {
        head.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_only_if_accepted() {
        for (text, expected) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("gzip;q=0", false),
            ("identity", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(text));
            assert_eq!(accepts_gzip(&headers), expected, "{text}");
        }
    }
}
