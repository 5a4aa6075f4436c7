//! Builds the ControllerConfig: the facts about the cluster, for the templates and the server.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::components::ComponentInputs;
use super::labels;
use crate::api::names::{GROUP, annotation, object};
use crate::user_data::endpoint::{self, host_name};

/// What the cluster's objects say; null if it has no such object.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClusterFacts {
    /// Infrastructure `cluster`.
    pub infrastructure: Value,
    /// Network `cluster`.
    pub network: Value,
    /// DNS `cluster`.
    pub dns: Value,
    /// Proxy `cluster`.
    pub proxy: Value,
    /// The kubeconfig that kubeadm leaves in `kube-public`.
    pub cluster_info: Option<String>,
    /// The CA of the API server, as PEM.
    pub api_ca: String,
    /// Whether the cluster has only one machine.
    pub is_single_node: bool,
}

impl ClusterFacts {
    /// The API server's address for machines, as the cluster's objects declare it.
    #[must_use]
    pub fn api_server(&self) -> Option<String> {
        let infrastructure = self.infrastructure["status"]["apiServerInternalURI"].as_str();
        let kubeadm = self.cluster_info.as_deref().and_then(server_of_kubeconfig);
        let url = infrastructure.filter(|url| !url.is_empty()).map(str::to_owned).or(kubeadm)?;
        Some(url.trim_end_matches('/').to_owned())
    }

    /// The machine config server's address: the platform's address for it, or the host of the API
    /// server.
    #[must_use]
    pub fn server(&self, api_server: &str) -> Option<String> {
        if let Ok(url) = endpoint::server_host(&self.infrastructure) {
            return Some(url);
        }
        let host = host_name(api_server)?;
        Some(format!("https://{host}:{}", crate::api::names::port::SERVER_TLS))
    }
}

/// The first server in a kubeconfig.
fn server_of_kubeconfig(text: &str) -> Option<String> {
    let kubeconfig: Value = serde_saphyr::from_str(text).ok()?;
    let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str()?;
    server.starts_with("https://").then(|| server.to_owned())
}

/// The names in the server's certificate.
#[must_use]
pub fn server_names(server: &str, more: &[String]) -> Vec<String> {
    let host = host_name(server).map(|host| host.trim_matches(['[', ']']).to_owned());
    let mut names: Vec<String> = host.into_iter().chain(more.iter().cloned()).collect();
    names.push("machine-config-server".to_owned());
    names.sort();
    names.dedup();
    names
}

/// The ControllerConfig to apply.
#[must_use]
pub fn controller_config(
    inputs: &ComponentInputs,
    cluster: &ClusterFacts,
    bundle: &str,
    owner: &Value,
) -> Value {
    let (mut infra, mut dns) = (cluster.infrastructure.clone(), cluster.dns.clone());
    let api_server = inputs.endpoint.as_ref().map_or("", |endpoint| endpoint.api_server.as_str());
    if infra.is_null() {
        infra = infrastructure(api_server, cluster.is_single_node);
    }
    if dns.is_null() {
        dns = json!({"metadata": {"name": object::CLUSTER}, "spec": {"baseDomain": ""}, "status": {}});
    }
    for (embedded, kind) in [(&mut infra, "Infrastructure"), (&mut dns, "DNS")] {
        embedded["apiVersion"] = "config.openshift.io/v1".into();
        embedded["kind"] = kind.into();
        // The rest of the metadata is of no use, and would change this object all the time.
        embedded["metadata"] = json!({"name": object::CLUSTER});
    }
    let platform = infra["status"]["platformStatus"]["type"].as_str().unwrap_or("None");
    let dns_ip = cluster_dns_ip(inputs, cluster);
    // The field must not be empty. Without a server, machines trust only the API server's CA.
    let bundle = if bundle.is_empty() { cluster.api_ca.as_str() } else { bundle };
    let mut spec = json!({
        "additionalTrustBundle": null,
        "baseOSContainerImage": "",
        "cloudProviderCAData": null,
        "cloudProviderConfig": "",
        "clusterDNSIP": dns_ip,
        "dns": dns,
        "images": {"machineConfigOperator": inputs.image},
        "infra": infra,
        "ipFamilies": if dns_ip.contains(':') { "IPv6" } else { "IPv4" },
        "kubeAPIServerServingCAData": BASE64_STANDARD.encode(&cluster.api_ca),
        "network": {"mtuMigration": null},
        "platform": platform.to_lowercase(),
        "proxy": null,
        "releaseImage": "",
        "rootCAData": BASE64_STANDARD.encode(bundle),
    });
    let proxy = &cluster.proxy["status"];
    if proxy.as_object().is_some_and(|proxy| !proxy.is_empty()) {
        spec["proxy"] = proxy.clone();
    }
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "ControllerConfig",
        "metadata": {
            "name": object::CONTROLLER_CONFIG,
            "labels": labels(),
            "ownerReferences": owner,
            "annotations": {
                annotation::GENERATED_BY_VERSION: format!("machinist-{}", inputs.release),
                annotation::RELEASE_IMAGE_VERSION: inputs.release,
                annotation::machinist::PROFILE: inputs.settings.profile.as_str(),
            },
        },
        "spec": spec,
    })
}

