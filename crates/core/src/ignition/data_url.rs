//! `data:` URLs, parsed by the rules of the library that Ignition and the Machine Config Operator
//! use, and written with its escaping byte for byte.

use base64::Engine as _;
#[cfg(any(test, feature = "fuzzing"))]
use base64::engine::general_purpose::STANDARD;

/// Why a text is not a data URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataUrlError {
    /// It does not begin with `data:`.
    #[error("missing data prefix")]
    NoPrefix,
    /// It ends before the data.
    #[error("missing comma before data")]
    NoComma,
    /// The media type is unknown.
    #[error("invalid media type")]
    MediaType,
    /// A parameter is incomplete.
    #[error("unterminated parameter sequence")]
    Parameter,
    /// A character that is not allowed at this position.
    #[error("invalid character in {0}")]
    Character(&'static str),
    /// A `%` that is not followed by two hexadecimal digits.
    #[error("invalid percent escape")]
    Escape,
    /// The data is not base64.
    #[error("illegal base64 data")]
    Base64,
}

/// The bytes that a data URL holds.
pub fn decode(url: &str) -> Result<Vec<u8>, DataUrlError> {
    match split(url)? {
        (true, data) => decode_base64(data),
        (false, data) => {
            check_text(data)?;
            unescape(data)
        }
    }
}

/// Checks whether the URL can be decoded, without keeping the bytes.
pub fn check(url: &str) -> Result<(), DataUrlError> {
    match split(url)? {
        (true, data) => decode_base64(data).map(|_| ()),
        (false, data) => {
            check_text(data)?;
            check_escapes(data)
        }
    }
}

/// The data URL of some bytes, as `data:,` with percent escapes.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 6);
    out.push_str("data:,");
    for &b in bytes {
        if b.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&b) {
            out.push(char::from(b));
        } else {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            out.push('%');
            out.push(char::from(DIGITS[usize::from(b >> 4)]));
            out.push(char::from(DIGITS[usize::from(b & 15)]));
        }
    }
    out
}

/// Splits a URL into whether the data is base64, and the data.
fn split(url: &str) -> Result<(bool, &str), DataUrlError> {
    let mut rest = url.strip_prefix("data:").ok_or(DataUrlError::NoPrefix)?;
    if !rest.starts_with([';', ',']) {
        rest = skip_media_type(rest)?;
    }
    loop {
        match rest.as_bytes().first() {
            Some(b',') => return Ok((false, &rest[1..])),
            Some(b';') => {}
            Some(_) => return Err(DataUrlError::Character("media type parameters")),
            None => return Err(DataUrlError::NoComma),
        }
        let parameter = &rest[1..];
        let name_length = token_length(parameter);
        let name = &parameter[..name_length];
        match parameter.as_bytes().get(name_length) {
            Some(_) if name.is_empty() => {
                return Err(DataUrlError::Character("a parameter's name"));
            }
            Some(b'=') => rest = skip_parameter_value(&parameter[name_length + 1..])?,
            Some(b',') if name == "base64" => return Ok((true, &parameter[name_length + 1..])),
            Some(b',') | None => return Err(DataUrlError::Parameter),
            Some(_) => return Err(DataUrlError::Character("a parameter's name")),
        }
    }
}

fn skip_media_type(rest: &str) -> Result<&str, DataUrlError> {
    let length = token_length(rest);
    let kind = &rest[..length];
    match rest.as_bytes().get(length) {
        Some(b'/') if length > 0 => {}
        None if length > 0 => return Err(DataUrlError::MediaType),
        None => return Err(DataUrlError::NoComma),
        Some(_) => return Err(DataUrlError::Character("the media type")),
    }
    let extension = kind.len() >= 2 && (kind.starts_with("x-") || kind.starts_with("X-"));
    const KNOWN: [&str; 7] =
        ["text", "image", "audio", "video", "application", "message", "multipart"];
    if !extension && !KNOWN.iter().any(|known| kind.starts_with(known)) {
        return Err(DataUrlError::MediaType);
    }
    let subtype = &rest[length + 1..];
    let rest = &subtype[token_length(subtype)..];
    match rest.as_bytes().first() {
        Some(b';' | b',') => Ok(rest),
        Some(_) => Err(DataUrlError::Character("the media subtype")),
        None => Err(DataUrlError::MediaType),
    }
}

fn skip_parameter_value(rest: &str) -> Result<&str, DataUrlError> {
    if let Some(quoted) = rest.strip_prefix('"') {
        return skip_quoted(quoted);
    }
    let length = token_length(rest);
    match rest.as_bytes().get(length) {
        None => Err(DataUrlError::NoComma),
        Some(b';' | b',') if length > 0 => {
            check_escapes(&rest[..length])?;
            Ok(&rest[length..])
        }
        Some(_) => Err(DataUrlError::Character("a parameter's value")),
    }
}

/// A quoted value: the text between the quotes must also be a valid Go string literal.
fn skip_quoted(quoted: &str) -> Result<&str, DataUrlError> {
    let mut escaped = false;
    for (index, c) in quoted.char_indices() {
        match c {
            _ if !c.is_ascii() => return Err(DataUrlError::Character("a quoted parameter")),
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => {
                if !is_go_string_body(&quoted[..index]) {
                    return Err(DataUrlError::Character("a quoted parameter"));
                }
                return Ok(&quoted[index + 1..]);
            }
            _ => {}
        }
    }
    Err(DataUrlError::Character("a quoted parameter"))
}

