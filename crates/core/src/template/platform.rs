//! Template functions about the platform of a cluster.

use gotmpl::Value;
use serde_json::Value as Json;

use super::functions::{FunctionResult, texts};
use super::layers::{LoadBalancers, PlatformInfrastructure};

/// `external` if the platform has an external cloud controller, else empty.
pub(super) fn cloud_provider(infrastructure: &PlatformInfrastructure) -> FunctionResult {
    let external = match infrastructure.platform() {
        "AlibabaCloud" | "AWS" | "Azure" | "GCP" | "IBMCloud" | "KubeVirt" | "Nutanix"
        | "OpenStack" | "PowerVS" | "VSphere" => true,
        "External" => infrastructure
            .platform_status("external")
            .and_then(|status| status.pointer("/cloudControllerManager/state"))
            .is_some_and(|state| state == "External"),
        _ => false,
    };
    Ok(if external { "external" } else { "" }.into())
}

/// The kubelet flags for the cloud's credential provider.
pub(super) fn credential_provider_config_flag(
    infrastructure: &PlatformInfrastructure,
) -> FunctionResult {
    let provider = match infrastructure.platform() {
        "AWS" => "ecr",
        "GCP" => "gcr",
        "Azure" => "acr",
        _ => return Ok("".into()),
    };
    Ok(format!(
        "--image-credential-provider-bin-dir=/usr/libexec/kubelet-image-credential-provider-plugins \
         --image-credential-provider-config=/etc/kubernetes/credential-providers/{provider}-credential-provider.yaml"
    )
    .into())
}

/// The short name of an on-premise platform in file names.
pub(super) fn short_name(infrastructure: &PlatformInfrastructure) -> FunctionResult {
    Ok(match infrastructure.platform() {
        "BareMetal" => "kni",
        "oVirt" => "ovirt",
        "OpenStack" => "openstack",
        "VSphere" => "vsphere",
        "Nutanix" => "nutanix",
        _ => "",
    }
    .into())
}

pub(super) fn platform_type(infrastructure: &PlatformInfrastructure) -> FunctionResult {
    Ok(infrastructure.platform().into())
}

/// The status of an on-premise platform. It is optional for vSphere only.
fn on_premise<'a>(
    infrastructure: &'a PlatformInfrastructure,
    what: &str,
) -> Result<Option<&'a Json>, String> {
    let platform = infrastructure.platform();
    if !infrastructure.is_on_premise() {
        return Err(format!("invalid platform for {what}"));
    }
    let name = platform.to_lowercase();
    match infrastructure.platform_status(&name) {
        None if platform != "VSphere" => Err(format!(
            "the ControllerConfig has no spec.infra.status.platformStatus.{name} to take the \
             addresses from"
        )),
        status => Ok(status),
    }
}

fn addresses(infrastructure: &PlatformInfrastructure, what: &str, field: &str) -> FunctionResult {
    Ok(texts(on_premise(infrastructure, what)?.and_then(|status| status.get(field))))
}

fn first_address(
    infrastructure: &PlatformInfrastructure,
    what: &str,
    field: &str,
) -> FunctionResult {
    let status = on_premise(infrastructure, what)?;
    let first = status.and_then(|status| status.get(field)).and_then(|list| list.get(0));
    match first.and_then(Json::as_str) {
        Some(first) => Ok(first.into()),
        None if infrastructure.platform() == "VSphere" => Ok(Value::Nil),
        None => Err(format!("platformStatus has no {field}")),
    }
}

const API_SERVER: &str = "API Server Internal IP";
const INGRESS: &str = "Ingress IP";

pub(super) fn api_server_internal_ips(infrastructure: &PlatformInfrastructure) -> FunctionResult {
    addresses(infrastructure, API_SERVER, "apiServerInternalIPs")
}

pub(super) fn api_server_internal_ip(infrastructure: &PlatformInfrastructure) -> FunctionResult {
    first_address(infrastructure, API_SERVER, "apiServerInternalIPs")
}

pub(super) fn ingress_ips(infrastructure: &PlatformInfrastructure) -> FunctionResult {
    addresses(infrastructure, INGRESS, "ingressIPs")
}

pub(super) fn ingress_ip(infrastructure: &PlatformInfrastructure) -> FunctionResult {
    first_address(infrastructure, INGRESS, "ingressIPs")
}

/// Whether the cluster runs the load balancer of its control plane.
pub(super) fn is_managed_default_load_balancer(
    infrastructure: &PlatformInfrastructure,
) -> FunctionResult {
    if !infrastructure.is_on_premise() {
        return Ok(Value::Bool(true));
    }
    let platform = infrastructure.platform();
    let Some(status) = infrastructure.platform_status(&platform.to_lowercase()) else {
        return Ok(Value::Bool(false));
    };
    let addresses = status.get("apiServerInternalIPs").and_then(Json::as_array);
    // On vSphere, no address means an external load balancer.
    if platform == "VSphere" && addresses.is_none_or(Vec::is_empty) {
        return Ok(Value::Bool(false));
    }
    let balancer = status.get("loadBalancer").filter(|balancer| !balancer.is_null());
    let kind = balancer.map(|balancer| balancer.get("type").and_then(Json::as_str).unwrap_or(""));
    Ok(Value::Bool(kind.is_none_or(|kind| kind == "OpenShiftManagedDefault")))
}

/// The type of DNS records for the cluster's names.
pub(super) fn dns_records_type(infrastructure: &PlatformInfrastructure) -> FunctionResult {
    let platform = infrastructure.platform();
    let status = matches!(platform, "BareMetal" | "Nutanix" | "OpenStack" | "VSphere")
        .then(|| infrastructure.platform_status(&platform.to_lowercase()))
        .flatten();
    Ok(match status {
        Some(status) => status.get("dnsRecordsType").and_then(Json::as_str).unwrap_or_default(),
        None => "Internal",
    }
    .into())
}

fn load_balancer_ips(
    infrastructure: &PlatformInfrastructure,
    what: &str,
    field: &str,
) -> FunctionResult {
    let Some(cloud) = infrastructure.cloud() else {
        return Err("invalid cloud platform for API Server Internal IPs".to_owned());
    };
    match infrastructure.load_balancers() {
        LoadBalancers::Available => Ok(texts(
            infrastructure
                .platform_status(cloud)
                .and_then(|status| status.pointer("/cloudLoadBalancerConfig/clusterHosted"))
                .and_then(|hosted| hosted.get(field)),
        )),
        LoadBalancers::Absent => {
            let name = if cloud == "azure" { "azure" } else { infrastructure.platform() };
            Err(format!(
                "{name} {what} Load Balancer IPs unavailable when the DNSType is ClusterHosted"
            ))
        }
        LoadBalancers::Default => {
            Err("the cloud's own DNS knows the load balancers (dnsType is not ClusterHosted)"
                .to_owned())
        }
    }
}

pub(super) fn api_int_load_balancer_ips(infrastructure: &PlatformInfrastructure) -> FunctionResult {
    load_balancer_ips(infrastructure, "Internal API Server", "apiIntLoadBalancerIPs")
}

pub(super) fn api_load_balancer_ips(infrastructure: &PlatformInfrastructure) -> FunctionResult {
    load_balancer_ips(infrastructure, "API Server", "apiLoadBalancerIPs")
}

pub(super) fn ingress_load_balancer_ips(infrastructure: &PlatformInfrastructure) -> FunctionResult {
    load_balancer_ips(infrastructure, "Ingress", "ingressLoadBalancerIPs")
}
