//! Keys in SEC1 (`EC PRIVATE KEY`), which some clients need in a kubeconfig: fabric8 reads EC keys in no other form.
//!
//! The hub itself reads and writes PKCS #8, so only copies for clients are converted. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The start of a PKCS #8 key on the curve P-256 with its public key, up to the number.
const PKCS8_START: &[u8] = b"\x30\x81\x87\x02\x01\x00\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x04\x6d\x30\x6b\x02\x01\x01\x04\x20";
/// The start of the same key in SEC1.
const SEC1_START: &[u8] = b"\x30\x77\x02\x01\x01\x04\x20";
/// The name of the curve, which PKCS #8 has outside the key and SEC1 inside.
const CURVE: &[u8] = b"\xa0\x0a\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
/// The start of the public key in both.
const PUBLIC_START: &[u8] = b"\xa1\x44\x03\x42\x00";
/// The length of the number.
const NUMBER_BYTES: usize = 32;
/// The length of an uncompressed public key.
const PUBLIC_BYTES: usize = 65;

/// The SEC1 form of a P-256 key, as PEM; any other key as it is.
#[must_use]
pub fn to_sec1(key: &str) -> String {
    convert(key).unwrap_or_else(|| key.to_owned())
}

fn convert(key: &str) -> Option<String> {
    let body = key.trim().strip_prefix("-----BEGIN PRIVATE KEY-----")?;
    let body = body.strip_suffix("-----END PRIVATE KEY-----")?;
    let body: String = body.split_whitespace().collect();
    let der = STANDARD.decode(body).ok()?;
    let (number, public) = der.strip_prefix(PKCS8_START)?.split_at_checked(NUMBER_BYTES)?;
    if !public.starts_with(PUBLIC_START) || public.len() != PUBLIC_START.len() + PUBLIC_BYTES {
        return None;
    }
    let text = STANDARD.encode([SEC1_START, number, CURVE, public].concat());
    let mut pem = "-----BEGIN EC PRIVATE KEY-----\n".to_owned();
    for line in text.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str("-----END EC PRIVATE KEY-----\n");
    Some(pem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::certificates::CertificateAuthority;

    /// Made with `openssl ecparam -genkey -name prime256v1`, and `openssl pkcs8 -topk8 -nocrypt` of it.
    const SEC1: &str = "\
        -----BEGIN EC PRIVATE KEY-----\n\
        MHcCAQEEIDRFWt4h1ZYpB3vigS7i/qBKzYMGlxMqeWaCnX5nxmRRoAoGCCqGSM49\n\
        AwEHoUQDQgAE3SWW++c8OZK11a7I6YfQsd1MPDt8YoeYxVtHIwrOzDoYF3HCTIOT\n\
        fpUt7F3O6O9MbEDHRTgppwrTU4O3ZdwiTQ==\n\
        -----END EC PRIVATE KEY-----\n";
    const PKCS8: &str = "\
        -----BEGIN PRIVATE KEY-----\n\
        MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgNEVa3iHVlikHe+KB\n\
        LuL+oErNgwaXEyp5ZoKdfmfGZFGhRANCAATdJZb75zw5krXVrsjph9Cx3Uw8O3xi\n\
        h5jFW0cjCs7MOhgXccJMg5N+lS3sXc7o70xsQMdFOCmnCtNTg7dl3CJN\n\
        -----END PRIVATE KEY-----\n";

    #[test]
    fn the_forms_of_openssl() {
        assert_eq!(to_sec1(PKCS8), SEC1);
    }

    #[test]
    fn a_key_of_the_hub_is_converted() {
        let key = CertificateAuthority::generate("test").unwrap().key;
        let converted = to_sec1(&key);
        assert!(converted.starts_with("-----BEGIN EC PRIVATE KEY-----\n"), "another key format");
        assert_eq!(to_sec1(&converted), converted);
        use rustls::pki_types::pem::PemObject as _;
        let der = rustls::pki_types::PrivateKeyDer::from_pem_slice(converted.as_bytes()).unwrap();
        rustls::crypto::ring::sign::any_ecdsa_type(&der).unwrap();
    }

    #[test]
    fn other_keys_stay() {
        for key in ["", "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n"] {
            assert_eq!(to_sec1(key), key);
        }
    }
}
