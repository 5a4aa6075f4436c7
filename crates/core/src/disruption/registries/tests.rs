//! Every rule in both directions; the pairs include those of MCO's own tests.

use serde_json::{Value, json};

use super::*;
use crate::apply::{empty_config, from_ignition};
use crate::reconcile_check::{ValidationOverrides, check_reconcilable};

/// A file with these search registries and these registries.
fn conf(search: &str, registries: &str) -> String {
    format!("unqualified-search-registries = [{search}]\n{registries}")
}

fn source(text: &str) -> Value {
    json!({"source": crate::ignition::data_url::encode(text.as_bytes())})
}

fn because(old: Option<Value>, new: Option<Value>) -> Option<String> {
    let config = |contents: Option<Value>| match contents {
        None => empty_config(),
        Some(contents) => from_ignition(json!({"ignition": {"version": "3.5.0"},
            "storage": {"files": [{"path": REGISTRIES_CONF, "contents": contents}]}})),
    };
    let change =
        check_reconcilable(&config(old), &config(new), ValidationOverrides::default()).unwrap();
    drain_reason(&change)
}

const BARE: &str = "[[registry]]\nlocation = 'a'\n";
const TAGS: &str = "[[registry]]\nlocation = 'a'\n[[registry.mirror]]\nlocation = 'm'\n";
const DIGESTS: &str = "[[registry]]\nlocation = 'a'\n[[registry.mirror]]\nlocation = 'm'\npull-from-mirror = 'digest-only'\n";
const TAGS_ONLY: &str = "[[registry]]\nlocation = 'a'\n[[registry.mirror]]\nlocation = 'm'\npull-from-mirror = 'tag-only'\n";
const FLAG: &str = "[[registry]]\nlocation = 'a'\nmirror-by-digest-only = true\n";
const FLAG_TAGS: &str = "[[registry]]\nlocation = 'a'\nmirror-by-digest-only = true\n[[registry.mirror]]\nlocation = 'm'\n";
const MORE_DIGESTS: &str =
    "[[registry.mirror]]\nlocation = 'n'\npull-from-mirror = 'digest-only'\n";
const MORE_TAGS: &str = "[[registry.mirror]]\nlocation = 'n'\n";
const PREFIX: &str = "[[registry]]\nprefix = 'a'\nlocation = 'b'\n";
const OTHER: &str = "[[registry]]\nprefix = 'o'\nlocation = 'b'\n";
const TWICE: &str = "[[registry]]\nlocation = 'a'\n[[registry.mirror]]\nlocation = 'm'\npull-from-mirror = 'digest-only'\n[[registry.mirror]]\nlocation = 'm'\n";

#[test]
fn changes_that_do_not_affect_running_pods_are_safe() {
    let both = "'x', 'y'";
    let join = |parts: &[&str]| conf(both, &parts.concat());
    let cases = [
        (join(&[TAGS]), join(&[TAGS])),
        (join(&[]), conf("'x', 'y', 'z'", "")),
        // An additional registry.
        (join(&[]), join(&[DIGESTS])),
        (join(&[]), join(&[DIGESTS, MORE_DIGESTS])),
        (join(&[]), join(&[FLAG])),
        // An additional mirror.
        (join(&[BARE]), join(&[DIGESTS])),
        (join(&[TAGS]), join(&[TAGS, MORE_DIGESTS])),
        (join(&[FLAG_TAGS]), join(&[FLAG_TAGS, MORE_TAGS])),
        // A mirror that is used for fewer images.
        (join(&[TAGS]), join(&[DIGESTS])),
        (join(&[TAGS_ONLY]), join(&[DIGESTS])),
        // Fields that MCO ignores.
        (join(&[TAGS]), join(&[FLAG_TAGS])),
        (join(&[FLAG_TAGS]), join(&[TAGS])),
        (join(&[TAGS]), join(&[TAGS, "insecure = true\n"])),
        (join(&[TWICE]), join(&[TWICE])),
        // The order of registries.
        (join(&[DIGESTS, OTHER]), join(&[OTHER, DIGESTS])),
        (join(&[]), format!("short-name-mode = 'enforcing'\n{}", join(&[]))),
    ];
    for (old, new) in cases {
        let found = because(Some(source(&old)), Some(source(&new)));
        assert_eq!(found, None, "{old}\n→\n{new}");
    }
}