/// Whether Go's `strconv.Unquote` accepts the text between double quotes.
fn is_go_string_body(body: &str) -> bool {
    let mut chars = body.chars();
    let hex = |chars: &mut std::str::Chars<'_>, digits: usize| {
        (0..digits).try_fold(0_u32, |value, _| {
            chars.next().and_then(|c| c.to_digit(16)).map(|digit| value << 4 | digit)
        })
    };
    while let Some(c) = chars.next() {
        let fine = match c {
            '\n' | '"' => false,
            '\\' => match chars.next() {
                Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\' | '"') => true,
                Some('x') => hex(&mut chars, 2).is_some(),
                Some('u') => hex(&mut chars, 4).and_then(char::from_u32).is_some(),
                Some('U') => hex(&mut chars, 8).and_then(char::from_u32).is_some(),
                Some(first @ '0'..='7') => {
                    let rest: Option<Vec<u32>> =
                        (0..2).map(|_| chars.next().and_then(|c| c.to_digit(8))).collect();
                    let first = first.to_digit(8).unwrap_or_default();
                    rest.is_some_and(|digits| {
                        digits.iter().fold(first, |value, digit| value << 3 | digit) <= 255
                    })
                }
                _ => false,
            },
            _ => true,
        };
        if !fine {
            return false;
        }
    }
    true
}

/// How many bytes at the start are token characters.
fn token_length(text: &str) -> usize {
    let special = b"()<>@,;:\\\"/[]?=";
    text.bytes().position(|b| !b.is_ascii_graphic() || special.contains(&b)).unwrap_or(text.len())
}

fn check_text(data: &str) -> Result<(), DataUrlError> {
    let refused = |b: u8| !b.is_ascii_graphic() || b"<>#\"{}|\\^[]`".contains(&b);
    if data.bytes().any(refused) { Err(DataUrlError::Character("the data")) } else { Ok(()) }
}

fn check_escapes(data: &str) -> Result<(), DataUrlError> {
    let mut bytes = data.bytes();
    let hex = |bytes: &mut std::str::Bytes<'_>| bytes.next().is_some_and(|b| b.is_ascii_hexdigit());
    while let Some(b) = bytes.next() {
        if b == b'%' && !(hex(&mut bytes) && hex(&mut bytes)) {
            return Err(DataUrlError::Escape);
        }
    }
    Ok(())
}

fn unescape(data: &str) -> Result<Vec<u8>, DataUrlError> {
    let mut out = Vec::with_capacity(data.len());
    let mut bytes = data.bytes();
    let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16));
    while let Some(b) = bytes.next() {
        if b == b'%' {
            let (high, low) = (digit(bytes.next()), digit(bytes.next()));
            let byte = high.zip(low).and_then(|(high, low)| u8::try_from(high << 4 | low).ok());
            out.push(byte.ok_or(DataUrlError::Escape)?);
        } else {
            out.push(b);
        }
    }
    Ok(out)
}

fn decode_base64(data: &str) -> Result<Vec<u8>, DataUrlError> {
    let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'\n');
    if !data.bytes().all(known) {
        return Err(DataUrlError::Character("the data"));
    }
    let decoded = if data.contains('\n') {
        GO_STANDARD.decode(data.replace('\n', ""))
    } else {
        GO_STANDARD.decode(data)
    };
    decoded.map_err(|_| DataUrlError::Base64)
}

/// As Go's `base64.StdEncoding`: padding is required, trailing bits are ignored.
const GO_STANDARD: base64::engine::GeneralPurpose = base64::engine::GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    base64::engine::GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Standard base64 of some bytes, for tests and benchmarks.
#[cfg(any(test, feature = "fuzzing"))]
#[must_use]
pub fn encode_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_data_url_is_decoded() {
        for (url, expected) in [
            ("data:,", Some("")),
            ("data:,a%20b", Some("a b")),
            ("data:text/plain,hello", Some("hello")),
            ("data:text/plain;charset=utf-8,h", Some("h")),
            ("data:text/plain;charset=utf-8;base64,aGVsbG8=", Some("hello")),
            ("data:;base64,aGVsbG8=", Some("hello")),
            ("data:;base64,aGVs\nbG8=", Some("hello")),
            ("data:x-a/b,c", Some("c")),
            ("data:text/plain;a=\"q\\\"x\",c", Some("c")),
            ("data:;base64,aGVsbG8", None),
            ("data:;base64,aGVsbG9=", Some("hello")),
            ("data:base64,x", None),
            ("data:,a b", None),
            ("data:,%2", None),
            ("data:,%zz", None),
            ("data:foo/bar,x", None),
            ("data:text,x", None),
            ("data:;,x", None),
            ("data:;a=,x", None),
            ("data", None),
            ("http://x", None),
            ("data:,é", None),
            ("data:,a#b", None),
        ] {
            let found = decode(url).ok().map(|bytes| String::from_utf8(bytes).unwrap());
            assert_eq!(found.as_deref(), expected, "{url:?}");
            assert_eq!(check(url).is_ok(), expected.is_some(), "{url:?}");
        }
    }

    #[test]
    fn encoded_bytes_decode_to_the_same_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&bytes)).unwrap(), bytes);
        assert_eq!(encode(b"a b/c"), "data:,a%20b%2Fc");
    }
}
