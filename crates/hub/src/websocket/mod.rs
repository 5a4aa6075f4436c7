//! Watches over WebSocket (RFC 6455): the handshake of kube-apiserver, and a session that sends lines as frames.
//!
//! | module | purpose |
//! |---|---|
//! | [`frames`] | reads what a client sends, within limits, and writes the headers of frames |
//! | [`session`] | sends the events and answers control frames until either side closes |
//!
//! The server only sends text and skips what clients send, so this is smaller than the buffers of a general
//! implementation, and a client cannot make it hold anything. Knows nothing about objects; called by `router::watch`
//! and `router::authentication`.

mod frames;
mod session;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, header};
use ring::digest;

pub(crate) use session::serve;

use crate::status::ApiError;

/// What RFC 6455 appends to the key of a client.
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// A subprotocol with this prefix carries a bearer token: browsers cannot send the header.
const TOKEN_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// What the response to a valid handshake contains.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Handshake {
    /// `Sec-WebSocket-Accept`.
    pub(crate) accept: String,
    /// `Sec-WebSocket-Protocol`.
    pub(crate) protocol: Option<String>,
}

fn text(headers: &HeaderMap, name: HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim()
}

/// Whether the client asks for a WebSocket: both headers are needed, as in kube-apiserver.
pub(crate) fn is_requested(headers: &HeaderMap) -> bool {
    let mut connection = headers.get_all(header::CONNECTION).iter();
    text(headers, header::UPGRADE).eq_ignore_ascii_case("websocket")
        && connection.any(|value| {
            value.as_bytes().to_ascii_lowercase().windows(7).any(|word| word == b"upgrade")
        })
}

/// The subprotocols that the client offers.
fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lists = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let words = lists.filter_map(|list| list.to_str().ok()).flat_map(|list| list.split(','));
    words.map(str::trim).filter(|word| !word.is_empty())
}

/// The bearer token in the subprotocols. `Some(Err)`: there is one that cannot be used.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<Result<String, ()>> {
    if !is_requested(headers) {
        return None;
    }
    let mut encoded = protocols(headers).filter_map(|word| word.strip_prefix(TOKEN_PREFIX));
    let first = encoded.next()?;
    // Another one is needed for the answer, which must not repeat the token.
    let is_only_one = encoded.next().is_none();
    let has_other = protocols(headers).any(|word| !word.starts_with(TOKEN_PREFIX));
    if !(is_only_one && has_other) {
        return Some(Err(()));
    }
    let decoded =
        URL_SAFE_NO_PAD.decode(first).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    Some(decoded.ok_or(()))
}

/// Checks a handshake as kube-apiserver does.
///
/// # Errors
/// 400 or 403: the handshake is not one of version 13, has no origin, or has several subprotocols.
pub(crate) fn negotiate(headers: &HeaderMap) -> Result<Handshake, ApiError> {
    let bad = |text: &str| ApiError::bad_request(format!("cannot upgrade to WebSocket: {text}"));
    let key = text(headers, header::SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err(bad("the header Sec-WebSocket-Key is missing"));
    }
    if text(headers, header::SEC_WEBSOCKET_VERSION) != "13" {
        return Err(bad("the header Sec-WebSocket-Version must be 13"));
    }
    let origin = text(headers, header::ORIGIN);
    if !(origin.starts_with('/') || origin.contains(':')) {
        let message = "cannot upgrade to WebSocket: the header Origin must be a URL".to_owned();
        return Err(ApiError { code: 403, reason: "Forbidden", message, details: None });
    }
    let mut offered = protocols(headers).filter(|word| !word.starts_with(TOKEN_PREFIX));
    let protocol = offered.next().map(ToOwned::to_owned);
    if offered.next().is_some() {
        return Err(bad("only one subprotocol can be offered"));
    }
    let digest =
        digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{KEY_SUFFIX}").as_bytes());
    Ok(Handshake { accept: STANDARD.encode(digest), protocol })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers of a client, some replaced. An empty value removes the header.
    fn headers(changes: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let usual = [
            ("upgrade", "websocket"),
            ("connection", "keep-alive, Upgrade"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-version", "13"),
            ("origin", "https://hub:6443"),
        ];
        for (name, value) in usual.iter().chain(changes) {
            headers.remove(*name);
            if !value.is_empty() {
                headers.insert(*name, value.parse().unwrap());
            }
        }
        headers
    }

    #[test]
    fn the_example_of_the_rfc() {
        let found = negotiate(&headers(&[("sec-websocket-protocol", "chat")])).unwrap();
        assert_eq!(found.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(found.protocol.as_deref(), Some("chat"));
        assert_eq!(negotiate(&headers(&[])).unwrap().protocol, None);
    }

    #[test]
    fn refused_handshakes() {
        for (name, value, expected) in [
            ("sec-websocket-key", "", 400),
            ("sec-websocket-version", "", 400),
            ("sec-websocket-version", "8", 400),
            ("sec-websocket-protocol", "a, b", 400),
            ("origin", "", 403),
            ("origin", "null", 403),
        ] {
            let error = negotiate(&headers(&[(name, value)])).unwrap_err();
            assert_eq!(error.code, expected, "{name}: {value}: {error}");
        }
    }

    #[test]
    fn only_both_headers_request_an_upgrade() {
        for (name, value, expected) in [
            ("upgrade", "WebSocket", true),
            ("upgrade", "", false),
            ("upgrade", "SPDY/3.1", false),
            ("connection", "", false),
            ("connection", "keep-alive", false),
            ("connection", "UPGRADE", true),
        ] {
            assert_eq!(is_requested(&headers(&[(name, value)])), expected, "{name}: {value}");
        }
    }

    #[test]
    fn tokens_in_subprotocols() {
        let token = |text: &str| format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(text));
        for (offered, expected) in [
            (format!("{}, base64.binary.k8s.io", token("a.b")), Some(Ok("a.b".to_owned()))),
            ("base64.binary.k8s.io".to_owned(), None),
            (token("a.b"), Some(Err(()))),
            (format!("{}, {}, x", token("a.b"), token("c.d")), Some(Err(()))),
            (format!("{TOKEN_PREFIX}%, x"), Some(Err(()))),
        ] {
            let headers = headers(&[("sec-websocket-protocol", &offered)]);
            assert_eq!(bearer_token(&headers), expected, "{offered}");
        }
        let offered = format!("{}, x", token("a.b"));
        let with_token = headers(&[("sec-websocket-protocol", &offered)]);
        assert_eq!(negotiate(&with_token).unwrap().protocol.as_deref(), Some("x"));
    }
}
