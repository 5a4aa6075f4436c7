//! Large configs: many files, and very large files.

use std::fs;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::fixture::{OnceFixture, files, nothing, sha256};

#[test]
fn ten_thousand_files_are_written_and_taken_back() {
    write_and_take_back(10_000);
}

#[test]
#[ignore = "half a minute of processor time: cargo test -p machinist --test integration once:: -- --ignored"]
fn a_hundred_thousand_files_are_written_and_taken_back() {
    write_and_take_back(100_000);
}

fn write_and_take_back(count: usize) {
    let site = OnceFixture::new();
    let before = site.snapshot();
    let path = |number: usize| format!("/etc/many/{}/{number}", number % 100);
    let file = |number: usize| json!({"path": path(number), "contents": {"source": format!("data:,{number}")}});
    let list: Vec<Value> = (0..count).map(file).collect();
    let report = site.apply(&files("many", &json!(list)));
    assert!(report["changes"].as_array().unwrap().len() > count);
    for number in [0, 1, count / 2, count - 1] {
        assert_eq!(site.read(&path(number)), number.to_string());
    }
    for directory in [0, 99] {
        let names = fs::read_dir(site.path(&format!("/etc/many/{directory}"))).unwrap();
        assert_eq!(names.count(), count / 100);
    }
    site.apply(&nothing());
    let mut after = site.snapshot();
    after.retain(|path, _| !path.starts_with("/etc/machine-config-daemon"));
    assert_eq!(after, before);
}

/// Compressed in the config, large on the disk.
#[test]
fn a_huge_file_is_written_whole() {
    let site = OnceFixture::new();
    let part: Vec<u8> = (0..=u8::MAX).cycle().take(1 << 20).collect();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let mut plain = Vec::new();
    for _ in 0..96 {
        encoder.write_all(&part).unwrap();
        plain.extend_from_slice(&part);
    }
    let encoded = STANDARD.encode(encoder.finish().unwrap());
    let contents = json!({"source": format!("data:;base64,{encoded}"), "compression": "gzip"});
    site.apply(&files("huge", &json!([{"path": "/etc/huge", "contents": contents}])));
    assert_eq!(sha256(&fs::read(site.path("/etc/huge")).unwrap()), sha256(&plain));
}
