//! Which template layers apply to a cluster, by platform and topology.

use serde_json::Value;

use super::error::TemplateError;

/// The layer that always applies.
const BASE_LAYER: &str = "_base";

/// The platforms with their own templates.
const PLATFORMS: [&str; 13] = [
    "AWS",
    "Azure",
    "BareMetal",
    "GCP",
    "OpenStack",
    "Libvirt",
    "oVirt",
    "VSphere",
    "KubeVirt",
    "PowerVS",
    "None",
    "External",
    "Nutanix",
];

/// The platforms on which the cluster manages its own virtual IPs.
const ON_PREMISE: [&str; 5] = ["BareMetal", "oVirt", "OpenStack", "VSphere", "Nutanix"];

/// The cluster's infrastructure, from the ControllerConfig.
#[derive(Debug, Clone, Default)]
pub(super) struct PlatformInfrastructure {
    /// `spec.infra.status`.
    status: Value,
}

/// Whether the cluster knows the addresses of the cloud's load balancers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadBalancers {
    /// The cloud's DNS resolves them.
    Default,
    /// The cluster hosts its DNS and knows them.
    Available,
    /// The cluster hosts its DNS and does not know them yet.
    Absent,
}

impl PlatformInfrastructure {
    /// Reads the spec of a ControllerConfig.
    pub(super) fn new(spec: &Value) -> Self {
        Self { status: spec.pointer("/infra/status").cloned().unwrap_or_default() }
    }

    /// The platform; empty if unset.
    pub(super) fn platform(&self) -> &str {
        self.status.pointer("/platformStatus/type").and_then(Value::as_str).unwrap_or_default()
    }

    /// The status of a platform, by its JSON name.
    pub(super) fn platform_status(&self, name: &str) -> Option<&Value> {
        let status = self.status.get("platformStatus")?.get(name)?;
        (!status.is_null()).then_some(status)
    }

    pub(super) fn has_topology(&self, topology: &str) -> bool {
        self.status.get("controlPlaneTopology").and_then(Value::as_str) == Some(topology)
    }

    pub(super) fn is_on_premise(&self) -> bool {
        ON_PREMISE.contains(&self.platform())
    }

    /// The JSON name of a cloud whose load balancers the cluster may know.
    pub(super) fn cloud(&self) -> Option<&'static str> {
        match self.platform() {
            "GCP" => Some("gcp"),
            "AWS" => Some("aws"),
            "Azure" => Some("azure"),
            _ => None,
        }
    }

    pub(super) fn load_balancers(&self) -> LoadBalancers {
        let config = self
            .cloud()
            .and_then(|cloud| self.platform_status(cloud))
            .and_then(|status| status.get("cloudLoadBalancerConfig"));
        match config {
            Some(config)
                if config.get("dnsType").and_then(Value::as_str) == Some("ClusterHosted") =>
            {
                match config.get("clusterHosted").is_some_and(|hosted| !hosted.is_null()) {
                    true => LoadBalancers::Available,
                    false => LoadBalancers::Absent,
                }
            }
            _ => LoadBalancers::Default,
        }
    }

    /// The layers that apply, lowest precedence first.
    pub(super) fn layers(&self) -> Result<Vec<String>, TemplateError> {
        let platform = match self.platform() {
            "" => return Err(TemplateError::NoPlatform),
            BASE_LAYER => return Err(TemplateError::BasePlatform),
            known if PLATFORMS.contains(&known) => known.to_lowercase(),
            // An unknown platform counts as `none`, so that it can be tried before it has templates.
            _ => "none".to_owned(),
        };
        let mut layers = vec![BASE_LAYER.to_owned()];
        let mut add = |holds: bool, layer: &str| {
            if holds {
                layers.push(layer.to_owned());
            }
        };
        add(self.is_on_premise(), "on-prem");
        add(self.load_balancers() == LoadBalancers::Available, "cloud-platform-alt-dns");
        add(true, &platform);
        add(self.has_topology("SingleReplica"), "sno");
        add(self.has_topology("DualReplica"), "two-node-with-fencing");
        Ok(layers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn layers(status: &Value) -> String {
        let infrastructure = PlatformInfrastructure::new(&json!({"infra": {"status": status}}));
        infrastructure.layers().map_or_else(|error| error.to_string(), |layers| layers.join(" "))
    }

    #[test]
    fn layers_follow_platform_and_topology() {
        let platform = |name: &str| json!({"platformStatus": {"type": name}});
        for (status, expected) in [
            (platform("None"), "_base none"),
            (platform("Foo"), "_base none"),
            (platform("KubeVirt"), "_base kubevirt"),
            (platform("oVirt"), "_base on-prem ovirt"),
            (platform("BareMetal"), "_base on-prem baremetal"),
            (platform("_base"), "platform _base unsupported"),
            (
                json!({"platformStatus": {"type": "VSphere"},
                       "controlPlaneTopology": "SingleReplica"}),
                "_base on-prem vsphere sno",
            ),
            (
                json!({"platformStatus": {"type": "BareMetal"},
                       "controlPlaneTopology": "DualReplica"}),
                "_base on-prem baremetal two-node-with-fencing",
            ),
            (
                json!({"platformStatus": {"type": "GCP", "gcp": {"cloudLoadBalancerConfig":
                      {"dnsType": "ClusterHosted", "clusterHosted": {}}}}}),
                "_base cloud-platform-alt-dns gcp",
            ),
            (
                json!({"platformStatus": {"type": "GCP", "gcp": {"cloudLoadBalancerConfig":
                      {"dnsType": "ClusterHosted"}}}}),
                "_base gcp",
            ),
        ] {
            assert_eq!(layers(&status), expected, "{status}");
        }
        assert!(layers(&json!({})).starts_with("cannot generate MachineConfigs when no"));
    }
}
