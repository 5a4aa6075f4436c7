//! Where machines reach the server, and what they need to trust it and to be trusted.

use std::fmt;

use serde_json::Value;

use crate::api::names::port;

/// Where a machine asks on its first boot.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerEndpoint {
    /// `https://host:port`, without a path.
    pub url: String,
    /// The certificates that the server's is signed with, as PEM; several may be in it.
    pub ca_bundle: Option<String>,
    /// The provisioning token that the machine brings.
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
    /// The address of a pool's config.
    #[must_use]
    pub fn config_url(&self, pool: &str) -> String {
        format!("{}/config/{pool}", self.url.trim_end_matches('/'))
    }
}

/// Why a cluster does not say where its server is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// It has no internal address.
    #[error(
        "Infrastructure cluster: status.apiServerInternalURI is not set: say with --server-url where machines reach the server"
    )]
    Missing,
    /// Its internal address is none.
    #[error("Infrastructure cluster: status.apiServerInternalURI: {0:?} is no URL with a host")]
    InvalidUrl(String),
}

/// Where the server of a cluster is reached: the host of its internal API, or the address that its platform keeps for it.
///
/// # Errors
/// The Infrastructure object names no host.
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

/// On machines of one's own there is no load balancer with a name, but a virtual address.
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
    // Clusters of long ago have one address and no list.
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
    fn the_host_of_a_cluster() {
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
    fn a_token_is_not_shown() {
        let endpoint = ServerEndpoint {
            url: "https://a".into(),
            ca_bundle: None,
            token: Some("secret".into()),
        };
        assert!(!format!("{endpoint:?}").contains("secret"));
    }
}
