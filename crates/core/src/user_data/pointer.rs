//! The pointer config, byte for byte as Go writes it, including empty sections.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::ServerEndpoint;

/// The Ignition specification of the pointer config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PointerVersion {
    /// Specification 3, for current boot images.
    #[default]
    V3,
    /// Specification 2, for old boot images.
    V2,
}

/// The pointer config of a pool's machines.
///
/// The token goes into a header. Specification 2 has no headers, so there it goes into the URL.
#[must_use]
pub fn pointer_config(endpoint: &ServerEndpoint, pool: &str, version: PointerVersion) -> String {
    let source = endpoint.config_url(pool);
    // The order of the keys is that of Go's fields, which happens to be alphabetical.
    let config = match version {
        PointerVersion::V3 => json!({
            "ignition": {
                "config": {
                    "merge": [with_header(json!({"source": source, "verification": {}}), endpoint)],
                    "replace": {"verification": {}},
                },
                "proxy": {},
                "security": {"tls": tls(endpoint)},
                "timeouts": {},
                "version": "3.5.0",
            },
            "kernelArguments": {},
            "passwd": {},
            "storage": {},
            "systemd": {},
        }),
        PointerVersion::V2 => json!({
            "ignition": {
                "config": {"append": [{"source": with_query(source, endpoint), "verification": {}}]},
                "security": {"tls": tls(endpoint)},
                "timeouts": {},
                "version": "2.2.0",
            },
            "networkd": {},
            "passwd": {},
            "storage": {},
            "systemd": {},
        }),
    };
    config.to_string()
}

fn with_header(mut source: Value, endpoint: &ServerEndpoint) -> Value {
    if let Some(token) = &endpoint.token {
        let bearer = format!("Bearer {token}");
        source["httpHeaders"] = json!([{"name": "Authorization", "value": bearer}]);
    }
    source
}

pub(super) fn with_query(source: String, endpoint: &ServerEndpoint) -> String {
    match &endpoint.token {
        Some(token) => format!("{source}?token={token}"),
        None => source,
    }
}

/// The whole bundle is one entry, however many certificates it holds.
fn tls(endpoint: &ServerEndpoint) -> Value {
    match &endpoint.ca_bundle {
        Some(bundle) => {
            let bundle = BASE64_STANDARD.encode(bundle);
            let source = format!("data:text/plain;charset=utf-8;base64,{bundle}");
            json!({"certificateAuthorities": [{"source": source, "verification": {}}]})
        }
        None => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ignition;

    fn endpoint(token: Option<&str>) -> ServerEndpoint {
        ServerEndpoint {
            url: "https://HOST:22623".to_owned(),
            ca_bundle: Some("A\nB\n".to_owned()),
            token: token.map(str::to_owned),
        }
    }

    #[test]
    fn the_bytes_are_those_of_mco() {
        let three = r#"{"ignition":{"config":{"merge":[{"source":"https://HOST:22623/config/worker","verification":{}}],"replace":{"verification":{}}},"proxy":{},"security":{"tls":{"certificateAuthorities":[{"source":"data:text/plain;charset=utf-8;base64,QQpCCg==","verification":{}}]}},"timeouts":{},"version":"3.5.0"},"kernelArguments":{},"passwd":{},"storage":{},"systemd":{}}"#;
        assert_eq!(pointer_config(&endpoint(None), "worker", PointerVersion::V3), three);
        let two = r#"{"ignition":{"config":{"append":[{"source":"https://HOST:22623/config/worker","verification":{}}]},"security":{"tls":{"certificateAuthorities":[{"source":"data:text/plain;charset=utf-8;base64,QQpCCg==","verification":{}}]}},"timeouts":{},"version":"2.2.0"},"networkd":{},"passwd":{},"storage":{},"systemd":{}}"#;
        assert_eq!(pointer_config(&endpoint(None), "worker", PointerVersion::V2), two);
    }

    #[test]
    fn both_versions_are_valid_configs_with_a_token() {
        for version in [PointerVersion::V3, PointerVersion::V2] {
            let text = pointer_config(&endpoint(Some("id.secret")), "infra", version);
            assert!(text.contains("id.secret"), "{text}");
            let read = ignition::parse(&serde_json::from_str(&text).unwrap());
            assert!(read.is_ok(), "{text}: {read:?}");
        }
    }
}
