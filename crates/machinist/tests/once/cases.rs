//! Compares the disk after `machinist once` with what MCO's daemon left.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::fixture::{OnceFixture, sha256};

fn cases() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/disk.jsonl");
    fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A path in the format of the recorded cases.
fn found(site: &OnceFixture, path: &str) -> Value {
    let place = site.path(path);
    let Ok(meta) = place.symlink_metadata() else { return Value::Null };
    if meta.is_symlink() {
        return json!({"link": fs::read_link(&place).unwrap()});
    }
    let sha256 = sha256(&fs::read(&place).unwrap());
    json!({"mode": meta.mode() & 0o7777, "uid": meta.uid(), "gid": meta.gid(), "sha256": sha256})
}

fn password(site: &OnceFixture) -> String {
    let shadow = site.read("etc/shadow");
    let line = shadow.lines().find(|line| line.starts_with("core:")).unwrap();
    line.split(':').nth(1).unwrap().to_owned()
}

/// The links in `*.wants` and `*.requires` to units of the config.
fn wants(site: &OnceFixture, units: &[String]) -> Vec<String> {
    let mut links = Vec::new();
    for directory in fs::read_dir(site.path("etc/systemd/system")).unwrap() {
        let directory = directory.unwrap().file_name().into_string().unwrap();
        if !directory.ends_with(".wants") && !directory.ends_with(".requires") {
            continue;
        }
        for link in fs::read_dir(site.path("etc/systemd/system").join(&directory)).unwrap() {
            let link = link.unwrap().file_name().into_string().unwrap();
            if units.contains(&link) {
                links.push(format!("{directory}/{link}"));
            }
        }
    }
    links.sort();
    links
}

/// The state of a unit that systemctl reports; it prints nothing for a missing unit.
fn is_enabled(site: &OnceFixture, unit: &str) -> Option<String> {
    let root = format!("--root={}", site.root().display());
    let output = Command::new("systemctl").args([&root, "is-enabled", unit]).output().ok()?;
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

#[test]
fn the_root_matches_what_mco_left() {
    let cases = cases();
    assert_eq!(cases.len(), 12);
    for case in cases {
        let (id, expect) = (&case["id"], &case["expect"]);
        let site = OnceFixture::new();
        let before = site.snapshot();
        let output = site.once(&case["machineConfig"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        match expect["rc"].as_i64() {
            Some(0) => assert!(output.status.success(), "{id}: {stderr}"),
            _ => {
                assert_eq!(output.status.code(), Some(3), "{id}: {stderr}");
                assert_eq!(site.snapshot(), before, "{id}: written though refused");
            }
        }
        for (path, wanted) in expect["paths"].as_object().unwrap() {
            assert_eq!(&found(&site, path), wanted, "{id}: {path}");
        }
        let enabled = expect["enabled"].as_object().unwrap();
        let units: Vec<String> = enabled.keys().cloned().collect();
        assert_eq!(json!(wants(&site, &units)), expect["wants"], "{id}: wants");
        for (unit, state) in enabled {
            if let Some(found) = is_enabled(&site, unit) {
                assert_eq!(&json!(found), state, "{id}: {unit}");
            }
        }
        assert_eq!(json!(password(&site)), expect["corePassword"], "{id}: password");
    }
}

#[test]
fn applying_twice_changes_nothing() {
    for case in cases().iter().filter(|case| case["expect"]["rc"] == 0) {
        let site = OnceFixture::new();
        site.apply(&case["machineConfig"]);
        let before = site.snapshot();
        let report = site.apply(&case["machineConfig"]);
        assert_eq!(report["changes"], json!([]), "{}", case["id"]);
        assert_eq!(site.snapshot(), before, "{}", case["id"]);
    }
}
