//! Objects that several tests start from.

use serde_json::{Value, json};

/// The ControllerConfig of a plain cluster. Tests change the fields that they are about.
pub fn controller_config() -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
        "metadata": {"name": "machine-config-controller"},
        "spec": {
            "clusterDNSIP": "10.96.0.10",
            "infra": {
                "apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": {"name": "cluster"},
                "spec": {"cloudConfig": {"name": ""}},
                "status": {
                    "apiServerInternalURI": "https://api.example.com:6443", "apiServerURL": "", "etcdDiscoveryDomain": "",
                    "infrastructureName": "", "platformStatus": {"type": "None"},
                },
            },
            "dns": {
                "apiVersion": "config.openshift.io/v1", "kind": "DNS", "metadata": {"name": "cluster"},
                "spec": {"baseDomain": "example.com"}, "status": {},
            },
            // `kubectl apply` drops null fields, but the schema requires these.
            "additionalTrustBundle": "IyBub25lCg==", "baseOSContainerImage": "", "cloudProviderCAData": "IyBub25lCg==",
            "cloudProviderConfig": "", "images": {}, "ipFamilies": "IPv4", "kubeAPIServerServingCAData": "IyBub25lCg==",
            "network": {"mtuMigration": {}}, "proxy": {}, "releaseImage": "", "rootCAData": "IyBub25lCg==",
        },
    })
}
