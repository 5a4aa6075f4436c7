//! The built-in profiles of templates, who installed a node's kubelet, and which profile fits which node.
//!
//! A profile that replaces the files of kubeadm, k3s or a cloud cuts the node off from its cluster. So each profile
//! declares whose nodes it is for, and everything else is refused in the same words: by `plan`, by the controller
//! before it assigns the config, and by the daemon. Pure; `daemon/os/abilities` looks for the files, and
//! `os::abilities` asks [`refusal`].

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::MachineConfig;
use crate::api::names::annotation::machinist::PROFILE;

/// The templates that Machinist includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TemplateProfile {
    /// No templates: machines get only what administrators write.
    #[default]
    None,
    /// A minimum: role, proxy, certificates.
    Machine,
    /// Also the kubelet and the container runtime, for machines that Machinist installs.
    Kubernetes,
    /// Drop-ins beside what kubeadm wrote.
    Kubeadm,
    /// Drop-ins beside what k3s wrote.
    K3s,
    /// Drop-ins beside what RKE2 wrote.
    Rke2,
}

impl TemplateProfile {
    /// All profiles.
    pub const ALL: [Self; 6] =
        [Self::None, Self::Machine, Self::Kubernetes, Self::Kubeadm, Self::K3s, Self::Rke2];

    /// The value in flags, settings and annotations.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Machine => "machine",
            Self::Kubernetes => "kubernetes",
            Self::Kubeadm => "kubeadm",
            Self::K3s => "k3s",
            Self::Rke2 => "rke2",
        }
    }

    /// The profile of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.as_str() == name)
    }

    /// Whether the profile is for nodes of an installer; `None` is a machine without a kubelet.
    #[must_use]
    pub fn supports(self, installer: Option<NodeInstaller>) -> bool {
        match self {
            Self::None | Self::Machine => true,
            Self::Kubernetes => matches!(installer, None | Some(NodeInstaller::Machinist)),
            Self::Kubeadm => installer == Some(NodeInstaller::Kubeadm),
            Self::K3s => installer == Some(NodeInstaller::K3s),
            Self::Rke2 => installer == Some(NodeInstaller::Rke2),
        }
    }

    /// Whether the profile only adds to what the installer of a node wrote, as MCO's templates do not.
    #[must_use]
    pub fn is_beside_installer(self) -> bool {
        matches!(self, Self::None | Self::Kubeadm | Self::K3s | Self::Rke2)
    }

    /// Whose nodes it is for, in words.
    fn nodes(self) -> &'static str {
        match self {
            Self::None | Self::Machine => "all machines",
            Self::Kubernetes => "machines that Machinist installs",
            Self::Kubeadm => "nodes that kubeadm made",
            Self::K3s => "nodes that k3s made",
            Self::Rke2 => "nodes that RKE2 made",
        }
    }
}

/// Who installed the kubelet of a node, and owns its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeInstaller {
    /// kubeadm.
    Kubeadm,
    /// k3s.
    K3s,
    /// RKE2.
    Rke2,
    /// k0s.
    K0s,
    /// An image of Amazon EKS.
    Eks,
    /// An image of Azure Kubernetes Service.
    Aks,
    /// An image of Google Kubernetes Engine.
    Gke,
    /// OpenShift's Machine Config Operator.
    Mco,
    /// Machinist, from its own templates.
    Machinist,
    /// Somebody else.
    #[serde(other)]
    Other,
}

impl NodeInstaller {
    /// How a node of this installer is described.
    fn made_by(self) -> &'static str {
        match self {
            Self::Kubeadm => "was made by kubeadm",
            Self::K3s => "was made by k3s",
            Self::Rke2 => "was made by RKE2",
            Self::K0s => "was made by k0s",
            Self::Eks => "was made from an image of EKS",
            Self::Aks => "was made from an image of AKS",
            Self::Gke => "was made from an image of GKE",
            Self::Mco => "was made by MCO",
            Self::Machinist => "was made by Machinist",
            Self::Other => "has a kubelet that somebody else installed",
        }
    }

    /// The profile for such nodes.
    fn profile(self) -> TemplateProfile {
        match self {
            Self::Kubeadm => TemplateProfile::Kubeadm,
            Self::K3s => TemplateProfile::K3s,
            Self::Rke2 => TemplateProfile::Rke2,
            Self::Machinist => TemplateProfile::Kubernetes,
            _ => TemplateProfile::None,
        }
    }

    /// The files and units that identify the node to its cluster and start its kubelet. No config may take them over.
    fn own_names(self) -> &'static [&'static str] {
        match self {
            Self::Kubeadm => &["/etc/kubernetes/kubelet.conf", "kubelet.service"],
            _ => &[],
        }
    }
}

