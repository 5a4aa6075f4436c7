//! The TLS version and cipher suites that a TLS profile stands for. The machine config server and
//! the kubelets take them as flags or settings.

use crate::api::TLSSecurityProfile;

/// The minimum version and the cipher suites, as flags name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsParameters {
    /// For example `VersionTLS12`.
    pub min_version: String,
    /// IANA names.
    pub cipher_suites: Vec<String>,
}

/// OpenSSL and IANA names of the supported cipher suites, in the order of preference.
const SUITES: [(&str, &str); 21] = [
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    ("TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-ECDSA-AES128-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"),
    ("ECDHE-RSA-AES128-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    ("ECDHE-ECDSA-AES128-SHA", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    ("ECDHE-RSA-AES128-SHA", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    ("ECDHE-ECDSA-AES256-SHA", "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    ("ECDHE-RSA-AES256-SHA", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    ("AES128-GCM-SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256"),
    ("AES256-GCM-SHA384", "TLS_RSA_WITH_AES_256_GCM_SHA384"),
    ("AES128-SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA256"),
    ("AES128-SHA", "TLS_RSA_WITH_AES_128_CBC_SHA"),
    ("AES256-SHA", "TLS_RSA_WITH_AES_256_CBC_SHA"),
    ("DES-CBC3-SHA", "TLS_RSA_WITH_3DES_EDE_CBC_SHA"),
];
/// How many of the first suites each predefined profile has.
const MODERN_SUITES: usize = 3;
const INTERMEDIATE_SUITES: usize = 9;

/// The parameters of a profile. `Intermediate` if there is none or it is empty.
#[must_use]
pub fn tls_parameters(profile: Option<&TLSSecurityProfile>) -> TlsParameters {
    let ready_made = |min_version: &str, count: usize| TlsParameters {
        min_version: min_version.to_owned(),
        cipher_suites: SUITES.iter().take(count).map(|(_, name)| (*name).to_owned()).collect(),
    };
    let custom = profile.and_then(|profile| profile.custom.as_ref());
    match profile.and_then(|profile| profile.type_.as_deref()) {
        Some("Old") => ready_made("VersionTLS10", SUITES.len()),
        Some("Modern") => ready_made("VersionTLS13", MODERN_SUITES),
        Some("Custom") if custom.is_some() => TlsParameters {
            min_version: custom.and_then(|it| it.min_tls_version.clone()).unwrap_or_default(),
            cipher_suites: custom
                .and_then(|it| it.ciphers.as_ref())
                .into_iter()
                .flatten()
                .filter_map(|cipher| iana(cipher))
                .collect(),
        },
        _ => ready_made("VersionTLS12", INTERMEDIATE_SUITES),
    }
}

fn iana(openssl: &str) -> Option<String> {
    let found = SUITES.iter().find(|(name, _)| *name == openssl);
    found.map(|(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn profiles_translate_to_flags() {
        let of = |profile: Value| {
            let profile: TLSSecurityProfile = serde_json::from_value(profile).unwrap();
            let spoken = tls_parameters(Some(&profile));
            (spoken.min_version, spoken.cipher_suites.len())
        };
        for (profile, version, count) in [
            (json!({}), "VersionTLS12", 9),
            (json!({"type": "Intermediate", "intermediate": {}}), "VersionTLS12", 9),
            (json!({"type": "Modern", "modern": {}}), "VersionTLS13", 3),
            (json!({"type": "Old", "old": {}}), "VersionTLS10", 21),
            (json!({"type": "Custom"}), "VersionTLS12", 9),
            (
                json!({"type": "Custom", "custom": {
                    "minTLSVersion": "VersionTLS11",
                    "ciphers": ["ECDHE-RSA-AES128-GCM-SHA256", "DHE-RSA-AES128-GCM-SHA256"],
                }}),
                "VersionTLS11",
                1,
            ),
        ] {
            assert_eq!(of(profile.clone()), (version.to_owned(), count), "{profile}");
        }
        assert_eq!(tls_parameters(None).min_version, "VersionTLS12");
    }
}
