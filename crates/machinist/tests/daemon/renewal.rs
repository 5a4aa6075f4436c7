//! A daemon that is interrupted anywhere while it renews its certificate: it has the old one or the new one, and goes on.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinist_hub::auth::certificates::{
    CLOCK_SKEW_SECONDS, CertificateAuthority, PemKeyPair, SigningRequest, generate_csr,
};
use serde_json::Value;

use super::fixture::{DaemonFixture, DaemonProcess, wait_for_text, wait_until};

/// The kubeconfig of a machine with a certificate of the hub's CA that has to be renewed. It is valid from before it was
/// issued, like every one, so less than a third of its time is left.
fn with_old_certificate(data: &Path, kubeconfig: &Path, name: &str) -> Vec<u8> {
    let read = |file: &str| fs::read_to_string(data.join("pki").join(file)).unwrap();
    let pair = PemKeyPair { certificate: read("ca.crt"), key: read("ca.key") };
    let ca = CertificateAuthority::from_pem(&pair).unwrap();
    let (key, request) = generate_csr(&format!("system:node:{name}"), "system:nodes").unwrap();
    let request = SigningRequest::parse(&request).unwrap();
    let certificate = ca.sign_request(&request, CLOCK_SKEW_SECONDS * 2 / 5).unwrap();
    let mut identity: Value = serde_json::from_slice(&fs::read(kubeconfig).unwrap()).unwrap();
    let user = &mut identity["users"][0]["user"];
    user["client-certificate-data"] = STANDARD.encode(certificate).into();
    user["client-key-data"] = STANDARD.encode(key).into();
    serde_json::to_vec(&identity).unwrap()
}

#[test]
fn a_renewal_that_is_interrupted_anywhere_is_repeated() {
    let fixture = DaemonFixture::start();
    let root = fixture.join("w1");
    let path = root.join("var/lib/machinist/kubeconfig");
    let log = fixture.directory.path().join("log");
    let mut point = 1;
    loop {
        let old = with_old_certificate(&fixture.data(), &path, "w1");
        fs::write(&path, &old).unwrap();
        let mut daemon = DaemonProcess::start_with_fault(&root, "w1", point, &log);
        let written = || fs::read_to_string(&log).unwrap();
        // Said after the last write: a daemon that has only written the file may still end at a later point.
        let is_complete = || written().contains("renewed the client certificate");
        wait_until("the daemon to end, or to renew its certificate", || {
            match daemon.has_ended() || is_complete() {
                true => Ok(()),
                false => Err(format!("point {point}: {}", written())),
            }
        });
        let is_complete = is_complete();
        drop(daemon);
        // The old one or the new one, never a part of one.
        let left: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert!(left["users"][0]["user"]["client-key-data"].is_string(), "point {point}");
        let text = format!("after-{point}-");
        fixture.apply_files(&[("/etc/one", &text)]);
        let mut daemon = DaemonProcess::start(&root, "w1");
        wait_until("a new certificate", || match fs::read(&path).unwrap() != old {
            true => Ok(()),
            false => Err(format!("point {point}")),
        });
        wait_for_text(&root.join("etc/one"), &text);
        fixture.wait_done("w1");
        daemon.assert_runs();
        if is_complete {
            break;
        }
        point += 1;
    }
    assert!(point > 2, "{point}");
}
