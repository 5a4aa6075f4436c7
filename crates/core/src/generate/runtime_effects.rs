//! Nodes on which the settings of a ContainerRuntimeConfig have no effect: their hosts report another container runtime,
//! or a containerd that reads no drop-ins. The controller says so on the object.

use crate::api::ContainerRuntimeConfig;
use crate::container_runtime::CONTAINERD_DROP_INS;
use crate::os::abilities::{CONTAINERD_IMPORTS, HostAbilities, HostRuntime};
use crate::profile::TemplateProfile;

/// More nodes than this are only counted.
const MAX_NAMES: usize = 5;

/// A node that an object is for, and what its daemon reports about the host.
pub type NodeHost<'a> = (&'a str, HostAbilities);

/// The warnings about nodes, in words for the object.
#[must_use]
pub fn nodes_without_effect(
    config: &ContainerRuntimeConfig,
    profile: Option<TemplateProfile>,
    nodes: &[NodeHost<'_>],
) -> Vec<String> {
    let Some(settings) = &config.spec.container_runtime_config else { return Vec::new() };
    let names = |is_meant: &dyn Fn(&HostAbilities) -> bool| -> Vec<&str> {
        nodes.iter().filter(|(_, host)| is_meant(host)).map(|(name, _)| *name).collect()
    };
    let is_for_containerd = matches!(
        profile,
        Some(TemplateProfile::Kubeadm | TemplateProfile::K3s | TemplateProfile::Rke2)
    );
    let mut warnings = Vec::new();
    if !is_for_containerd {
        let other = names(&|host| has_containerd(host) && !host.has_runtime(HostRuntime::Crio));
        if !other.is_empty() {
            warnings.push(format!(
                "no effect on {}: the settings are for CRI-O, and containerd runs there: set the profile kubeadm, k3s or rke2",
                listed(&other)
            ));
        }
        return warnings;
    }
    let crio = names(&|host| host.has_runtime(HostRuntime::Crio));
    if !crio.is_empty() {
        warnings.push(format!(
            "only pidsLimit and logSizeMax have an effect on {}: CRI-O runs there, and the profile is for containerd: write /etc/crio/crio.conf.d with a MachineConfig",
            listed(&crio)
        ));
    }
    let is_set = settings.log_level.as_ref().is_some_and(|level| !level.is_empty());
    if is_set && profile == Some(TemplateProfile::Kubeadm) {
        let deaf = names(&|host| has_containerd(host) && !host.containerd_drop_ins);
        if !deaf.is_empty() {
            warnings.push(format!(
                "spec.containerRuntimeConfig.logLevel: no effect on {}: /etc/containerd/config.toml there does not read {CONTAINERD_DROP_INS}: add imports = [\"{CONTAINERD_IMPORTS}\"] to it",
                listed(&deaf)
            ));
        }
    }
    warnings
}

fn has_containerd(host: &HostAbilities) -> bool {
    host.has_runtime(HostRuntime::Containerd)
        || host.has_runtime(HostRuntime::ContainerdWithoutCertsD)
}

fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn host(runtime: &str, drop_ins: bool) -> HostAbilities {
        let report = json!({"containerRuntimes": [runtime], "containerdDropIns": drop_ins});
        HostAbilities::parse(&report.to_string()).unwrap()
    }

    #[test]
    fn nodes_with_another_runtime_are_named() {
        use TemplateProfile::{K3s, Kubeadm, Kubernetes};
        let (crio, deaf, reads) =
            (host("crio", false), host("containerd", false), host("containerd", true));
        let old = host("containerd-without-certs-d", false);
        let nodes = [("a", crio), ("b", deaf), ("c", reads), ("d", old)];
        let level = json!({"logLevel": "debug"});
        let limit = json!({"pidsLimit": 100});
        for (profile, settings, expected) in [
            (None, &limit, &["no effect on b, c, d: the settings are for CRI-O"][..]),
            (Some(Kubernetes), &limit, &["no effect on b, c, d: "]),
            (Some(Kubeadm), &limit, &["only pidsLimit and logSizeMax have an effect on a: CRI-O"]),
            (
                Some(Kubeadm),
                &level,
                &[
                    "only pidsLimit and logSizeMax have an effect on a: ",
                    "spec.containerRuntimeConfig.logLevel: no effect on b, d: /etc/containerd/config.toml",
                ],
            ),
            (Some(K3s), &level, &["only pidsLimit and logSizeMax have an effect on a: "]),
            (Some(Kubeadm), &Value::Null, &[]),
        ] {
            let config: ContainerRuntimeConfig = serde_json::from_value(json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ContainerRuntimeConfig",
                "metadata": {"name": "a"}, "spec": {"containerRuntimeConfig": settings},
            }))
            .unwrap();
            let found = nodes_without_effect(&config, profile, &nodes);
            assert_eq!(found.len(), expected.len(), "{profile:?} {settings}: {found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.starts_with(expected), "{profile:?} {settings}: {found}");
            }
        }
    }

    #[test]
    fn many_nodes_are_counted() {
        assert_eq!(listed(&["a", "b"]), "a, b");
        assert_eq!(listed(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}
