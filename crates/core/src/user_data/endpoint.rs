//! The address of the machine config server, with the CA and the token that machines need.

use std::fmt;

use serde_json::Value;

use crate::api::names::port;

/// The server that a machine contacts on its first boot.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerEndpoint {
    /// `https://host:port`, without a path.
    pub url: String,
    /// The CA certificates of the server, as PEM; may contain several.
    pub ca_bundle: Option<String>,
    /// The provisioning token that the machine sends.
    pub token: Option<String>,
}

impl fmt::Debug for ServerEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("Endpoint")
            .field("url", &self.url)
            .field("token", &token)
            .finish_non_exhaustive()
    }
}

impl ServerEndpoint {
    /// The URL of a pool's config.
    #[must_use]
    pub fn config_url(&self, pool: &str) -> String {
        format!("{}/config/{pool}", self.url.trim_end_matches('/'))
    }
}

/// Why the server's address cannot be derived from a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The cluster has no internal API address.
    #[error(
        "Infrastructure cluster: status.apiServerInternalURI is not set: pass the URL of the machine config server with --server-url"
    )]
    Missing,
    /// The internal API address is invalid.
    #[error(
        "Infrastructure cluster: status.apiServerInternalURI: {0:?} is not a URL with a host: correct it, or pass --server-url"
    )]
    InvalidUrl(String),
}

/// The URL of a cluster's server: on the host of its internal API, or at the address that its
/// platform reserves for it.
///
/// # Errors
/// The Infrastructure object contains no host.
pub fn server_host(infrastructure: &Value) -> Result<String, HostError> {
    let status = &infrastructure["status"];
    if let Some(address) = platform_address(&status["platformStatus"]) {
        let bracketed = if address.contains(':') { format!("[{address}]") } else { address };
        return Ok(format!("https://{bracketed}:{}", port::SERVER_TLS));
    }
    let uri = status["apiServerInternalURI"].as_str().filter(|uri| !uri.is_empty());
    let uri = uri.ok_or(HostError::Missing)?;
    let name = host_name(uri).ok_or_else(|| HostError::InvalidUrl(uri.to_owned()))?;
    Ok(format!("https://{name}:{}", port::SERVER_TLS))
}

/// On-premises platforms have a virtual IP address instead of a load balancer with a name.
fn platform_address(platform: &Value) -> Option<String> {
    let kind = platform["type"].as_str()?;
    let field = match kind {
        "BareMetal" => "baremetal",
        "OpenStack" => "openstack",
        "oVirt" => "ovirt",
        "VSphere" => "vsphere",
        _ => return None,
    };
    let own = &platform[field];
    let first = own["apiServerInternalIPs"].as_array().and_then(|list| list.first()?.as_str());
    // Old clusters have a single address instead of a list.
    let address = first.or_else(|| own["apiServerInternalIP"].as_str())?;
    (!address.is_empty()).then(|| address.to_owned())
}

/// The host of a URL, with the brackets of an IPv6 address.
#[must_use]
pub fn host_name(uri: &str) -> Option<&str> {
    let (_, rest) = uri.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let end = match host.rfind(']') {
        Some(bracket) => bracket + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    Some(&host[..end]).filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_server_is_on_the_host_of_the_internal_api() {
        let uri = "https://api-int.example.com:6443";
        let vips = json!({"type": "BareMetal", "baremetal": {"apiServerInternalIPs": ["fd00::5", "10.0.0.5"]}});
        let old = json!({"type": "oVirt", "ovirt": {"apiServerInternalIP": "10.0.0.6"}});
        let without = json!({"type": "VSphere", "vsphere": {}});
        let cloud = json!({"type": "AWS", "aws": {"apiServerInternalIPs": ["10.0.0.7"]}});
        for (uri, platform, expected) in [
            (uri, Value::Null, "https://api-int.example.com:22623"),
            (uri, vips, "https://[fd00::5]:22623"),
            (uri, old, "https://10.0.0.6:22623"),
            (uri, without, "https://api-int.example.com:22623"),
            (uri, cloud, "https://api-int.example.com:22623"),
            ("https://[fd00::1]:6443/x", Value::Null, "https://[fd00::1]:22623"),
            ("https://host", Value::Null, "https://host:22623"),
        ] {
            let status = json!({"apiServerInternalURI": uri, "platformStatus": platform});
            assert_eq!(
                server_host(&json!({"status": status})),
                Ok(expected.to_owned()),
                "{status}"
            );
        }
        assert_eq!(server_host(&json!({})), Err(HostError::Missing));
        let bad = json!({"status": {"apiServerInternalURI": "https://:1"}});
        assert!(matches!(server_host(&bad), Err(HostError::InvalidUrl(_))));
    }

    #[test]
    fn debug_output_hides_the_token() {
        let endpoint = ServerEndpoint {
            url: "https://a".into(),
            ca_bundle: None,
            token: Some("secret".into()),
        };
        assert!(!format!("{endpoint:?}").contains("secret"));
    }
}
