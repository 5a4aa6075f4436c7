//! Tests of `seal`: tables of inputs and what must come out.

use super::*;
use crate::ignition::parse_and_upgrade;
use proptest::prelude::*;
use serde_json::{Value, json};

fn config(mut rest: Value) -> Config {
    rest["ignition"]["version"] = "3.5.0".into();
    parse_and_upgrade(&rest).unwrap().0
}

fn file(path: &str, mode: i64, contents: &str) -> Value {
    let source = crate::ignition::data_url::encode(contents.as_bytes());
    json!({"path": path, "mode": mode, "contents": {"source": source}})
}

fn paths(config: &Config) -> Vec<&str> {
    config.storage.files.iter().map(|file| file.path.as_str()).collect()
}

#[test]
fn which_files_are_sealed() {
    let files = json!([
        file("/etc/motd", 0o644, "hello"),
        file("/etc/private", 0o600, "hello"),
        file("/var/lib/kubelet/config.json", 0o644, "{}"),
        file("/etc/kubernetes/kubeconfig", 0o644, "clusters"),
        file("/etc/mcs-machine-config-content.json", 0o644, "{}"),
        file("/etc/pki/a.key", 0o644, ""),
        file("/etc/some", 0o644, "-----BEGIN PRIVATE KEY-----"),
        file("/etc/named/one", 0o644, "x"),
        file("/etc/exact", 0o644, "x"),
        file("/etc/hostname", 0o644, "n1"),
        file("/etc/hosts", 0o644, "127.0.0.1 localhost"),
        file("/etc/NetworkManager/system-connections/wifi", 0o644, "psk=hunter2"),
        file("/etc/public", 0o644, "x"),
        {"path": "/etc/far", "mode": 0o644, "contents": {"source": "https://example.com/x"}},
    ]);
    let config = config(json!({"storage": {"files": files}}));
    let named = AnnotatedPaths {
        public: vec!["/etc/named/*".into(), "/etc/public".into(), "/etc/exact".into()],
        sealed: vec!["/etc/hosts".into(), "/etc/exact".into()],
    };
    let halves = split(config, &named).unwrap();
    let public = ["/etc/named/one", "/etc/hostname", "/etc/public", "/etc/far"];
    assert_eq!(paths(&halves.public), public);
    assert_eq!(halves.sealed.storage.files.len(), 10);
    assert_eq!(halves.sealed.ignition.version, "3.5.0");
}

#[test]
fn units_and_password_hashes_are_sealed() {
    let config = config(json!({
        "passwd": {"users": [{"name": "core", "passwordHash": "$6$x", "sshAuthorizedKeys": ["k"]}]},
        "systemd": {"units": [
            {"name": "machinist-firstboot.service", "contents": "[Service]\nExecStart=/bin/true\n"},
            {"name": "masked.service", "mask": true},
            {"name": "a.service", "enabled": true, "contents": "[Service]\nExecStart=/bin/true\n"},
            {"name": "b.service", "contents": "[Service]\nExecStart=/bin/x --password=abc\n"},
            {"name": "c.service", "dropins": [{"name": "d.conf",
                "contents": "[Service]\nEnvironment=aws_secret_access_key=x\n"}]},
        ]},
    }));
    let halves = split(config, &AnnotatedPaths::default()).unwrap();
    let names = |config: &Config| -> Vec<String> {
        config.systemd.units.iter().map(|unit| unit.name.clone()).collect()
    };
    assert_eq!(names(&halves.public), ["machinist-firstboot.service", "masked.service"]);
    assert_eq!(names(&halves.sealed), ["a.service", "b.service", "c.service"]);
    let public = serde_json::to_string(&halves.public).unwrap();
    assert!(public.contains("sshAuthorizedKeys") && !public.contains("$6$x"), "{public}");
    assert_eq!(halves.sealed.passwd.users[0].password_hash.as_deref(), Some("$6$x"));
}

