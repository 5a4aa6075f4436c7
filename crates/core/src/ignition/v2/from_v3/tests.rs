//! Conversion from specification 3 to 2.2: what is kept, and what cannot be expressed.

use serde_json::{Value, json};

use super::*;
use crate::ignition::config_part::ConfigDecoder;

fn downgraded(sections: &Value) -> Result<Value, String> {
    let mut config = v3::Config::default();
    config.decode(sections, &mut ConfigDecoder::new(2));
    let config = from_v3(&config).map_err(|problem| problem.to_string())?;
    Ok(serde_json::to_value(config).unwrap())
}

#[test]
fn files_belong_to_the_file_system_with_the_longest_path() {
    let file = |path: &str| json!({"path": path, "contents": {"source": "data:,x"}});
    let raw = json!({"storage": {
        "files": [file("/var/lib/a"), file("/var/b"), file("/c")],
        "filesystems": [
            {"device": "/dev/a", "format": "xfs", "path": "/var"},
            {"device": "/dev/b", "format": "xfs", "path": "/var/lib"},
            {"device": "/dev/c", "format": "ext4"},
        ],
    }});
    let file = |filesystem: &str, path: &str| {
        json!({"filesystem": filesystem, "path": path, "overwrite": false,
            "contents": {"source": "data:,x"}})
    };
    let filesystem = |name: &str, device: &str, format: &str| {
        json!({"name": name,
        "mount": {"device": device, "format": format}})
    };
    let expected = json!({"ignition": {"version": "2.2.0"}, "storage": {
        "files": [file("/var/lib", "/a"), file("/var", "/b"), file("root", "/c")],
        "filesystems": [
            filesystem("/var", "/dev/a", "xfs"),
            filesystem("/var/lib", "/dev/b", "xfs"),
            filesystem("1", "/dev/c", "ext4"),
        ],
    }});
    assert_eq!(downgraded(&raw), Ok(expected));
}

#[test]
fn a_file_is_split_into_contents_and_appended_parts() {
    let raw = json!({"storage": {"files": [
        {"path": "/a", "overwrite": true, "mode": 420, "user": {"name": ""},
         "contents": {"source": "", "compression": "gzip"}, "append": [{"source": "data:,1"}]},
        {"path": "/lost", "mode": 420},
    ]}});
    let expected = json!([
        {"filesystem": "root", "path": "/a", "overwrite": true, "mode": 420, "user": {},
         "contents": {"compression": "gzip"}},
        {"filesystem": "root", "path": "/a", "overwrite": false, "mode": 420, "user": {},
         "append": true, "contents": {"source": "data:,1"}},
    ]);
    assert_eq!(downgraded(&raw).unwrap()["storage"]["files"], expected);
}

#[test]
fn what_2_2_cannot_express_is_refused() {
    let headers = json!({"source": "http://a", "httpHeaders": []});
    let partition = |key: &str, value: Value| {
        let mut partition = json!({"number": 1});
        partition[key] = value;
        json!({"storage": {"disks": [{"device": "/dev/a", "partitions": [partition]}]}})
    };
    for (raw, expected) in [
        (
            json!({"ignition": {"config": {"merge": [{"source": "http://a", "compression": ""}]}}}),
            "Compression in Ignition.Config.Merge is not supported on 2.2",
        ),
        (
            json!({"ignition": {"config": {"replace": headers}}}),
            "HTTPHeaders in Ignition.Config.Replace are not supported on 2.2",
        ),
        (
            json!({"ignition": {"security": {"tls": {"certificateAuthorities": [headers]}}}}),
            "HTTPHeaders in Ignition.Security.TLS.CertificateAuthorities are not supported on 2.2",
        ),
        (
            json!({"ignition": {"proxy": {"noProxy": ["a"]}}}),
            "HTTP proxies in Ignition.Proxy are not supported on 2.2",
        ),
        (json!({"storage": {"luks": [{"name": "a"}]}}), "LUKS is not supported on 2.2"),
        (
            json!({"passwd": {"users": [{"name": "a", "shouldExist": false}]}}),
            "ShouldExist in Passwd.Users is not supported on 2.2",
        ),
        (
            json!({"passwd": {"groups": [{"name": "a", "shouldExist": false}]}}),
            "ShouldExist in Passwd.Groups is not supported on 2.2",
        ),
        (
            partition("sizeMiB", json!(0)),
            "SizeMiB and StartMiB in Storage.Disks.Partitions is not supported on 2.2",
        ),
        (
            partition("resize", json!(true)),
            "Resize in Storage.Disks.Partitions is not supported on 2.2",
        ),
        (
            json!({"storage": {"filesystems": [{"device": "/dev/a", "mountOptions": ["a"]}]}}),
            "MountOptions in Storage.Filesystems is not supported on 2.2",
        ),
        (
            json!({"storage": {"files": [{"path": "/a", "contents": headers}]}}),
            "HTTPHeaders in Storage.Files.Contents are not supported on 2.2",
        ),
        (
            json!({"storage": {"files": [{"path": "/a", "append": [headers]}]}}),
            "HTTPHeaders in Storage.Files.Append.* are not supported on 2.2",
        ),
        (
            json!({"storage": {"filesystems": [{"device": "/dev/a"}]}}),
            "Converted spec has unexpected fatal error:\nerror at $.storage.filesystems.0.mount.format: invalid filesystem format",
        ),
    ] {
        assert_eq!(downgraded(&raw), Err(expected.to_owned()), "{raw}");
    }
    assert!(downgraded(&partition("resize", json!(false))).is_ok());
}