/// The files and directories by which installers are recognised. Most specific first: RKE2 contains parts of k3s, and
/// images of clouds may contain kubeadm.
pub const MARKERS: [(&str, NodeInstaller); 16] = [
    ("/var/lib/rancher/rke2", NodeInstaller::Rke2),
    ("/usr/local/lib/systemd/system/rke2-server.service", NodeInstaller::Rke2),
    ("/usr/local/lib/systemd/system/rke2-agent.service", NodeInstaller::Rke2),
    ("/var/lib/rancher/k3s", NodeInstaller::K3s),
    ("/etc/systemd/system/k3s.service", NodeInstaller::K3s),
    ("/etc/systemd/system/k3s-agent.service", NodeInstaller::K3s),
    ("/var/lib/k0s", NodeInstaller::K0s),
    ("/etc/systemd/system/k0scontroller.service", NodeInstaller::K0s),
    ("/etc/systemd/system/k0sworker.service", NodeInstaller::K0s),
    ("/etc/eks", NodeInstaller::Eks),
    ("/opt/azure/containers", NodeInstaller::Aks),
    ("/etc/kubernetes/azure.json", NodeInstaller::Aks),
    ("/home/kubernetes/kube-env", NodeInstaller::Gke),
    ("/var/lib/kubelet/kubeadm-flags.env", NodeInstaller::Kubeadm),
    ("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", NodeInstaller::Kubeadm),
    ("/etc/systemd/system/kubelet.service.d/10-kubeadm.conf", NodeInstaller::Kubeadm),
];

/// The unit of a kubelet that was not installed by a package.
pub const KUBELET_UNIT: &str = "/etc/systemd/system/kubelet.service";
/// Exists where a kubelet has run.
pub const KUBELET_PODS: &str = "/var/lib/kubelet/pods";
/// In the kubelet's unit of the profile `kubernetes`, and in no other.
const OWN_UNIT_MARKER: &str = "machinist-node-sizing";

/// What was found of a kubelet and its installer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstallerFacts {
    /// The paths of [`MARKERS`] that exist.
    pub markers: BTreeSet<&'static str>,
    /// The text of [`KUBELET_UNIT`].
    pub kubelet_unit: Option<String>,
    /// Whether [`KUBELET_PODS`] exists.
    pub has_run_pods: bool,
    /// Whether the host is a CoreOS.
    pub is_coreos: bool,
}

/// Who installed the kubelet of a host; `None` without one.
#[must_use]
pub fn detect_installer(facts: &InstallerFacts) -> Option<NodeInstaller> {
    let marked = MARKERS.iter().find(|(path, _)| facts.markers.contains(path));
    if let Some((_, installer)) = marked {
        return Some(*installer);
    }
    match &facts.kubelet_unit {
        Some(unit) if unit.contains(OWN_UNIT_MARKER) => Some(NodeInstaller::Machinist),
        Some(_) if facts.is_coreos => Some(NodeInstaller::Mco),
        Some(_) => Some(NodeInstaller::Other),
        None => facts.has_run_pods.then_some(NodeInstaller::Other),
    }
}

/// Why a node of an installer does not take a config: it comes from a profile for other nodes, or it takes over what
/// belongs to the installer. What the old config has taken over already is no reason.
#[must_use]
pub fn refusal(
    installer: Option<NodeInstaller>,
    old: &MachineConfig,
    new: &MachineConfig,
) -> Option<String> {
    let node = installer.map_or("has no kubelet", NodeInstaller::made_by);
    if let Some(name) = profile_name(new) {
        let Some(profile) = TemplateProfile::from_name(name) else {
            return Some(format!(
                "the config comes from the profile {name:.40}, which this version of Machinist does not know: update the daemon"
            ));
        };
        if !profile.supports(installer) {
            let fitting = installer.map_or(TemplateProfile::Machine, NodeInstaller::profile);
            let remedy = match fitting {
                TemplateProfile::None => "set the profile none".to_owned(),
                fitting => format!("set the profile {} or none", fitting.as_str()),
            };
            return Some(format!(
                "the config comes from the profile {name}, which is for {}, and this machine {node}: {remedy}",
                profile.nodes()
            ));
        }
    }
    let own = installer.map_or(&[][..], NodeInstaller::own_names);
    let taken = own.iter().find(|name| takes_over(new, name) && !takes_over(old, name))?;
    Some(format!(
        "the config replaces {taken}, which connects this node to its cluster; the node {node}: use a drop-in, or the profile {}",
        installer.map_or("none", |installer| installer.profile().as_str())
    ))
}

/// The profile that a rendered config comes from.
#[must_use]
pub fn profile_name(config: &MachineConfig) -> Option<&str> {
    config.metadata.annotations.as_ref()?.get(PROFILE).map(String::as_str)
}

