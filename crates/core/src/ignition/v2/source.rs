//! URLs of a 2.0 config. Ignition 0.35 keeps them parsed and writes them back from the parsed form,
//! which may differ from the text that was read: `HTTP://a/é` becomes `http://a/%C3%A9`.

use super::schema::Config;
use crate::go::url;
use crate::ignition::report::{ConfigPath, IgnitionReport};

/// Normalizes every URL of a 2.0 config; an invalid URL is an error.
pub(super) fn rewrite_all(config: &mut Config, report: &mut IgnitionReport) {
    let section = ConfigPath::root().key("ignition").key("config");
    let mut sources = Vec::new();
    for (index, reference) in config.ignition.config.append.iter_mut().enumerate() {
        sources.push((section.key("append").index(index).key("source"), &mut reference.source));
    }
    if let Some(reference) = &mut config.ignition.config.replace {
        sources.push((section.key("replace").key("source"), &mut reference.source));
    }
    let files = ConfigPath::root().key("storage").key("files");
    for (index, file) in config.storage.files.iter_mut().enumerate() {
        let path = files.index(index).key("contents").key("source");
        sources.push((path, &mut file.contents.source));
    }
    for (path, source) in sources {
        match rewrite(source) {
            Ok(text) => *source = text,
            Err(problem) => report.error(&path, problem),
        }
    }
}

/// The URL as Go's `net/url` writes it after parsing it.
fn rewrite(text: &str) -> Result<String, &'static str> {
    let parsed = url::parse(text).map_err(|_| "unable to parse url")?;
    let (address, fragment) = text.split_once('#').unwrap_or((text, ""));
    if parsed.scheme.is_empty() {
        // Only an empty URL is valid without a scheme; any other is refused later.
        let empty = matches!(address, "" | "//") && fragment.is_empty();
        return Ok(if empty { String::new() } else { text.to_owned() });
    }
    let rest = &address[parsed.scheme.len() + 1..];
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    let mut out = format!("{}:", parsed.scheme);
    if let Some(after) = rest.strip_prefix("//") {
        let host = after.split('/').next().unwrap_or_default();
        let path = &after[host.len()..];
        if host.contains('@') {
            return Err("user information in a url is not supported in a 2.0 config");
        }
        if !after.is_empty() {
            out.push_str("//");
        }
        escape_into(&mut out, &unescape(host), is_host_byte);
        escaped_into(&mut out, path, is_path_byte);
    } else if rest.starts_with('/') {
        escaped_into(&mut out, rest, is_path_byte);
    } else {
        out.push_str(rest);
    }
    if let Some(query) = query {
        out.push('?');
        out.push_str(query);
    }
    if !fragment.is_empty() {
        out.push('#');
        escaped_into(&mut out, fragment, is_fragment_byte);
    }
    Ok(out)
}

/// Keeps a correctly escaped part, and escapes any other.
fn escaped_into(out: &mut String, text: &str, plain: fn(u8) -> bool) {
    if text.bytes().all(|b| b"!$&'()*+,;=:@[]%".contains(&b) || plain(b)) {
        out.push_str(text);
    } else {
        escape_into(out, &unescape(text), plain);
    }
}

fn escape_into(out: &mut String, bytes: &[u8], plain: fn(u8) -> bool) {
    for &b in bytes {
        if plain(b) {
            out.push(char::from(b));
        } else {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            out.push('%');
            out.push(char::from(DIGITS[usize::from(b >> 4)]));
            out.push(char::from(DIGITS[usize::from(b & 15)]));
        }
    }
}

/// Decodes the escapes of a text in which all escapes are well-formed.
fn unescape(text: &str) -> Vec<u8> {
    let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16)).unwrap_or_default();
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(b) = bytes.next() {
        let byte = match b {
            b'%' => {
                let (high, low) = (digit(bytes.next()), digit(bytes.next()));
                u8::try_from(high << 4 | low).unwrap_or_default()
            }
            b => b,
        };
        out.push(byte);
    }
    out
}

fn is_unreserved(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-_.~".contains(&b)
}

fn is_path_byte(b: u8) -> bool {
    is_unreserved(b) || b"$&+,/:;=@".contains(&b)
}

fn is_fragment_byte(b: u8) -> bool {
    is_unreserved(b) || b"!$&()*+,/:;=?@".contains(&b)
}

fn is_host_byte(b: u8) -> bool {
    is_unreserved(b) || b"!\"$&'()*+,:;<=>[]".contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_written_as_go_writes_them() {
        for (text, expected) in [
            ("", Some("")),
            ("#", Some("")),
            ("//", Some("")),
            ("data:,a%20b", Some("data:,a%20b")),
            ("DATA:,x", Some("data:,x")),
            ("HTTP://Example.COM/é?q=é", Some("http://Example.COM/%C3%A9?q=é")),
            ("http://a/b c", Some("http://a/b%20c")),
            ("http://a/%7eb", Some("http://a/%7eb")),
            ("http://a/%7e\"", Some("http://a/~%22")),
            ("http://a/(x)[y]", Some("http://a/(x)[y]")),
            ("http://a?", Some("http://a?")),
            ("http://a/??", Some("http://a/??")),
            ("http://", Some("http:")),
            ("http:///x", Some("http:///x")),
            ("http:/x", Some("http:/x")),
            ("http:", Some("http:")),
            ("http://é/", Some("http://%C3%A9/")),
            ("http://[fe80::1%25en0]:80/", Some("http://[fe80::1%25en0]:80/")),
            ("http://a/#", Some("http://a/")),
            ("http://a/#b c", Some("http://a/#b%20c")),
            ("oem:///a", Some("oem:///a")),
            ("http://u:p@a/", None),
            ("http://a/%zz", None),
        ] {
            assert_eq!(rewrite(text).ok().as_deref(), expected, "{text:?}");
        }
    }
}