#[test]
fn secrets_that_ignition_needs_are_refused() {
    let header = json!([{"name": "Authorization", "value": "x"}]);
    for (name, rest) in [
        (
            "luks",
            json!({"storage": {"luks": [{"name": "a", "device": "/dev/a",
            "keyFile": {"source": "data:,x"}}]}}),
        ),
        (
            "merge",
            json!({"ignition": {"config": {"merge": [
            {"source": "https://example.com", "httpHeaders": header}]}}}),
        ),
        (
            "far",
            json!({"storage": {"files": [{"path": "/a", "mode": 0o600,
            "contents": {"source": "https://example.com/x"}}]}}),
        ),
        (
            "far with a key",
            json!({"storage": {"files": [{"path": "/a",
            "contents": {"source": "https://example.com/x", "httpHeaders": header}}]}}),
        ),
        (
            "append",
            json!({"storage": {"files": [{"path": "/a", "mode": 0o600,
            "append": [{"source": "data:,x"}]}]}}),
        ),
        ("inner config", json!({"ignition": {"config": {"merge": [{"source": "data:,x"}]}}})),
        (
            "signed URL",
            json!({"storage": {"files": [{"path": "/a",
            "contents": {"source": "https://example.com/x?signature=y"}}]}}),
        ),
        ("arguments", json!({"kernelArguments": {"shouldExist": ["rd.password=x"]}})),
        ("proxy", json!({"ignition": {"proxy": {"httpProxy": "http://a:b@proxy"}}})),
        ("group", json!({"passwd": {"groups": [{"name": "g", "passwordHash": "x"}]}})),
    ] {
        let refusal = split(config(rest), &AnnotatedPaths::default()).map(drop).unwrap_err();
        assert!(matches!(refusal, ServeError::Unsealable(_)), "{name}: {refusal}");
    }
}

#[test]
fn paths_are_read_from_annotations() {
    let of =
        |annotation: &str, text: &str| BTreeMap::from([(annotation.to_owned(), text.to_owned())]);
    let one = of(SEALED_PATHS_ANNOTATION, " /a , /b/*,");
    let other = of(SEALED_PATHS_ANNOTATION, "/a");
    let public = of(PUBLIC_PATHS_ANNOTATION, "/c");
    let found = AnnotatedPaths::from_annotations([Some(&one), None, Some(&other), Some(&public)]);
    assert_eq!(found.sealed, ["/a", "/b/*"]);
    assert_eq!(found.public, ["/c"]);
}

#[test]
fn secrets_are_suspected_where_configs_are_not_sealed() {
    let config = config(json!({
        "storage": {"files": [file("/etc/motd", 0o644, "hello"), file("/etc/db", 0o644, "DB_PASSWORD: x")]},
        "systemd": {"units": [{"name": "a.service", "contents": "[Service]\nEnvironment=API_KEY=x\n"}]},
    }));
    assert_eq!(suspected_secrets(&config), ["/etc/db", "/etc/systemd/system/a.service"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever a secret looks like and wherever it is, it is not in the public half.
    #[test]
    fn no_contents_are_public_unless_they_are_listed(
        secret in "[a-z]{16}",
        before in "[A-Za-z_=:\" ]{0,20}",
        name in "[a-z]{1,8}",
        mode in prop::sample::select(vec![0o600, 0o644, 0o755]),
    ) {
        let text = format!("{before}{secret}");
        let config = config(json!({
            "storage": {"files": [file(&format!("/etc/{name}/x"), mode, &text)]},
            "passwd": {"users": [{"name": "core", "passwordHash": secret}]},
            "systemd": {"units": [
                {"name": format!("{name}.service"), "contents": format!("[Service]\nExecStart=/bin/x {secret}\n")},
                {"name": format!("{name}-2.service"), "dropins": [{"name": "a.conf",
                    "contents": format!("[Service]\nExecStart=/bin/x {secret}\n")}]},
            ]},
        }));
        let halves = split(config, &AnnotatedPaths::default()).unwrap();
        let public = serde_json::to_string(&halves.public).unwrap();
        prop_assert!(!public.contains(&secret), "{}", public);
        prop_assert_eq!(halves.sealed.storage.files.len(), 1);
        prop_assert_eq!(halves.sealed.systemd.units.len(), 2);
    }
}
