//! Go's `net/url`: whether a text is a URL, its scheme and its query. Accepts what `url.Parse`
//! accepts.

use std::net::Ipv6Addr;

/// The parts of a URL that validation needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoUrl<'a> {
    /// The scheme in lower case; may be empty.
    pub scheme: String,
    /// The text after the scheme if it does not start with a slash.
    pub opaque: &'a str,
    /// The text after the first question mark.
    pub query: &'a str,
}

/// The text is not a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unable to parse url")]
pub struct InvalidUrl;

/// The part of the URL, which decides the allowed characters and escapes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlPart {
    Host,
    Zone,
    Other,
}

/// Parses a URL like Go.
pub fn parse(text: &str) -> Result<GoUrl<'_>, InvalidUrl> {
    let (url, fragment) = text.split_once('#').unwrap_or((text, ""));
    let parsed = parse_without_fragment(url)?;
    check_escapes(fragment, UrlPart::Other)?;
    Ok(parsed)
}

fn parse_without_fragment(url: &str) -> Result<GoUrl<'_>, InvalidUrl> {
    if url.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Err(InvalidUrl);
    }
    let (scheme, rest) = split_scheme(url)?;
    let scheme = scheme.to_ascii_lowercase();
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            return Ok(GoUrl { scheme, opaque: rest, query });
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err(InvalidUrl);
        }
    }
    let mut path = rest;
    if rest.starts_with("//") && (!scheme.is_empty() || !rest.starts_with("///")) {
        let after = &rest[2..];
        let authority = after.split('/').next().unwrap_or_default();
        path = &after[authority.len()..];
        check_authority(&scheme, authority)?;
    }
    check_escapes(path, UrlPart::Other)?;
    Ok(GoUrl { scheme, opaque: "", query })
}

fn split_scheme(url: &str) -> Result<(&str, &str), InvalidUrl> {
    for (index, b) in url.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err(InvalidUrl),
            b':' => return Ok((&url[..index], &url[index + 1..])),
            _ => return Ok(("", url)),
        }
    }
    Ok(("", url))
}

fn check_authority(scheme: &str, authority: &str) -> Result<(), InvalidUrl> {
    let (user, host) = match authority.rfind('@') {
        Some(at) => (Some(&authority[..at]), &authority[at + 1..]),
        None => (None, authority),
    };
    check_host(scheme, host)?;
    if let Some(user) = user {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if !user.chars().all(allowed) {
            return Err(InvalidUrl);
        }
        check_escapes(user, UrlPart::Other)?;
    }
    Ok(())
}

fn check_host(scheme: &str, host: &str) -> Result<(), InvalidUrl> {
    match host.rfind('[') {
        Some(0) => return check_ip_literal(host),
        Some(_) => return Err(InvalidUrl),
        None => {}
    }
    if let Some(first) = host.find(':') {
        let strict = matches!(scheme, "http" | "https");
        let colon = if strict { first } else { host.rfind(':').unwrap_or(first) };
        if !is_optional_port(&host[colon..]) {
            return Err(InvalidUrl);
        }
    }
    check_escapes(host, UrlPart::Host)
}

fn check_ip_literal(host: &str) -> Result<(), InvalidUrl> {
    let close = host.rfind(']').ok_or(InvalidUrl)?;
    let port = &host[close + 1..];
    if !is_optional_port(port) {
        return Err(InvalidUrl);
    }
    let name = &host[1..close];
    let (address, zone) = match name.find("%25") {
        Some(at) => (&name[..at], Some(&name[at..])),
        None => (name, None),
    };
    check_escapes(address, UrlPart::Host)?;
    if let Some(zone) = zone {
        check_escapes(zone, UrlPart::Zone)?;
        if zone.len() <= 3 {
            return Err(InvalidUrl); // Go's netip wants a zone behind the percent sign
        }
    }
    address.parse::<Ipv6Addr>().map(|_| ()).map_err(|_| InvalidUrl)
}

fn is_optional_port(text: &str) -> bool {
    text.is_empty()
        || text.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
}

/// Checks that every `%` starts an escape of two hexadecimal digits. Hosts are stricter.
fn check_escapes(text: &str, part: UrlPart) -> Result<(), InvalidUrl> {
    let bytes = text.as_bytes();
    let mut index = 0;
    while index < bytes.len() {
        let b = bytes[index];
        if b != b'%' {
            if part != UrlPart::Other && b < 0x80 && !is_host_byte(b) {
                return Err(InvalidUrl);
            }
            index += 1;
            continue;
        }
        let byte = match bytes.get(index + 1..index + 3) {
            Some(&[high, low]) => unhex(high).zip(unhex(low)).map(|(h, l)| h << 4 | l),
            _ => None,
        };
        let byte = byte.ok_or(InvalidUrl)?;
        let refused = match part {
            UrlPart::Host => byte < 0x80 && byte != b'%',
            UrlPart::Zone => byte != b'%' && byte != b' ' && !is_host_byte(byte),
            UrlPart::Other => false,
        };
        if refused {
            return Err(InvalidUrl);
        }
        index += 3;
    }
    Ok(())
}

/// Bytes that need no escape in a host.
fn is_host_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&b)
}

fn unhex(b: u8) -> Option<u8> {
    char::from(b).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

impl GoUrl<'_> {
    /// The first value of a query parameter, like Go's `Query()`. `Some("")` if it has no value.
    #[must_use]
    pub fn query_value(&self, name: &str) -> Option<Vec<u8>> {
        self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')).find_map(
            |pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                let (key, value) = (unescape_query(key)?, unescape_query(value)?);
                (key == name.as_bytes()).then_some(value)
            },
        )
    }
}

fn unescape_query(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(b) = bytes.next() {
        out.push(match b {
            b'%' => unhex(bytes.next()?)? << 4 | unhex(bytes.next()?)?,
            b'+' => b' ',
            b => b,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_and_refusals() {
        for (text, scheme) in [
            ("data:,hello", Some("data")),
            ("DATA:,hello", Some("data")),
            ("https://example.com:8443/a?b=c#d", Some("https")),
            ("http://[fe80::1%25en0]:80/", Some("http")),
            ("/relative", Some("")),
            ("", Some("")),
            ("a b", Some("")),
            (":x", None),
            ("http://[::1", None),
            ("http://host:port/", None),
            ("http://a b/", None),
            ("http://x/%zz", None),
            ("1:2", None),
            ("data:,a\nb", None),
            ("http://x/#%", None),
            ("s3://bucket/key?versionId=", Some("s3")),
            ("http://1.2.3.4:80:90/", None),
            ("tftp://a:1:2/", Some("tftp")),
        ] {
            let found = parse(text).ok().map(|url| url.scheme);
            assert_eq!(found.as_deref(), scheme, "{text:?}");
        }
    }

    #[test]
    fn query_values() {
        let url = parse("s3://b/k?a=1&versionId=%41+b").unwrap();
        assert_eq!(url.query_value("versionId"), Some(b"A b".to_vec()));
        assert_eq!(url.query_value("b"), None);
    }
}
