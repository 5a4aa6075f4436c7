//! URLs: `url("https://example.com:80/a").getHost()`.

use std::any::Any;
use std::collections::HashMap;

use cel::common::types::{CelList, CelMap, CelString, Type};
use cel::common::value::{StaticVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use crate::schema::format;

static URL: Type = Type::new_unspecified_type("kubernetes.URL");

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Url {
    scheme: String,
    /// With the port.
    host: String,
    path: String,
    query: String,
}

impl Val for Url {
    fn get_type(&self) -> &Type {
        <Self as Val>::cel_type()
    }

    fn cel_type() -> &'static Type {
        &URL
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| other == self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Url {}

pub(super) fn register(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn url: (CelString) -> Result<Url>)?;
    cel::add_member_overload!(env, fn scheme: (Url) -> CelString, name = "getScheme")?;
    cel::add_member_overload!(env, fn host: (Url) -> CelString, name = "getHost")?;
    cel::add_member_overload!(env, fn hostname: (Url) -> CelString, name = "getHostname")?;
    cel::add_member_overload!(env, fn port: (Url) -> CelString, name = "getPort")?;
    cel::add_member_overload!(env, fn path: (Url) -> CelString, name = "getEscapedPath")?;
    cel::add_member_overload!(env, fn query: (Url) -> CelMap, name = "getQuery")
}

fn url(text: &CelString<'_>) -> Result<Url, ExecutionError> {
    let text = text.inner();
    if !format::is_url(text) {
        let why = format!("URL parse error during conversion from string: \"{text}\"");
        return Err(ExecutionError::function_error("url", why));
    }
    let (rest, query) = text.split_once('?').unwrap_or((text, ""));
    let mut parsed = Url { query: query.to_owned(), ..Url::default() };
    if rest.starts_with('/') {
        parsed.path = rest.to_owned();
        return Ok(parsed);
    }
    let (scheme, rest) = rest.split_once(':').unwrap_or(("", rest));
    parsed.scheme = scheme.to_lowercase();
    if let Some(rest) = rest.strip_prefix("//") {
        let end = rest.find('/').unwrap_or(rest.len());
        let authority = &rest[..end];
        parsed.host = authority.rsplit('@').next().unwrap_or_default().to_owned();
        parsed.path = rest[end..].to_owned();
    }
    Ok(parsed)
}

fn owned(text: &str) -> CelString<'static> {
    CelString::from(text.to_owned())
}

fn scheme(url: &Url) -> CelString<'static> {
    owned(&url.scheme)
}

fn host(url: &Url) -> CelString<'static> {
    owned(&url.host)
}

/// The name without brackets, and the port.
fn split_host(host: &str) -> (&str, &str) {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, port)) => (name, port.trim_start_matches(':')),
        None => host.rsplit_once(':').unwrap_or((host, "")),
    }
}

fn hostname(url: &Url) -> CelString<'static> {
    owned(split_host(&url.host).0)
}

fn port(url: &Url) -> CelString<'static> {
    owned(split_host(&url.host).1)
}

fn path(url: &Url) -> CelString<'static> {
    let mut escaped = String::with_capacity(url.path.len());
    for byte in url.path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@/%".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    CelString::from(escaped)
}

fn query(url: &Url) -> CelMap<'static> {
    let mut found: HashMap<String, Vec<Box<dyn Val>>> = HashMap::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (decode(name), decode(value)) else { continue };
        found.entry(name).or_default().push(Box::new(CelString::from(value)));
    }
    let entries = found.into_iter().map(|(name, values)| {
        let list: Box<dyn Val> = Box::new(CelList::from(values));
        (name.into(), list)
    });
    CelMap::from(entries.collect::<HashMap<_, _>>())
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let digits = std::str::from_utf8(&digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok()
}