/// Whether a config has a file of this path, or a unit of this name with contents of its own.
fn takes_over(config: &MachineConfig, name: &str) -> bool {
    let Some(config) = &config.spec.config else { return false };
    let list =
        |pointer: &str| config.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let is_unit = |unit: &Value| {
        unit["name"] == name && unit["contents"].as_str().is_some_and(|text| !text.is_empty())
    };
    list("/storage/files").any(|file| file["path"] == name) || list("/systemd/units").any(is_unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(profile: Option<&str>, ignition: &Value) -> MachineConfig {
        let annotations = profile.map(|profile| json!({PROFILE: profile}));
        serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "x", "annotations": annotations}, "spec": {"config": ignition},
        }))
        .unwrap()
    }

    #[test]
    fn who_installed_a_node() {
        let facts = |markers: &[&'static str], unit: Option<&str>, has_run_pods, is_coreos| {
            detect_installer(&InstallerFacts {
                markers: markers.iter().copied().collect(),
                kubelet_unit: unit.map(str::to_owned),
                has_run_pods,
                is_coreos,
            })
        };
        let own = "ExecStartPre=/usr/local/sbin/machinist-node-sizing\n";
        for (path, expected) in MARKERS {
            assert_eq!(facts(&[path], None, true, false), Some(expected), "{path}");
        }
        for (markers, unit, has_run_pods, is_coreos, expected) in [
            (vec![], None, false, false, None),
            (vec![], None, true, false, Some(NodeInstaller::Other)),
            (vec![], Some("[Service]"), false, false, Some(NodeInstaller::Other)),
            (vec![], Some("[Service]"), true, true, Some(NodeInstaller::Mco)),
            (vec![], Some(own), true, true, Some(NodeInstaller::Machinist)),
            // An earlier version replaced the unit of kubeadm.
            (vec![MARKERS[13].0], Some(own), true, false, Some(NodeInstaller::Kubeadm)),
            (vec![MARKERS[3].0, MARKERS[0].0], None, true, false, Some(NodeInstaller::Rke2)),
        ] {
            let found = facts(&markers, unit, has_run_pods, is_coreos);
            assert_eq!(found, expected, "{markers:?} {unit:?}");
        }
    }

    #[test]
    fn a_profile_is_only_for_the_nodes_it_names() {
        use NodeInstaller::{Aks, Eks, Gke, K0s, K3s, Kubeadm, Machinist, Mco, Other, Rke2};
        let all = [Kubeadm, K3s, Rke2, K0s, Eks, Aks, Gke, Mco, Machinist, Other];
        let all: Vec<_> = all.into_iter().map(Some).chain([None]).collect();
        for (profile, expected) in [
            ("none", all.clone()),
            ("machine", all.clone()),
            ("kubernetes", vec![Some(Machinist), None]),
            ("kubeadm", vec![Some(Kubeadm)]),
            ("k3s", vec![Some(K3s)]),
            ("rke2", vec![Some(Rke2)]),
            ("later", vec![]),
        ] {
            let new = config(Some(profile), &json!({}));
            let takes = |installer: &&Option<NodeInstaller>| {
                refusal(**installer, &config(None, &json!({})), &new).is_none()
            };
            let found: Vec<_> = all.iter().filter(takes).copied().collect();
            assert_eq!(found, expected, "{profile}");
        }
        let kubernetes = config(Some("kubernetes"), &json!({}));
        let empty = config(None, &json!({}));
        for (installer, expected) in [
            (
                Kubeadm,
                "the config comes from the profile kubernetes, which is for machines that Machinist installs, and this machine was made by kubeadm: set the profile kubeadm or none",
            ),
            (
                Gke,
                "the config comes from the profile kubernetes, which is for machines that Machinist installs, and this machine was made from an image of GKE: set the profile none",
            ),
        ] {
            assert_eq!(refusal(Some(installer), &empty, &kubernetes).as_deref(), Some(expected));
        }
        // What an earlier version put there can always be taken back.
        assert_eq!(refusal(Some(Kubeadm), &kubernetes, &empty), None);
    }

    #[test]
    fn nobody_takes_over_the_kubeconfig_or_the_unit_of_kubeadm() {
        let file = |path: &str| json!({"storage": {"files": [{"path": path}]}});
        let unit = |more: &Value| {
            let mut unit = more.clone();
            unit["name"] = "kubelet.service".into();
            json!({"systemd": {"units": [unit]}})
        };
        let (kubeconfig, empty) = (file("/etc/kubernetes/kubelet.conf"), config(None, &json!({})));
        let dropin = unit(&json!({"dropins": [{"name": "a.conf"}]}));
        let whole = unit(&json!({"contents": "[Service]"}));
        for (ignition, installer, is_refused) in [
            (&kubeconfig, Some(NodeInstaller::Kubeadm), true),
            (&whole, Some(NodeInstaller::Kubeadm), true),
            (&dropin, Some(NodeInstaller::Kubeadm), false),
            (&file("/etc/motd"), Some(NodeInstaller::Kubeadm), false),
            (&kubeconfig, Some(NodeInstaller::Mco), false),
            (&kubeconfig, None, false),
        ] {
            let new = config(None, ignition);
            let found = refusal(installer, &empty, &new);
            assert_eq!(found.is_some(), is_refused, "{ignition} {installer:?}: {found:?}");
            assert_eq!(refusal(installer, &new, &new), None, "it is there already");
        }
    }

    #[test]
    fn an_installer_of_a_later_version_can_be_read() {
        let found: NodeInstaller = serde_json::from_value(json!("talos")).unwrap();
        assert_eq!(found, NodeInstaller::Other);
    }
}
