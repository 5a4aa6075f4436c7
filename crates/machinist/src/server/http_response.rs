//! Answers as HTTP carries them: whole, packed, empty, elsewhere.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;

use super::responses::CachedBody;

/// What goes out.
pub(super) type HttpResponse = Response<Full<Bytes>>;

/// A config, packed if the client takes it so; nothing but its tag if the client has it.
pub(super) async fn config_response(made: &CachedBody, headers: &HeaderMap) -> HttpResponse {
    let packed = accepts_gzip(headers);
    let (body, tag) = match packed {
        true => made.gzip().await,
        false => (made.body.clone(), made.etag.clone()),
    };
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == tag);
    let mut answer = match is_known {
        true => empty_response(StatusCode::NOT_MODIFIED),
        false => Response::new(Full::new(body)),
    };
    let head = answer.headers_mut();
    head.insert(header::ETAG, tag);
    head.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if !is_known {
        head.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if packed {
            head.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
    }
    answer
}

/// Whether the client says that it takes gzip.
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

/// An answer without a body.
pub(super) fn empty_response(status: StatusCode) -> HttpResponse {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    if status != StatusCode::NOT_MODIFIED {
        // Said also where there can be no body, as to HEAD.
        answer.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(0));
    }
    answer
}

/// Sends the client elsewhere.
pub(super) fn redirect(place: &str) -> HttpResponse {
    let Ok(location) = HeaderValue::try_from(place) else {
        return empty_response(StatusCode::BAD_REQUEST);
    };
    // What people see whose browser does not follow.
    let shown = place.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&#34;");
    let text = format!("<a href=\"{shown}\">Temporary Redirect</a>.\n\n");
    let mut answer = Response::new(Full::from(text));
    *answer.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let head = answer.headers_mut();
    head.insert(header::LOCATION, location);
    head.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_gzip() {
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
