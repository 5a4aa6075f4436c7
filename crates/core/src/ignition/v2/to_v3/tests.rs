//! Conversion from specification 2 to 3: paths, duplicates, and what changes its meaning.

use serde_json::{Value, json};

use super::super::{parse, remove_duplicates};
use super::*;

fn upgraded(raw: &Value) -> Result<Value, String> {
    let minor = raw["ignition"]["version"].as_str().unwrap().as_bytes()[2] - b'0';
    let (config, _) = parse(raw, minor).unwrap();
    remove_duplicates(config)
        .and_then(|config| to_v3(&config))
        .map(|config| serde_json::to_value(config).unwrap())
        .map_err(|problem| problem.to_string())
}

fn v2_2(section: &str, contents: Value) -> Value {
    let mut raw = json!({"ignition": {"version": "2.2.0"}});
    raw[section] = contents;
    raw
}

#[test]
fn files_are_converted() {
    for (raw, expected) in [
        (
            json!({"ignition": {"version": "2.0.0"}, "storage": {"files": [
                {"filesystem": "root", "path": "/a", "mode": 420}]}}),
            json!({"contents": {"source": ""}, "group": {"id": 0}, "mode": 420,
                "overwrite": true, "path": "/a", "user": {"id": 0}}),
        ),
        (
            v2_2("storage", json!({"files": [{"filesystem": "data", "path": "/a"}]})),
            json!({"contents": {"source": ""}, "overwrite": true, "path": "/a"}),
        ),
        (
            v2_2(
                "storage",
                json!({"files": [{"filesystem": "root", "append": true,
                "path": "/a", "contents": {"source": "data:,x"}}]}),
            ),
            json!({"append": [{"source": "data:,x"}], "overwrite": false, "path": "/a"}),
        ),
        (
            v2_2(
                "storage",
                json!({"files": [{"filesystem": "root", "overwrite": false,
                "path": "//a/../b/", "user": {"name": "u"}, "group": {}}]}),
            ),
            json!({"contents": {"source": ""}, "overwrite": false, "path": "/b",
                "user": {"name": "u"}}),
        ),
    ] {
        let found = upgraded(&raw).unwrap();
        assert_eq!(found["ignition"], json!({"version": "3.5.0"}));
        assert_eq!(found["storage"], json!({"files": [expected]}), "{raw}");
    }
}

#[test]
fn units_links_and_users_are_converted() {
    let raw = v2_2(
        "systemd",
        json!({"units": [
            {"name": "a.service", "enable": true, "contents": "[Unit]\nA=b"},
            {"name": "b.service", "enable": true, "enabled": false, "mask": true},
        ]}),
    );
    let expected = json!({"units": [
        {"name": "b.service", "enabled": false, "mask": true},
        {"name": "a.service", "enabled": true, "contents": "[Unit]\nA=b"},
    ]});
    assert_eq!(upgraded(&raw).unwrap()["systemd"], expected);
    let raw = v2_2("storage", json!({"links": [{"filesystem": "root", "path": "/l"}]}));
    let expected = json!({"links": [{"path": "/l", "target": ""}]});
    assert_eq!(upgraded(&raw).unwrap()["storage"], expected);
    let raw = v2_2(
        "passwd",
        json!({"users": [
        {"name": "core", "sshAuthorizedKeys": ["a", "b"], "create": {"uid": 5}},
        {"name": "core", "sshAuthorizedKeys": ["c", "a"], "passwordHash": ""}]}),
    );
    let expected = json!({"users": [
        {"name": "core", "passwordHash": "", "sshAuthorizedKeys": ["c", "a", "b"]}]});
    assert_eq!(upgraded(&raw).unwrap()["passwd"], expected);
}

#[test]
fn what_specification_3_cannot_express_is_refused() {
    let node = |path: &str| json!({"filesystem": "root", "path": path, "target": "/t"});
    for (section, contents, expected) in [
        (
            "passwd",
            json!({"users": [{"name": "bob"}]}),
            "unexpected user with name: bob. Only core user is supported",
        ),
        (
            "networkd",
            json!({"units": [{"name": "00.network", "contents": "[Match]\nName=eth0\n"}]}),
            "config includes deprecated networkd section - use Files instead",
        ),
        (
            "storage",
            json!({"filesystems": [
                {"name": "data", "mount": {"device": "/dev/vdb", "format": "xfs"}}]}),
            "Config defined filesystem \"data\" but no mapping was defined.Please specify a path to be used as the filesystem mountpoint.",
        ),
        (
            "storage",
            json!({"disks": [{"device": "/dev/vda", "partitions": [{"number": 1}]}]}),
            "Invalid input config:\ndeprecated at $.storage.disks.0.partitions.0.size: size is deprecated; use sizeMB instead\ndeprecated at $.storage.disks.0.partitions.0.start: start is deprecated; use startMB instead",
        ),
        (
            "storage",
            json!({"files": [node("/a")], "directories": [node("//a")]}),
            "Config has conflicting inodes: \"File: /a\" and \"Directory: /a\".  All files, directories and links must specify a unique `path`.",
        ),
        (
            "storage",
            json!({"files": [node("/ab")], "links": [node("/a")]}),
            "File: /ab uses link defined in config \"/a\". Please use a link not defined in Storage:Links",
        ),
        (
            "systemd",
            json!({"units": [
                {"name": "a.service", "dropins": [{"name": "b.conf"}, {"name": "b.conf"}]}]}),
            "Config has duplicate dropin name \"b.conf\" in unit \"a.service\".  All dropins must specify a unique `name`.",
        ),
        (
            "ignition",
            json!({"version": "2.2.0",
                "config": {"append": [{"source": "http://a"}, {"source": "http://b"}]}}),
            "error at $.ignition.config.merge.1: duplicate entry defined",
        ),
        (
            "storage",
            json!({"raid": [{"name": "r", "level": "1"}]}),
            "error at $.storage.raid.0.devices: raid devices required",
        ),
    ] {
        let raw = v2_2(section, contents);
        assert_eq!(upgraded(&raw).unwrap_err(), expected, "{raw}");
    }
    let unit = json!({"name": "a.service"});
    let (config, _) = parse(&v2_2("systemd", json!({"units": [unit, unit]})), 2).unwrap();
    let name = "a.service".to_owned();
    assert_eq!(to_v3(&config), Err(UpgradeError::DuplicateUnit { name }));
}
