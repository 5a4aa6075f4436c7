//! Validation of specification 2 configs: which configs are refused, and with which message.

use serde_json::{Value, json};

use super::super::parse;
use super::*;

/// The findings about a config of `2.<minor>.0` with one section.
fn findings(minor: u8, section: &str, contents: Value) -> Vec<String> {
    let mut raw = json!({"ignition": {"version": format!("2.{minor}.0")}});
    raw[section] = contents;
    let report = match parse(&raw, minor) {
        Ok((_, report)) | Err(report) => report,
    };
    report.entries.iter().map(|entry| format!("{}: {}", entry.severity, entry.message)).collect()
}

#[test]
fn each_version_accepts_its_own_url_schemes() {
    let file = |source: &str| {
        json!({"files": [{"filesystem": "root", "path": "/a", "mode": 420,
        "contents": {"source": source}}]})
    };
    let sources = [
        ("", [None; 3]),
        ("data:,x", [None; 3]),
        ("oem:///x", [None; 3]),
        ("http://a/b", [None; 3]),
        ("tftp://a/b", [Some("error: invalid url scheme"), None, None]),
        ("s3://a/b", [Some("error: invalid url scheme"), None, None]),
        ("gs://a/b", [Some("error: invalid url scheme"); 3]),
        ("http://[", [Some("error: unable to parse url"); 3]),
        ("//", [None, Some("error: invalid url scheme"), Some("error: invalid url scheme")]),
        (
            "http://u@h/",
            [Some("error: user information in a url is not supported in a 2.0 config"), None, None],
        ),
        (
            "s3://a/b?versionId=",
            [
                Some("error: invalid url scheme"),
                Some("error: invalid S3 object VersionId"),
                Some("error: invalid S3 object VersionId"),
            ],
        ),
    ];
    for (source, expected) in sources {
        for (minor, expected) in (0..).zip(expected) {
            let found = findings(minor, "storage", file(source));
            assert_eq!(found, Vec::from_iter(expected), "{source:?} in 2.{minor}");
        }
    }
}

fn check_storage(cases: Vec<(u8, Value, Vec<&str>)>) {
    for (minor, contents, expected) in cases {
        assert_eq!(findings(minor, "storage", contents.clone()), expected, "2.{minor} {contents}");
    }
}

#[test]
fn filesystems_are_validated() {
    let format = |format: &str, label: &str| {
        json!({"filesystems": [
        {"name": "a", "mount": {"device": "/dev/a", "format": format, "label": label}}]})
    };
    check_storage(vec![
        (0, format("ext4", ""), vec!["warning: unused key label"]),
        (
            0,
            format("vfat", ""),
            vec!["error: invalid filesystem format", "warning: unused key label"],
        ),
        (1, format("vfat", "x"), vec![]),
        (
            2,
            format("xfs", "0123456789abc"),
            vec!["error: filesystem labels cannot be longer than 12 characters when using xfs"],
        ),
        (2, json!({"filesystems": [{}]}), vec!["error: filesystem is missing mount or path"]),
        (
            2,
            json!({"filesystems": [{"name": "root", "path": "a"}]}),
            vec![
                "warning: Filesystem \"root\" shadows exising filesystem definition",
                "error: path not absolute",
            ],
        ),
        (
            1,
            json!({"filesystems": [{"mount": {"device": "/d", "format": "xfs", "create": {},
                "wipeFilesystem": true, "options": ["a"]}}]}),
            vec![
                "error: cannot use both create object and wipeFilesystem field",
                "error: cannot use both create object and mount-level options field",
                "warning: the create object has been deprecated in favor of mount-level options",
            ],
        ),
    ]);
}

#[test]
fn disks_files_and_raid_arrays_are_validated() {
    let parts = |partitions: Value| json!({"disks": [{"device": "/d", "partitions": partitions}]});
    let file = |mut file: Value| {
        file["path"] = json!("/a");
        json!({"files": [file]})
    };
    check_storage(vec![
        (2, parts(json!([{"start": 2048}, {"start": 2048}])), vec![]),
        (
            2,
            parts(
                json!([{"number": 1, "start": 2048}, {"number": 1, "start": 2048}, {"start": 1}]),
            ),
            vec!["error: partition numbers collide", "error: partitions misaligned"],
        ),
        (
            2,
            parts(json!([{"start": 2048, "size": 4096}, {"start": 4096, "label": "a:b"}])),
            vec![
                "error: partitions overlap",
                "warning: partition label will be truncated to text before the colon",
            ],
        ),
        (2, file(json!({"mode": 1})), vec!["error: no filesystem specified"]),
        (
            2,
            file(json!({"filesystem": "b"})),
            vec![
                "warning: File \"/a\" references nonexistent filesystem \"b\". (This is ok if it is defined in a referenced config)",
                "warning: permissions unset, defaulting to 0000",
            ],
        ),
        (1, file(json!({"filesystem": "root"})), vec![]),
        (
            2,
            file(json!({"append": true, "overwrite": true})),
            vec!["error: cannot set both append and overwrite to true"],
        ),
        (
            2,
            file(json!({"filesystem": "root", "mode": 4096, "user": {"id": 0, "name": "a"},
                "contents": {"compression": "zip", "verification": {"hash": "sha256-"}}})),
            vec![
                "error: cannot set both id and name",
                "error: invalid compression method",
                "error: unrecognized hash function",
                "error: illegal file mode",
            ],
        ),
        (
            2,
            json!({"raid": [{"level": "0", "spares": 1}, {"level": "7", "devices": ["a"]}]}),
            vec![
                "error: spares unsupported for arrays with a level greater than 0",
                "error: unrecognized raid level",
                "error: path not absolute",
            ],
        ),
    ]);
}

#[test]
fn units_and_users_are_validated() {
    for (section, contents, expected) in [
        (
            "systemd",
            json!({"units": [{"name": "a", "enable": true, "contents": "[Unit]\nA=b",
                "dropins": [{"name": "b"}]}]}),
            vec![
                "warning: unit \"a\" is enabled, but has no install section so enable does nothing",
                "error: invalid systemd drop-in extension",
                "error: invalid systemd unit extension",
            ],
        ),
        (
            "systemd",
            json!({"units": [{"name": "a.service", "enable": true, "contents": "no section"}]}),
            vec![],
        ),
        (
            "networkd",
            json!({"units": [{"name": "a.network", "dropins": [{}]}, {"dropins": [{}]}]}),
            vec![
                "error: invalid networkd drop-in extension",
                "error: invalid networkd unit extension",
            ],
        ),
        (
            "passwd",
            json!({"users": [{"create": {}, "shell": "/bin/sh", "uid": 0}]}),
            vec![
                "warning: the create object has been deprecated in favor of user-level options",
                "error: cannot use both the create object and the user-level shell field",
                "error: cannot use both the create object and the user-level uid field",
            ],
        ),
    ] {
        assert_eq!(findings(2, section, contents.clone()), expected, "{contents}");
    }
}

#[test]
fn the_version_of_a_config_in_memory_is_validated() {
    for (version, problem) in [
        ("2.2.0", None),
        ("2.0.0", None),
        ("2.2.0-dev", None),
        ("2.3.0", Some("incorrect config version (too new)")),
        ("1.0.0", Some("incorrect config version (too old)")),
        ("", Some("invalid config version (couldn't parse)")),
    ] {
        let mut config = Config::default();
        version.clone_into(&mut config.ignition.version);
        let report = validate(&config);
        let found = report.entries.first().map(|entry| entry.message.as_str());
        assert_eq!(found, problem, "{version:?}");
    }
}
