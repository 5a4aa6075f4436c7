//! Built-in templates, for installations without their own.

use super::tree::TemplateTree;
use crate::profile::TemplateProfile;

/// A file with its path below the directory of its profile.
macro_rules! files {
    ($directory:literal: $($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../../templates/", $directory, "/", $path)))),*]
    };
}

const KUBERNETES: &[(&str, &str)] = files!("kubernetes":
    "common/_base/files/apiserver-url.yaml",
    "common/_base/files/journald.yaml",
    "common/_base/files/modules.yaml",
    "common/_base/files/node-sizing-enabled.yaml",
    "common/_base/files/node-sizing.yaml",
    "common/_base/files/proxy.yaml",
    "common/_base/files/pull-secret.yaml",
    "common/_base/files/sysctl.yaml",
    "common/_base/files/timesyncd.yaml",
    "common/_base/files/trust-bundle.yaml",
    "common/_base/units/containerd.service-proxy.yaml",
    "common/_base/units/crio.service-proxy.yaml",
    "common/_base/units/kubelet.service-proxy.yaml",
    "common/_base/units/machinist-ca-trust.service.yaml",
    "master/00-master/_base/files/role.yaml",
    "master/01-master-container-runtime/_base/files/containerd.yaml",
    "master/01-master-container-runtime/_base/files/crio.yaml",
    "master/01-master-container-runtime/_base/files/policy.yaml",
    "master/01-master-container-runtime/_base/files/registries.yaml",
    "master/01-master-kubelet/_base/files/kubelet.yaml",
    "master/01-master-kubelet/_base/units/kubelet.service.yaml",
    "worker/00-worker/_base/files/role.yaml",
    "worker/01-worker-container-runtime/_base/files/containerd.yaml",
    "worker/01-worker-container-runtime/_base/files/crio.yaml",
    "worker/01-worker-container-runtime/_base/files/policy.yaml",
    "worker/01-worker-container-runtime/_base/files/registries.yaml",
    "worker/01-worker-kubelet/_base/files/kubelet.yaml",
    "worker/01-worker-kubelet/_base/units/kubelet.service.yaml",
);

const MACHINE: &[(&str, &str)] = files!("machine":
    "common/_base/files/proxy.yaml",
    "common/_base/files/trust-bundle.yaml",
    "common/_base/units/machinist-ca-trust.service.yaml",
    "master/00-master/_base/files/role.yaml",
    "worker/00-worker/_base/files/role.yaml",
);

const KUBEADM: &[(&str, &str)] = files!("kubeadm":
    "master/01-master-kubelet/_base/files/kubelet.yaml",
    "master/01-master-kubelet/_base/units/kubelet.service.yaml",
    "worker/01-worker-kubelet/_base/files/kubelet.yaml",
    "worker/01-worker-kubelet/_base/units/kubelet.service.yaml",
);

const K3S: &[(&str, &str)] = files!("k3s":
    "master/01-master-kubelet/_base/files/kubelet.yaml",
    "worker/01-worker-kubelet/_base/files/kubelet.yaml",
);

const RKE2: &[(&str, &str)] = files!("rke2":
    "master/01-master-kubelet/_base/files/kubelet.yaml",
    "worker/01-worker-kubelet/_base/files/kubelet.yaml",
);

/// The templates of a profile.
#[must_use]
pub fn builtin_templates(profile: TemplateProfile) -> TemplateTree {
    let files = match profile {
        TemplateProfile::None => return TemplateTree::new(),
        TemplateProfile::Kubernetes => KUBERNETES,
        TemplateProfile::Machine => MACHINE,
        TemplateProfile::Kubeadm => KUBEADM,
        TemplateProfile::K3s => K3S,
        TemplateProfile::Rke2 => RKE2,
    };
    let mut templates = TemplateTree::of_profile(profile);
    for (path, contents) in files {
        templates.add_file(path, *contents);
    }
    templates
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::ControllerConfig;
    use crate::template::{TemplateInputs, generate};

    fn controller_config(more: &Value) -> ControllerConfig {
        let mut spec = json!({
            "clusterDNSIP": "10.96.0.10",
            "infra": {"status": {"platformStatus": {"type": "None"}, "apiServerInternalURI": "https://api:6443"}},
        });
        for (name, value) in more.as_object().unwrap() {
            spec[name] = value.clone();
        }
        let config = json!({"metadata": {"name": "machine-config-controller"}, "spec": spec});
        serde_json::from_value(config).unwrap()
    }

    /// Name, paths and units of each MachineConfig.
    fn made(profile: TemplateProfile, more: &Value) -> Vec<(String, BTreeSet<String>)> {
        let controller_config = controller_config(more);
        let inputs = TemplateInputs {
            controller_config: &controller_config,
            pull_secret: Some(b"{}"),
            api_server: None,
        };
        let all = generate(&builtin_templates(profile), &inputs, "v").unwrap();
        all.iter()
            .map(|made| {
                let config = made.machine_config.spec.config.as_ref().unwrap();
                crate::ignition::parse_and_upgrade(config).unwrap();
                let list = |pointer: &str, name: &str| {
                    let items =
                        config.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
                    items.map(|item| item[name].as_str().unwrap().to_owned()).collect::<Vec<_>>()
                };
                let mut names: BTreeSet<String> =
                    list("/storage/files", "path").into_iter().collect();
                names.extend(list("/systemd/units", "name"));
                (made.machine_config.metadata.name.clone().unwrap(), names)
            })
            .collect()
    }

    #[test]
    fn the_kubernetes_profile_has_its_files_and_units() {
        let more = json!({
            "proxy": {"httpProxy": "http://p:3128"},
            "additionalTrustBundle": "LS0t",
            "images": {"infraImageKey": "pause"},
        });
        let made = made(TemplateProfile::Kubernetes, &more);
        let names: Vec<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "00-master",
                "00-worker",
                "01-master-container-runtime",
                "01-master-kubelet",
                "01-worker-container-runtime",
                "01-worker-kubelet"
            ]
        );
        let has = |config: &str, what: &str| {
            let (_, found) = made.iter().find(|(name, _)| name == config).unwrap();
            assert!(found.contains(what), "{config} has no {what}: {found:?}");
        };
        for role in ["worker", "master"] {
            for what in [
                "/etc/sysctl.d/90-kubernetes.conf",
                "/etc/systemd/journald.conf.d/90-machinist.conf",
                "/etc/systemd/timesyncd.conf.d/10-machinist.conf",
                "/etc/mco/proxy.env",
                "/etc/machinist/trust-bundle.crt",
                "/var/lib/kubelet/config.json",
                "/etc/kubernetes/apiserver-url.env",
                "/etc/node-sizing-enabled.env",
                "machinist-ca-trust.service",
                "crio.service",
            ] {
                has(&format!("00-{role}"), what);
            }
            has(&format!("01-{role}-kubelet"), "/etc/kubernetes/kubelet.conf");
            has(&format!("01-{role}-kubelet"), "kubelet.service");
            has(&format!("01-{role}-container-runtime"), "/etc/containers/registries.conf");
            has(&format!("01-{role}-container-runtime"), "/etc/containers/policy.json");
        }
    }

    #[test]
    fn optional_files_are_omitted() {
        let made = made(TemplateProfile::Kubernetes, &json!({}));
        let (_, found) = &made[1];
        for what in
            ["/etc/machinist/trust-bundle.crt", "machinist-ca-trust.service", "crio.service"]
        {
            assert!(!found.contains(what), "{what}");
        }
    }

    #[test]
    fn the_machine_profile_is_almost_empty() {
        let made = made(TemplateProfile::Machine, &json!({}));
        let expected = ["/etc/machinist/role", "/etc/mco/proxy.env"].map(str::to_owned);
        assert_eq!(made.len(), 2);
        for (_, found) in made {
            assert_eq!(found, BTreeSet::from(expected.clone()));
        }
    }

    /// Nothing of the installer is replaced: only files and drop-ins of their own.
    #[test]
    fn profiles_for_nodes_of_others_add_files_beside_theirs() {
        let kubelet = |path: &str| BTreeSet::from([path.to_owned(), "kubelet.service".to_owned()]);
        let rancher = |name: &str| {
            let directory = format!("/var/lib/rancher/{name}/agent/etc/kubelet.conf.d");
            BTreeSet::from([format!("{directory}/50-machinist.conf")])
        };
        for (profile, expected) in [
            (TemplateProfile::None, None),
            (
                TemplateProfile::Kubeadm,
                Some(kubelet("/etc/kubernetes/kubelet.conf.d/50-machinist.conf")),
            ),
            (TemplateProfile::K3s, Some(rancher("k3s"))),
            (TemplateProfile::Rke2, Some(rancher("rke2"))),
        ] {
            let found = made(profile, &json!({}));
            let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
            match expected {
                None => assert!(names.is_empty(), "{names:?}"),
                Some(files) => {
                    assert_eq!(names, ["01-master-kubelet", "01-worker-kubelet"]);
                    assert!(found.iter().all(|(_, found)| *found == files), "{found:?}");
                }
            }
        }
    }

    /// Every file in the directory is embedded in the binary.
    #[test]
    fn every_template_is_embedded() {
        fn walk(directory: &Path, base: &Path, into: &mut BTreeSet<String>) {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, base, into);
                } else {
                    into.insert(path.strip_prefix(base).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../templates");
        for (directory, files) in [
            ("kubernetes", KUBERNETES),
            ("machine", MACHINE),
            ("kubeadm", KUBEADM),
            ("k3s", K3S),
            ("rke2", RKE2),
        ] {
            let base = root.join(directory);
            let mut found = BTreeSet::new();
            walk(&base, &base, &mut found);
            assert_eq!(found, files.iter().map(|(path, _)| (*path).to_owned()).collect());
        }
    }
}
