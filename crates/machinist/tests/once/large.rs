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
    for _ in 0..64 {
        encoder.write_all(&part).unwrap();
        plain.extend_from_slice(&part);
    }
    let encoded = STANDARD.encode(encoder.finish().unwrap());
    let contents = json!({"source": format!("data:;base64,{encoded}"), "compression": "gzip"});
    site.apply(&files("huge", &json!([{"path": "/etc/huge", "contents": contents}])));
    assert_eq!(sha256(&fs::read(site.path("/etc/huge")).unwrap()), sha256(&plain));
}

/// `ulimit -v` of the command, in KiB: enough for the binary and one file at the limit, not for the contents.
const MEMORY_LIMIT_KIB: u64 = 1 << 20;

fn gzip_of_zeros(mebibytes: usize) -> Value {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..mebibytes {
        encoder.write_all(&zeros).unwrap();
    }
    let encoded = STANDARD.encode(encoder.finish().unwrap());
    json!({"source": format!("data:;base64,{encoded}"), "compression": "gzip"})
}

/// Two gigabytes in two megabytes, as one file and as many.
#[test]
fn contents_that_expand_a_thousandfold_are_refused_within_little_memory() {
    let one = json!([{"path": "/etc/bomb", "contents": gzip_of_zeros(2048)}]);
    let part = gzip_of_zeros(60);
    let many: Vec<Value> =
        (0..34).map(|index| json!({"path": format!("/etc/{index}"), "contents": part})).collect();
    for (list, reason) in [
        (one, "/etc/bomb: the contents are larger than 67108864 bytes when unpacked"),
        (json!(many), "the contents are larger than 268435456 bytes when unpacked"),
    ] {
        let site = OnceFixture::new();
        let before = site.snapshot();
        let command = site.command(&files("bomb", &list));
        let mut limited = std::process::Command::new("sh");
        limited.arg("-c").arg(format!("ulimit -v {MEMORY_LIMIT_KIB} && exec \"$0\" \"$@\""));
        let output = limited.arg(command.get_program()).args(command.get_args()).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(reason), "{said}");
        assert_eq!(site.snapshot(), before);
    }
}
