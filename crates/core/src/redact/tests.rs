//! No secret remains, wherever it is.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn redacted(mut object: Value) -> Value {
    Redactor::new("key").redact_object(&mut object);
    object
}

fn config(storage: &Value) -> Value {
    json!({"kind": "MachineConfig", "metadata": {"name": "a"}, "spec": {"config": {
        "ignition": {"version": "3.5.0"}, "storage": storage}}})
}

#[test]
fn other_values_are_kept() {
    let plain = config(&json!({"files": [
        {"path": "/etc/hostname", "mode": 0o644, "contents": {"source": "data:,hello"}},
    ]}));
    assert_eq!(redacted(plain.clone()), plain);
    let pool = json!({"kind": "MachineConfigPool", "spec": {"paused": false, "maxUnavailable": 1},
        "status": {"conditions": [{"type": "Updated", "message": "All nodes: https://docs.example.com/x"}]}});
    assert_eq!(redacted(pool.clone()), pool);
}

#[test]
fn copies_of_whole_objects_are_removed() {
    let object = json!({"metadata": {"managedFields": [1], "annotations": {OBJECT_COPY_ANNOTATIONS[0]: "hunter2", "a": "b"}}});
    assert_eq!(redacted(object), json!({"metadata": {"annotations": {"a": "b"}}}));
}

#[test]
fn credentials_in_urls_are_removed() {
    for (given, expected) in [
        ("http://me:hunter2@proxy:3128", "http://<removed>@proxy:3128"),
        ("see https://a/b@c and x://u@h/", "see https://a/b@c and x://<removed>@h/"),
        ("mail@example.com", "mail@example.com"),
        ("://", "://"),
    ] {
        assert_eq!(without_credentials(given), expected);
    }
    assert_eq!(without_query("https://u:p@h/x?token=hunter2#y"), "https://<removed>@h/x?<removed>");
}

#[test]
fn log_lines_with_secrets_are_removed() {
    let log =
        Redactor::new("key").redact_log("started\npassword=hunter2\nGET http://a:hunter2@b/\n");
    assert!(log.starts_with("started\n<removed: 16 bytes, digest "), "{log}");
    assert!(log.ends_with("\nGET http://<removed>@b/\n") && !log.contains("hunter2"), "{log}");
}

#[test]
fn equal_secrets_have_equal_placeholders_only_with_the_same_key() {
    let (one, other) = (Redactor::new("one"), Redactor::new("other"));
    assert_eq!(one.placeholder(b"hunter2"), one.placeholder(b"hunter2"));
    assert_ne!(one.placeholder(b"hunter2"), one.placeholder(b"hunter3"));
    assert_ne!(one.placeholder(b"hunter2"), other.placeholder(b"hunter2"));
}

/// The encodings of a file's contents.
fn sources(bytes: &[u8]) -> Vec<Value> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).unwrap();
    let gzip = STANDARD.encode(gzip.finish().unwrap());
    let percent: String = bytes.iter().map(|byte| format!("%{byte:02X}")).collect();
    vec![
        json!({"source": format!("data:,{percent}")}),
        json!({"source": format!("data:;base64,{}", STANDARD.encode(bytes))}),
        json!({"source": format!("data:;base64,{gzip}"), "compression": "gzip"}),
        json!({"source": format!("data:;base64,{gzip}"), "compression": "odd"}),
    ]
}

/// Objects with a secret in every possible place.
fn hiding_places(secret: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let key = format!("-----BEGIN PRIVATE KEY-----\n{secret}\n");
    let files = [
        ("/etc/motd", Some(0o600), secret),
        ("/etc/tls.key", None, secret),
        ("/var/lib/kubelet/config.json", Some(0o644), secret),
        ("/etc/motd", None, key.as_str()),
        // Nothing about it looks like a secret.
        ("/etc/motd", Some(0o644), secret),
        ("/etc/hostname", Some(0o600), secret),
    ];
    for (path, mode, contents) in files {
        for source in sources(contents.as_bytes()) {
            let mut file = json!({"path": path, "contents": source, "append": [source]});
            if let Some(mode) = mode {
                file["mode"] = json!(mode);
            }
            all.push(config(&json!({"files": [file]})));
        }
    }
    let base64 = STANDARD.encode(secret);
    all.extend([
        config(&json!({"luks": [{"name": "a", "keyFile": {"source": format!("data:,{secret}")}}]})),
        config(&json!({"files": [{"path": "/a", "contents": {
            "source": format!("https://u:{secret}@h/a?token={secret}"),
            "httpHeaders": [{"name": "Authorization", "value": secret}],
        }}]})),
        json!({"kind": "MachineConfig", "spec": {"config": {
            "ignition": {"config": {"merge": [{"source": format!("data:,{secret}")}], "replace": {"source": format!("https://h/?t={secret}")}}},
            "passwd": {"users": [{"name": "core", "passwordHash": secret}], "groups": [{"name": "g", "passwordHash": secret}]},
            "systemd": {"units": [{"name": "a.service", "contents": format!("[Service]\nEnvironment=password={secret}\n"),
                "dropins": [{"name": "b.conf", "contents": format!("token: {secret}")}]},
                {"name": "c.service", "contents": format!("[Service]\nExecStart=/bin/x {secret}\n"),
                 "dropins": [{"name": "d.conf", "contents": secret}]}]},
        }}}),
        json!({"kind": "MachineConfig", "spec": {"kernelArguments": [format!("password={secret}")]}}),
        json!({"kind": "Secret", "data": {"a": base64}, "stringData": {"b": secret}}),
        json!({"kind": "ControllerConfig", "spec": {
            "internalRegistryPullSecret": base64, "cloudProviderConfig": secret,
            "proxy": {"httpProxy": format!("http://me:{secret}@proxy")},
            "additionalTrustBundle": STANDARD.encode(&key),
        }}),
        json!({"kind": "MachineOSConfig", "spec": {"containerFile": [{"content": format!("RUN x {secret}")}]}}),
        json!({"kind": "Pod", "spec": {"containers": [{"env": [{"name": "A", "value": secret}]}]}}),
        json!({"kind": "ConfigMap", "data": {"x": key, "clientToken": secret}}),
        json!({"kind": "Event", "message": format!("cannot fetch https://u:{secret}@h/x")}),
        json!({"metadata": {"annotations": {OBJECT_COPY_ANNOTATIONS[0]: secret}}}),
    ]);
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_secret_remains(secret in "[A-Za-z0-9]{12,40}") {
        let written = [
            secret.clone(),
            STANDARD.encode(&secret),
            secret.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        ];
        for object in hiding_places(&secret) {
            let left = redacted(object.clone()).to_string();
            for way in &written {
                prop_assert!(!left.contains(way.as_str()), "{way} is in {left}, from {object}");
            }
            // Redacting twice changes nothing.
            let once = redacted(object);
            prop_assert_eq!(redacted(once.clone()), once);
        }
    }
}
