//! The kubeconfig of the administrator.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinist_hub::auth::sec1::to_sec1;
use serde_json::{Value, json};

use super::pki::{self, Pki};
use crate::data_dir::{DataDirectory, write_private};

/// Writes the kubeconfig to the data directory, unless it is there already: a hub must start on a full disk too.
///
/// # Errors
/// The file cannot be written.
pub fn write(directory: &DataDirectory, address: SocketAddr, pki: &Pki) -> Result<()> {
    let text = machinist_core::go::yaml::to_go_yaml(&kubeconfig(address, pki));
    let path = directory.kubeconfig();
    let is_private =
        fs::metadata(&path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 == 0);
    if is_private && fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    write_private(&path, &text)
}

/// The URL at which clients on this machine reach the hub.
#[must_use]
pub fn url(address: SocketAddr) -> String {
    let mut address = address;
    if pki::is_unspecified(address.ip()) {
        address.set_ip(if address.is_ipv4() {
            [127, 0, 0, 1].into()
        } else {
            [0u16, 0, 0, 0, 0, 0, 0, 1].into()
        });
    }
    format!("https://{address}")
}

fn kubeconfig(address: SocketAddr, pki: &Pki) -> Value {
    let encode = |text: &str| STANDARD.encode(text);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "machinist",
            "cluster": {
                "server": url(address),
                "certificate-authority-data": encode(&pki.ca.certificate),
            },
        }],
        "users": [{
            "name": "admin",
            "user": {
                "client-certificate-data": encode(&pki.admin.certificate),
                // fabric8 reads EC keys in this form only.
                "client-key-data": encode(&to_sec1(&pki.admin.key)),
            },
        }],
        "contexts": [{
            "name": "machinist",
            "context": {"cluster": "machinist", "user": "admin"},
        }],
        "current-context": "machinist",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_addresses_become_loopback() {
        for (address, expected) in [
            ("127.0.0.1:6443", "https://127.0.0.1:6443"),
            ("0.0.0.0:1", "https://127.0.0.1:1"),
            ("[::]:1", "https://[::1]:1"),
            ("10.0.0.1:2", "https://10.0.0.1:2"),
        ] {
            assert_eq!(url(address.parse().unwrap()), expected);
        }
    }
}