/// The Infrastructure of a cluster that has none.
fn infrastructure(api_server: &str, is_single: bool) -> Value {
    let topology = if is_single { "SingleReplica" } else { "HighlyAvailable" };
    json!({
        "spec": {"cloudConfig": {"name": ""}, "platformSpec": {"type": "None"}},
        "status": {
            "apiServerInternalURI": api_server,
            "apiServerURL": api_server,
            "controlPlaneTopology": topology,
            "etcdDiscoveryDomain": "",
            "infrastructureName": "",
            "infrastructureTopology": topology,
            "platform": "None",
            "platformStatus": {"type": "None"},
        },
    })
}

/// The tenth address of the first service network, unless it is set.
fn cluster_dns_ip(inputs: &ComponentInputs, cluster: &ClusterFacts) -> String {
    if let Some(address) = &inputs.settings.cluster_dns_ip {
        return address.clone();
    }
    let network = cluster.network["spec"]["serviceNetwork"][0].as_str().unwrap_or_default();
    let base = network.split('/').next().unwrap_or_default();
    match base.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(address)) => {
            std::net::Ipv4Addr::from_bits(address.to_bits().saturating_add(10)).to_string()
        }
        Ok(std::net::IpAddr::V6(address)) => {
            std::net::Ipv6Addr::from_bits(address.to_bits().saturating_add(10)).to_string()
        }
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ControllerConfig;
    use crate::operator::components::tests::inputs;
    use crate::rollout::node_patches::control_plane_topology;

    #[test]
    fn a_plain_kubernetes_cluster_gets_one() {
        let cluster = ClusterFacts { api_ca: "CA".to_owned(), ..ClusterFacts::default() };
        let object = controller_config(&inputs(), &cluster, "BUNDLE", &Value::Null);
        let typed: ControllerConfig = serde_json::from_value(object).unwrap();
        assert_eq!(typed.spec.root_ca_data.unwrap().0, b"BUNDLE");
        assert_eq!(typed.spec.kube_api_server_serving_ca_data.unwrap().0, b"CA");
        assert_eq!(typed.spec.platform.as_deref(), Some("none"));
        assert_eq!(typed.spec.other, Default::default(), "all fields are known");
        let alone = ClusterFacts { is_single_node: true, ..cluster };
        let object = controller_config(&inputs(), &alone, "BUNDLE", &Value::Null);
        let typed: ControllerConfig = serde_json::from_value(object).unwrap();
        assert_eq!(control_plane_topology(&typed).as_deref(), Some("SingleReplica"));
    }

    #[test]
    fn the_objects_of_the_cluster_are_used() {
        let cluster = ClusterFacts {
            infrastructure: json!({
                "metadata": {"name": "cluster", "uid": "u", "resourceVersion": "5"},
                "status": {"apiServerInternalURI": "https://api-int.example.com:6443", "platformStatus": {"type": "AWS"}},
            }),
            network: json!({"spec": {"serviceNetwork": ["172.30.0.0/16"]}}),
            proxy: json!({"status": {"httpProxy": "http://p"}}),
            ..ClusterFacts::default()
        };
        assert_eq!(cluster.api_server().as_deref(), Some("https://api-int.example.com:6443"));
        assert_eq!(
            cluster.server("https://x").as_deref(),
            Some("https://api-int.example.com:22623")
        );
        let object = controller_config(&inputs(), &cluster, "", &Value::Null);
        assert_eq!(object["spec"]["clusterDNSIP"], "172.30.0.10");
        assert_eq!(object["spec"]["platform"], "aws");
        assert_eq!(object["spec"]["proxy"]["httpProxy"], "http://p");
        assert_eq!(object["spec"]["infra"]["metadata"], json!({"name": "cluster"}));
    }

    #[test]
    fn the_api_server_is_read_from_the_kubeconfig_of_kubeadm() {
        let info = "apiVersion: v1\nkind: Config\nclusters:\n- cluster: {server: 'https://10.0.0.1:6443'}\n";
        let cluster =
            ClusterFacts { cluster_info: Some(info.to_owned()), ..ClusterFacts::default() };
        assert_eq!(cluster.api_server().as_deref(), Some("https://10.0.0.1:6443"));
        assert_eq!(
            cluster.server("https://[fd00::1]:6443").as_deref(),
            Some("https://[fd00::1]:22623")
        );
        assert_eq!(ClusterFacts::default().api_server(), None);
        let names = server_names("https://[fd00::1]:22623", &["b".to_owned()]);
        assert_eq!(names, ["b", "fd00::1", "machine-config-server"]);
    }
}