#[test]
fn changes_that_may_affect_running_pods_require_a_drain() {
    let join = |parts: &[&str]| conf("'x', 'y'", &parts.concat());
    let with = |field: &str| join(&["[[registry]]\nlocation = 'a'\n", field]);
    let cases = [
        (join(&[]), conf("'x'", ""), "an entry was removed"),
        (join(&[]), conf("'y', 'x'", ""), "the order changed"),
        (join(&[]), String::new(), "an entry was removed"),
        (join(&[TAGS]), join(&[]), "registry a has been removed"),
        (
            join(&[PREFIX]),
            join(&["[[registry]]\nprefix = 'c'\nlocation = 'b'\n"]),
            "a has been removed",
        ),
        (join(&[]), join(&[BARE]), "registry a has been added"),
        (join(&[]), join(&[TAGS]), "registry a has been added"),
        (join(&[]), join(&[FLAG_TAGS]), "registry a has been added"),
        (join(&[]), join(&[DIGESTS, MORE_TAGS]), "registry a has been added"),
        (
            join(&[BARE]),
            join(&["[[registry]]\nprefix = 'a'\nlocation = 'a'\n"]),
            "different prefix",
        ),
        (
            join(&[PREFIX]),
            join(&["[[registry]]\nprefix = 'a'\nlocation = 'c'\n"]),
            "different location",
        ),
        (with(""), with("blocked = true\n"), "different blocked"),
        (with("insecure = true\n"), with(""), "different insecure"),
        (join(&[DIGESTS, MORE_DIGESTS]), join(&[DIGESTS]), "lost its mirror n"),
        (join(&[DIGESTS]), join(&[TAGS]), "mirror m with a different pull-from-mirror"),
        (join(&[DIGESTS]), join(&[TAGS_ONLY]), "mirror m with a different pull-from-mirror"),
        (join(&[TAGS]), join(&[TAGS_ONLY]), "mirror m with a different pull-from-mirror"),
        (join(&[BARE]), join(&[TAGS]), "new mirror m"),
        (join(&[TAGS]), join(&[TAGS, MORE_TAGS]), "new mirror n"),
        (join(&[]), "this is no TOML".to_owned(), "TOML"),
        ("this is no TOML".to_owned(), join(&[]), "TOML"),
    ];
    for (old, new, expected) in cases {
        let found = because(Some(source(&old)), Some(source(&new))).unwrap_or_default();
        assert!(found.starts_with(REGISTRIES_CONF), "{found}\n{old}\n→\n{new}");
        assert!(found.contains(expected), "{found}\n{old}\n→\n{new}");
    }
}

#[test]
fn an_added_or_removed_file_is_compared_with_an_empty_one() {
    let [digests, tags, search] =
        [conf("", DIGESTS), conf("", TAGS), conf("'x'", "")].map(|text| source(&text));
    assert_eq!(because(None, Some(search.clone())), None);
    assert_eq!(because(None, Some(digests.clone())), None);
    assert!(because(None, Some(tags)).is_some());
    assert!(because(Some(digests), None).is_some());
    assert!(because(Some(search), None).is_some());
}

#[test]
fn a_compressed_file_is_decoded() {
    use std::io::Write as _;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(conf("'x'", DIGESTS).as_bytes()).unwrap();
    let url = crate::ignition::data_url::encode(&gzip.finish().unwrap());
    let packed = json!({"source": url, "compression": "gzip"});
    assert_eq!(because(Some(source(&conf("'x'", ""))), Some(packed.clone())), None);
    let odd = json!({"source": url, "compression": "gzip", "verification": {}});
    assert_eq!(because(Some(packed), Some(odd)), None);
    let remote = json!({"source": "http://elsewhere/registries.conf"});
    assert!(because(None, Some(remote)).is_some());
}
