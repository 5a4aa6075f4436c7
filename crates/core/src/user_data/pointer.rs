//! The pointer config, byte for byte as Go writes it: empty parts are there.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::Endpoint;

/// Which Ignition is to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// Spec 3, of today.
    #[default]
    Three,
    /// Spec 2, for boot images of long ago.
    Two,
}

/// What a machine of a pool is given to begin with.
///
/// The token goes into a header; spec 2 has none for this, so that there it goes into the address.
#[must_use]
pub fn pointer(endpoint: &Endpoint, pool: &str, version: Version) -> String {
    let source = endpoint.config(pool);
    // The order of the keys is that of Go's fields, which happens to be that of the alphabet.
    let config = match version {
        Version::Three => json!({
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
        Version::Two => json!({
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

fn with_header(mut source: Value, endpoint: &Endpoint) -> Value {
    if let Some(token) = &endpoint.token {
        let bearer = format!("Bearer {token}");
        source["httpHeaders"] = json!([{"name": "Authorization", "value": bearer}]);
    }
    source
}

pub(super) fn with_query(source: String, endpoint: &Endpoint) -> String {
    match &endpoint.token {
        Some(token) => format!("{source}?token={token}"),
        None => source,
    }
}

/// The whole bundle is one entry, however many certificates it holds.
fn tls(endpoint: &Endpoint) -> Value {
    match &endpoint.authority {
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

    fn endpoint(token: Option<&str>) -> Endpoint {
        Endpoint {
            url: "https://HOST:22623".to_owned(),
            authority: Some("A\nB\n".to_owned()),
            token: token.map(str::to_owned),
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_original() {
        let three = r#"{"ignition":{"config":{"merge":[{"source":"https://HOST:22623/config/worker","verification":{}}],"replace":{"verification":{}}},"proxy":{},"security":{"tls":{"certificateAuthorities":[{"source":"data:text/plain;charset=utf-8;base64,QQpCCg==","verification":{}}]}},"timeouts":{},"version":"3.5.0"},"kernelArguments":{},"passwd":{},"storage":{},"systemd":{}}"#;
        assert_eq!(pointer(&endpoint(None), "worker", Version::Three), three);
        let two = r#"{"ignition":{"config":{"append":[{"source":"https://HOST:22623/config/worker","verification":{}}]},"security":{"tls":{"certificateAuthorities":[{"source":"data:text/plain;charset=utf-8;base64,QQpCCg==","verification":{}}]}},"timeouts":{},"version":"2.2.0"},"networkd":{},"passwd":{},"storage":{},"systemd":{}}"#;
        assert_eq!(pointer(&endpoint(None), "worker", Version::Two), two);
    }

    #[test]
    fn both_are_valid_configs_with_a_token_too() {
        for version in [Version::Three, Version::Two] {
            let text = pointer(&endpoint(Some("id.secret")), "infra", version);
            assert!(text.contains("id.secret"), "{text}");
            let read = ignition::parse(&serde_json::from_str(&text).unwrap());
            assert!(read.is_ok(), "{text}: {read:?}");
        }
    }
}
