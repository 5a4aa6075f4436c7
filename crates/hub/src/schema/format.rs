//! String formats, and regular expressions with Go's semantics.

use std::net::Ipv6Addr;
use std::sync::LazyLock;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use regex::{Regex, RegexBuilder};

use crate::name_validation;

/// How large a compiled pattern and the cache of its matches may be: a short text can compile to megabytes.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// Base64 with padding, as Go's standard encoding.
static BASE64: LazyLock<GeneralPurpose> = LazyLock::new(|| {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
        .with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(&STANDARD, config)
});

static TIME_PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    own_regex("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$")
});

static HOST_PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    own_regex(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
    )
});

static UUID_PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    own_regex("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$")
});

/// A validated format. Others (`int32`, `int64`, `double`…) are ignored, as in kube-apiserver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StringFormat {
    name: String,
    kind: FormatKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FormatKind {
    Bytes,
    DateTime,
    Date,
    Duration,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uri,
    Uuid,
    ShortName,
    LongName,
    /// Known by name, but not validated.
    Any,
}

impl StringFormat {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let kind = match name.replace('-', "").as_str() {
            "byte" => FormatKind::Bytes,
            "datetime" => FormatKind::DateTime,
            "date" => FormatKind::Date,
            "duration" => FormatKind::Duration,
            "hostname" => FormatKind::Hostname,
            "ipv4" => FormatKind::Ipv4,
            "ipv6" => FormatKind::Ipv6,
            "cidr" => FormatKind::Cidr,
            "mac" => FormatKind::Mac,
            "uri" => FormatKind::Uri,
            "uuid" => FormatKind::Uuid,
            "k8sshortname" => FormatKind::ShortName,
            "k8slongname" => FormatKind::LongName,
            "password" | "email" => FormatKind::Any,
            _ => return None,
        };
        Some(Self { name: name.to_owned(), kind })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn kind(&self) -> FormatKind {
        self.kind
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        match self.kind {
            FormatKind::Bytes => is_base64(text),
            FormatKind::DateTime => date_time(text),
            FormatKind::Date => text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10,
            FormatKind::Duration => duration(text),
            FormatKind::Hostname => {
                text.len() <= 255
                    && matches(&HOST_PATTERN, text)
                    && text.split('.').all(|label| (1..=63).contains(&label.len()))
            }
            FormatKind::Ipv4 => ipv4(text),
            FormatKind::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            FormatKind::Cidr => cidr(text),
            FormatKind::Mac => mac(text),
            FormatKind::Uri => is_url(text),
            FormatKind::Uuid => matches(&UUID_PATTERN, text),
            FormatKind::ShortName => name_validation::validate_dns_label(text).is_empty(),
            FormatKind::LongName => name_validation::validate_subdomain(text).is_empty(),
            FormatKind::Any => true,
        }
    }
}

/// Decodes a base64 string.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

/// Groups of four, the last one padded. kube-apiserver rejects the empty string.
fn is_base64(text: &str) -> bool {
    let body = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
}

fn matches(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

fn date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let date_fits = date.len() == 10 && date.parse::<jiff::civil::Date>().is_ok();
    let fields = |range: std::ops::Range<usize>| time.get(range).unwrap_or("99");
    date_fits
        && matches(&TIME_PATTERN, time)
        && fields(0..2) <= "23"
        && fields(3..5) <= "59"
        && fields(6..8) <= "59"
}

/// Parses `1h30m`, `1.5s`, `-2ms`, and words such as `2 hours`.
fn duration(text: &str) -> bool {
    let text = text.trim_start_matches(['+', '-']);
    if text == "0" {
        return true;
    }
    let mut rest = text;
    let mut some = false;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let known = matches!(
            unit,
            "ns" | "us"
                | "µs"
                | "μs"
                | "ms"
                | "s"
                | "m"
                | "h"
                | "d"
                | "w"
                | "day"
                | "days"
                | "hour"
                | "hours"
                | "minute"
                | "minutes"
                | "second"
                | "seconds"
                | "week"
                | "weeks"
        );
        if number.parse::<f64>().is_err() || !known {
            return false;
        }
        some = true;
        rest = after.trim_start();
    }
    some
}

/// Four numbers; leading zeros are allowed.
fn ipv4(text: &str) -> bool {
    let fits = |part: &str| {
        (1..=3).contains(&part.len())
            && part.bytes().all(|b| b.is_ascii_digit())
            && part.parse::<u8>().is_ok()
    };
    text.split('.').count() == 4 && text.split('.').all(fits)
}

fn cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let max = if ipv4(address) {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    length.parse::<u8>().is_ok_and(|length| length <= max)
}

/// Pairs of digits separated by colons or dashes, or groups of four separated by dots.
fn mac(text: &str) -> bool {
    let hex = |part: &str, width: usize| {
        part.len() == width && part.bytes().all(|b| b.is_ascii_hexdigit())
    };
    [(':', 2, [6, 8, 20]), ('-', 2, [6, 8, 20]), ('.', 4, [3, 4, 10])].into_iter().any(
        |(between, width, counts)| {
            counts.contains(&text.split(between).count())
                && text.split(between).all(|part| hex(part, width))
        },
    )
}

/// An absolute URL or an absolute path, as Go's `ParseRequestURI` accepts it.
pub(super) fn is_url(text: &str) -> bool {
    if text.bytes().any(|b| b < b' ' || b == 0x7f) || !is_valid_percent_encoding(text) {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let scheme_fits = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if !scheme_fits {
        return false;
    }
    let Some(rest) = rest.strip_prefix("//") else { return !rest.is_empty() };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    is_valid_host(host)
}

fn is_valid_percent_encoding(text: &str) -> bool {
    let path = text.split('?').next().unwrap_or_default();
    path.split('%')
        .skip(1)
        .all(|rest| rest.get(..2).is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit())))
}

fn is_valid_host(host: &str) -> bool {
    let (name, port) = if let Some(rest) = host.strip_prefix('[') {
        match rest.split_once(']') {
            Some((name, port)) => (name, port),
            None => return false,
        }
    } else {
        match host.find(':') {
            Some(at) => host.split_at(at),
            None => (host, ""),
        }
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    (port.is_empty() || port.starts_with(':'))
        && digits.bytes().all(|b| b.is_ascii_digit())
        && !name.contains([' ', '<', '>', '"', '^', '`', '{', '}', '|', '\\'])
}

/// Compiles a regular expression of a client with Go's semantics: `\d`, `\w`, `\s` and `\b` match ASCII only.
pub(super) fn regex(pattern: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(&as_in_go(pattern));
    builder.size_limit(MAX_COMPILED_BYTES).dfa_size_limit(MAX_COMPILED_BYTES);
    builder.build().map_err(|error| error.to_string())
}

/// Compiles one of our own patterns, which may be larger.
fn own_regex(pattern: &str) -> Option<Regex> {
    Regex::new(&as_in_go(pattern)).ok()
}

fn as_in_go(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('d') => out.push_str("[0-9]"),
            Some('D') => out.push_str("[^0-9]"),
            Some('w') => out.push_str("[0-9A-Za-z_]"),
            Some('W') => out.push_str("[^0-9A-Za-z_]"),
            Some('s') => out.push_str("[\\t\\n\\f\\r ]"),
            Some('S') => out.push_str("[^\\t\\n\\f\\r ]"),
            Some('b') => out.push_str("(?-u:\\b)"),
            Some(other) => {
                out.push('\\');
                out.push(other);
            }
            None => out.push('\\'),
        }
    }
    out
}
