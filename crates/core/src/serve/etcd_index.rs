//! The index of an etcd member. Configs that all members share contain it as a Go template
//! variable.

use super::error::ServeError;
use super::route::query_parameter;
use crate::api::names::object;
use crate::ignition::Config;
use crate::ignition::contents;
use crate::ignition::data_url;
use crate::ignition::schema::Resource;

/// The template variable.
const VARIABLE_NAME: &str = "etcd_index";
/// Larger files contain no templates.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Whether machines of a pool run etcd.
#[must_use]
pub fn is_control_plane(pool: &str) -> bool {
    [object::POOL_MASTER, object::POOL_ARBITER].contains(&pool)
}

/// The valid index in a request, if there is one.
///
/// # Errors
/// The index is invalid.
pub fn requested_index(pool: &str, query: Option<&str>) -> Result<Option<u16>, ServeError> {
    let Some(text) = query_parameter(query, VARIABLE_NAME).filter(|_| is_control_plane(pool))
    else {
        return Ok(None);
    };
    if text.is_empty() {
        return Ok(None);
    }
    let is_number = text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    number.map(Some).ok_or_else(|| ServeError::InvalidEtcdIndex(text.chars().take(40).collect()))
}

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
        match after.find("}}").filter(|end| is_variable(&after[..*end])) {
            Some(end) => {
                out.push_str(&rest[..start]);
                out.push_str(index);
                rest = &after[end + 2..];
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

fn is_variable(action: &str) -> bool {
    action.trim().strip_prefix('.') == Some(VARIABLE_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ignition::parse_and_upgrade;
    use serde_json::json;

    #[test]
    fn the_index_of_a_request_is_validated() {
        let asked =
            |pool: &str, query: &str| requested_index(pool, Some(query)).map_err(|it| it.status());
        for (query, expected) in [
            ("etcd_index=0", Ok(Some(0))),
            ("etcd_index=12", Ok(Some(12))),
            ("etcd_index=", Ok(None)),
            ("other=1", Ok(None)),
            ("etcd_index=a", Err(400)),
            ("etcd_index=-1", Err(400)),
            ("etcd_index=%2B1", Err(400)),
            ("etcd_index=1.5", Err(400)),
            ("etcd_index=10000", Err(400)),
            ("etcd_index=1%0AExecStart%3D", Err(400)),
        ] {
            assert_eq!(asked("master", query), expected, "{query}");
            assert_eq!(asked("arbiter", query), expected, "{query}");
            // Other machines run no etcd and ignore the query.
            assert_eq!(asked("worker", query), Ok(None), "{query}");
        }
    }

    #[test]
    fn only_the_variable_is_replaced() {
        for (text, expected) in [
            ("a{{.etcd_index}}b{{ .etcd_index }}", Some("a7b7")),
            ("{{.other}} {{.etcd_index}} {{", Some("{{.other}} 7 {{")),
            ("{{ {{.etcd_index}}", Some("{{ 7")),
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
