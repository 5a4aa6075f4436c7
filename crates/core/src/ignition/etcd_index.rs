//! The index of an etcd member, a Go template variable in configs that all members share. The server replaces it in what
//! a new machine is served, and the daemon in what it applies later.

use super::contents;
use super::data_url;
use super::schema::{Config, Resource};

/// The template variable.
pub const VARIABLE_NAME: &str = "etcd_index";
/// Larger files contain no templates.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The white space that Go's templates remove.
const WHITESPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// Replaces the variable by the index in units, drop-ins and inline files. Other templates stay
/// unchanged. Returns whether anything was replaced.
pub fn substitute_index(config: &mut Config, index: u16) -> bool {
    let index = index.to_string();
    let mut filled = false;
    for unit in config.systemd.units.iter_mut() {
        filled |= substitute_in_text(&mut unit.contents, &index);
        for dropin in unit.dropins.iter_mut() {
            filled |= substitute_in_text(&mut dropin.contents, &index);
        }
    }
    for file in config.storage.files.iter_mut() {
        filled |= substitute_in_file(&mut file.contents, &index);
    }
    filled
}

fn substitute_in_text(text: &mut Option<String>, index: &str) -> bool {
    let Some(filled) = text.as_deref().and_then(|text| replaced(text, index)) else { return false };
    *text = Some(filled);
    true
}

fn substitute_in_file(contents: &mut Resource, index: &str) -> bool {
    let decoded =
        contents::decode(contents, MAX_FILE_BYTES).ok().and_then(|it| String::from_utf8(it).ok());
    let Some(filled) = decoded.and_then(|text| replaced(&text, index)) else { return false };
    contents.source = Some(data_url::encode(filled.as_bytes()));
    // The compression and the hash were those of the template.
    contents.compression = None;
    contents.verification.hash = None;
    true
}

/// The text with all variables replaced; `None` if it contains none.
fn replaced(text: &str, index: &str) -> Option<String> {
    let (mut out, mut rest, mut found) = (String::new(), text, false);
    while let Some(start) = rest.find("{{") {
        let after = &rest[start + 2..];
        let action = after.find("}}").and_then(|end| Some((end, variable(&after[..end])?)));
        match action {
            Some((end, trims)) => {
                out.push_str(&rest[..start]);
                if trims.before {
                    out.truncate(out.trim_end_matches(WHITESPACE).len());
                }
                out.push_str(index);
                rest = &after[end + 2..];
                if trims.after {
                    rest = rest.trim_start_matches(WHITESPACE);
                }
                found = true;
            }
            None => {
                out.push_str(&rest[..start + 2]);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    found.then_some(out)
}

/// Which white space an action removes.
struct TrimMarkers {
    before: bool,
    after: bool,
}

/// Whether an action is the variable, with or without the markers of Go's templates that remove white space: `{{- ` and
/// ` -}}`.
fn variable(action: &str) -> Option<TrimMarkers> {
    let inner = action.strip_prefix('-').filter(|rest| rest.starts_with(WHITESPACE));
    let (before, action) = (inner.is_some(), inner.unwrap_or(action));
    let inner = action.strip_suffix('-').filter(|rest| rest.ends_with(WHITESPACE));
    let (after, action) = (inner.is_some(), inner.unwrap_or(action));
    let is_variable = action.trim().strip_prefix('.') == Some(VARIABLE_NAME);
    is_variable.then_some(TrimMarkers { before, after })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ignition::parse_and_upgrade;
    use serde_json::json;

    #[test]
    fn only_the_variable_is_replaced() {
        for (text, expected) in [
            ("a{{.etcd_index}}b{{ .etcd_index }}", Some("a7b7")),
            ("{{.other}} {{.etcd_index}} {{", Some("{{.other}} 7 {{")),
            ("{{ {{.etcd_index}}", Some("{{ 7")),
            ("a {{- .etcd_index -}} b", Some("a7b")),
            ("a\n {{- .etcd_index }} b", Some("a7 b")),
            ("a {{ .etcd_index -}}\t\n b", Some("a 7b")),
            ("{{-.etcd_index}}", None),
            ("{{.etcd_index-}}", None),
            ("{{- - .etcd_index}}", None),
            ("{{.etcd_indexes}}", None),
            ("{{if .etcd_index}}", None),
            ("etcd_index", None),
        ] {
            assert_eq!(replaced(text, "7").as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_variable_is_replaced_in_units_dropins_and_files() {
        let raw = json!({
            "ignition": {"version": "3.5.0"},
            "storage": {"files": [
                {"path": "/a", "contents": {"source": "data:,i%3D%7B%7B.etcd_index%7D%7D",
                    "verification": {"hash": format!("sha512-{}", "0".repeat(128))}}},
                {"path": "/b", "contents": {"source": "data:,b"}},
                {"path": "/c", "contents": {"source": "http://example.com/c"}},
            ]},
            "systemd": {"units": [
                {"name": "a.service", "contents": "[Service]\nExecStart=/bin/{{.etcd_index}}\n",
                    "dropins": [{"name": "d.conf", "contents": "[Unit]\nAfter=n{{.etcd_index}}.target\n"}]},
            ]},
        });
        let (mut config, _) = parse_and_upgrade(&raw).unwrap();
        let untouched = config.clone();
        assert!(substitute_index(&mut config, 1));
        let unit = &config.systemd.units[0];
        assert_eq!(unit.contents.as_deref(), Some("[Service]\nExecStart=/bin/1\n"));
        assert_eq!(unit.dropins[0].contents.as_deref(), Some("[Unit]\nAfter=n1.target\n"));
        assert_eq!(config.storage.files[0].contents.source.as_deref(), Some("data:,i%3D1"));
        assert_eq!(config.storage.files[0].contents.verification.hash, None);
        assert_eq!(config.storage.files[1..], untouched.storage.files[1..]);
        assert!(!substitute_index(&mut config, 1));
    }
}
