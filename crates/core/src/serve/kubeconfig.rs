//! The kubeconfig with which a new machine first connects to the API server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::go::yaml::to_go_yaml;

/// The kubeconfig with which a machine requests its own certificate. Without a token it only
/// contains the address of the API server.
#[must_use]
pub fn bootstrap_kubeconfig(server: &str, authority: &[u8], token: Option<&str>) -> String {
    let user = token.map_or_else(|| json!({}), |token| json!({"token": token}));
    to_go_yaml(&json!({
        "clusters": [{
            "name": "local",
            "cluster": {"server": server, "certificate-authority-data": STANDARD.encode(authority)},
        }],
        "contexts": [{"name": "kubelet", "context": {"cluster": "local", "user": "kubelet"}}],
        "current-context": "kubelet",
        "users": [{"name": "kubelet", "user": user}],
    }))
}

/// Why a kubeconfig cannot be served, if it cannot.
#[must_use]
pub fn kubeconfig_problem(kubeconfig: &Value) -> Option<&'static str> {
    let clusters = kubeconfig.get("clusters").and_then(Value::as_array);
    clusters.is_none_or(Vec::is_empty).then_some("it contains no cluster")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubeconfig_contains_server_ca_and_token() {
        let text = bootstrap_kubeconfig("https://api:6443", b"CA", Some("t.s"));
        assert_eq!(
            text,
            "clusters:\n- cluster:\n    certificate-authority-data: Q0E=\n    server: https://api:6443\n  name: local\n\
             contexts:\n- context:\n    cluster: local\n    user: kubelet\n  name: kubelet\n\
             current-context: kubelet\n\
             users:\n- name: kubelet\n  user:\n    token: t.s\n"
        );
        assert!(bootstrap_kubeconfig("https://api", b"", None).contains("user: {}"));
    }

    #[test]
    fn a_kubeconfig_without_a_cluster_is_refused() {
        assert!(kubeconfig_problem(&json!({"clusters": []})).is_some());
        assert!(kubeconfig_problem(&json!({})).is_some());
        assert!(kubeconfig_problem(&json!({"clusters": [{"name": "a"}]})).is_none());
    }
}
