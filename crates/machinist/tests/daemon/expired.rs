//! A machine that was off for longer than its certificate is valid.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

use super::fixture::{DaemonFixture, DaemonProcess, wait_for_text};
use crate::up::{join_command, machinist};

/// A certificate of the machine that expired long ago.
fn expired_certificate(name: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{name}"));
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(2001, 1, 1);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
}

#[test]
fn a_machine_with_an_expired_certificate_says_so_and_joins_again_as_itself() {
    let fixture = DaemonFixture::start();
    let root = fixture.join("w1");
    let root_text = root.to_str().unwrap();
    fixture.apply_files(&[("/etc/one", "first")]);
    let daemon = DaemonProcess::start(&root, "w1");
    wait_for_text(&root.join("etc/one"), "first");
    fixture.wait_done("w1");
    drop(daemon);

    let path = root.join("var/lib/machinist/kubeconfig");
    let mut identity: serde_json::Value =
        serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let expired = STANDARD.encode(expired_certificate("w1"));
    identity["users"][0]["user"]["client-certificate-data"] = expired.into();
    fs::write(&path, identity.to_string()).unwrap();
    let status = machinist(&["daemon", "status", "--root", root_text]);
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    assert_eq!(status.status.code(), Some(3), "{said}");
    assert!(said.contains("has expired") && said.contains("--replace NAME"), "{said}");

    // An ordinary token is not enough: the name is that of another machine, for all the hub knows.
    let data = fixture.data();
    let refused = join_command(&data, &fixture.token, &root, "w1", "worker").output().unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), identity.to_string());
    let arguments = ["hub", "token", "--data-dir", data.to_str().unwrap(), "--role", "bootstrap"];
    let token = machinist(&[&arguments[..], &["--replace", "w1"]].concat());
    let token = String::from_utf8(token.stdout).unwrap().trim().to_owned();
    let joined = join_command(&data, &token, &root, "w1", "worker").output().unwrap();
    let said = String::from_utf8_lossy(&joined.stdout).into_owned();
    assert!(joined.status.success() && said.contains("had expired"), "{joined:?}");
    let status = machinist(&["daemon", "status", "--root", root_text]);
    assert_eq!(status.status.code(), Some(0), "{status:?}");

    // It is the same machine with the same config.
    fixture.apply_files(&[("/etc/one", "second")]);
    let mut daemon = DaemonProcess::start(&root, "w1");
    wait_for_text(&root.join("etc/one"), "second");
    fixture.wait_done("w1");
    daemon.assert_runs();
}
