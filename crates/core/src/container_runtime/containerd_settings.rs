//! ContainerRuntimeConfig on nodes that kubeadm, k3s or RKE2 made, whose container runtime is containerd: drop-ins of
//! the kubelet and of containerd beside the installer's files. Each setting has a file of its own, so that several
//! objects of a pool add up. What neither of the two knows is left out and named. `crio_settings` calls this and has
//! checked the settings.

use super::crio_settings::parse_quantity;
use super::toml_text::quoted;
use crate::api::{ContainerRuntimeConfig, ContainerRuntimeConfiguration};
use crate::generated_config::{GenerateError, GeneratedFile};
use crate::profile::TemplateProfile;

/// Where containerd reads drop-ins, if its settings import them as those of version 2.2 do.
pub const CONTAINERD_DROP_INS: &str = "/etc/containerd/conf.d";

/// Whose files the settings are added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstallerLayout {
    /// The template of the profile makes the kubelet read a directory; containerd has settings of its own.
    Kubeadm,
    /// k3s and RKE2 give the kubelet a directory, and start containerd with settings that they write.
    Rancher(&'static str),
}

impl InstallerLayout {
    /// The layout of a profile; `None` if the settings are for CRI-O, as in MCO.
    pub(super) fn of_profile(profile: Option<TemplateProfile>) -> Option<Self> {
        match profile? {
            TemplateProfile::Kubeadm => Some(Self::Kubeadm),
            TemplateProfile::K3s => Some(Self::Rancher("k3s")),
            TemplateProfile::Rke2 => Some(Self::Rancher("rke2")),
            TemplateProfile::None | TemplateProfile::Machine | TemplateProfile::Kubernetes => None,
        }
    }

    /// A file with one setting of the kubelet, which comes after the drop-in of a KubeletConfig.
    fn kubelet_file(self, setting: &KubeletSetting) -> GeneratedFile {
        let KubeletSetting { name, field, value } = setting;
        let directory = match self {
            Self::Kubeadm => "/etc/kubernetes/kubelet.conf.d".to_owned(),
            Self::Rancher(product) => {
                format!("/var/lib/rancher/{product}/agent/etc/kubelet.conf.d")
            }
        };
        GeneratedFile::new(
            format!("{directory}/60-machinist-{name}.conf"),
            format!(
                "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{field}: {value}\n"
            ),
        )
    }
}

/// A setting of the kubelet.
struct KubeletSetting {
    /// The setting of the ContainerRuntimeConfig.
    name: &'static str,
    field: &'static str,
    /// As YAML.
    value: String,
}

/// What is written, and what is said about the settings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct InstallerFiles {
    pub(super) files: Vec<GeneratedFile>,
    /// What is left out or differs, each with its field.
    pub(super) notes: Vec<String>,
}

/// The files for settings that were checked.
pub(super) fn installer_files(
    config: &ContainerRuntimeConfig,
    settings: &ContainerRuntimeConfiguration,
    layout: InstallerLayout,
) -> Result<InstallerFiles, GenerateError> {
    let mut made = InstallerFiles::default();
    if let Some(limit) = settings.pids_limit {
        made.files.push(layout.kubelet_file(&KubeletSetting {
            name: "pidsLimit",
            field: "podPidsLimit",
            value: if limit == 0 { "-1".to_owned() } else { limit.to_string() },
        }));
        made.note("pidsLimit", "containerd has no limit for a container: it is the kubelet's podPidsLimit, which all containers of a pod share");
    }
    if let Some((size, shown)) = parse_quantity(config, "logSizeMax", &settings.log_size_max)?
        && size != 0
    {
        let shown = if size < 0 { "-1".to_owned() } else { shown };
        made.files.push(layout.kubelet_file(&KubeletSetting {
            name: "logSizeMax",
            field: "containerLogMaxSize",
            value: quoted(&shown),
        }));
    }
    if let Some(level) = settings.log_level.as_deref().filter(|level| !level.is_empty()) {
        match layout {
            InstallerLayout::Kubeadm => made.files.push(GeneratedFile::new(
                format!("{CONTAINERD_DROP_INS}/60-machinist-logLevel.toml"),
                format!("version = 2\n\n[debug]\n  level = {}\n", quoted(level)),
            )),
            InstallerLayout::Rancher(product) => made.note(
                "logLevel",
                &format!("no effect: {product} starts its containerd itself: set CONTAINERD_LOG_LEVEL in the environment of its unit"),
            ),
        }
    }
    for (field, is_set, why) in [
        (
            "overlaySize",
            settings.overlay_size.is_some(),
            "no effect: containerd cannot limit the file system of a container: use limits of ephemeral-storage",
        ),
        (
            "defaultRuntime",
            settings.default_runtime.as_ref().is_some_and(|name| !name.is_empty()),
            "no effect: before containerd 2.0, a drop-in would replace all settings of its plugin for Kubernetes: use a RuntimeClass, or set default_runtime_name where the installer configures containerd",
        ),
        ("additionalLayerStores", settings.additional_layer_stores.is_some(), ONLY_CRIO),
        ("additionalImageStores", settings.additional_image_stores.is_some(), ONLY_CRIO),
        ("additionalArtifactStores", settings.additional_artifact_stores.is_some(), ONLY_CRIO),
    ] {
        if is_set {
            made.note(field, why);
        }
    }
    Ok(made)
}

const ONLY_CRIO: &str = "no effect: only CRI-O has additional stores";

impl InstallerFiles {
    fn note(&mut self, field: &str, text: &str) {
        self.notes.push(format!("spec.containerRuntimeConfig.{field}: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The files by path, and the notes, of settings.
    fn made(profile: TemplateProfile, settings: &Value) -> (Vec<(String, String)>, Vec<String>) {
        let config: ContainerRuntimeConfig = serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ContainerRuntimeConfig",
            "metadata": {"name": "a"}, "spec": {"containerRuntimeConfig": settings},
        }))
        .unwrap();
        let settings = config.spec.container_runtime_config.clone().unwrap();
        let layout = InstallerLayout::of_profile(Some(profile)).unwrap();
        let made = installer_files(&config, &settings, layout).unwrap();
        let text = |file: GeneratedFile| (file.path, String::from_utf8(file.contents).unwrap());
        (made.files.into_iter().map(text).collect(), made.notes)
    }

    #[test]
    fn what_kubelet_and_containerd_know_is_written_in_their_words() {
        let kubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let conf = "/etc/kubernetes/kubelet.conf.d/60-machinist-";
        for (settings, path, text) in [
            (
                json!({"pidsLimit": 2048}),
                format!("{conf}pidsLimit.conf"),
                format!("{kubelet}podPidsLimit: 2048\n"),
            ),
            (
                json!({"pidsLimit": 0}),
                format!("{conf}pidsLimit.conf"),
                format!("{kubelet}podPidsLimit: -1\n"),
            ),
            (
                json!({"logSizeMax": "50Mi"}),
                format!("{conf}logSizeMax.conf"),
                format!("{kubelet}containerLogMaxSize: \"50Mi\"\n"),
            ),
            (
                json!({"logSizeMax": -7}),
                format!("{conf}logSizeMax.conf"),
                format!("{kubelet}containerLogMaxSize: \"-1\"\n"),
            ),
            (
                json!({"logLevel": "debug"}),
                "/etc/containerd/conf.d/60-machinist-logLevel.toml".to_owned(),
                "version = 2\n\n[debug]\n  level = \"debug\"\n".to_owned(),
            ),
        ] {
            let (files, _) = made(TemplateProfile::Kubeadm, &settings);
            assert_eq!(files, [(path, text)], "{settings}");
        }
        for (profile, product) in [(TemplateProfile::K3s, "k3s"), (TemplateProfile::Rke2, "rke2")] {
            let (files, notes) =
                made(profile, &json!({"pidsLimit": 100, "logSizeMax": "20M", "logLevel": "warn"}));
            let file = |name: &str, line: &str| {
                let directory = format!("/var/lib/rancher/{product}/agent/etc/kubelet.conf.d");
                (format!("{directory}/60-machinist-{name}.conf"), format!("{kubelet}{line}\n"))
            };
            let expected = [
                file("pidsLimit", "podPidsLimit: 100"),
                file("logSizeMax", "containerLogMaxSize: \"20M\""),
            ];
            assert_eq!(files, expected);
            assert!(notes.iter().any(|note| note.contains(".logLevel: no effect")), "{notes:?}");
        }
    }

    /// No setting is ignored in silence: each has a file or a note, in every layout.
    #[test]
    fn every_setting_has_a_file_or_a_note() {
        let store = json!([{"path": "/a"}]);
        for profile in [TemplateProfile::Kubeadm, TemplateProfile::K3s, TemplateProfile::Rke2] {
            for (field, value, is_written) in [
                ("pidsLimit", json!(100), true),
                ("logSizeMax", json!("1Mi"), true),
                ("logLevel", json!("info"), profile == TemplateProfile::Kubeadm),
                ("overlaySize", json!("8G"), false),
                ("defaultRuntime", json!("crun"), false),
                ("additionalLayerStores", store.clone(), false),
                ("additionalImageStores", store.clone(), false),
                ("additionalArtifactStores", store.clone(), false),
            ] {
                let (files, notes) = made(profile, &json!({field: value}));
                let start = format!("spec.containerRuntimeConfig.{field}: ");
                assert_eq!(!files.is_empty(), is_written, "{profile:?} {field}");
                assert!(
                    is_written || notes.len() == 1 && notes[0].starts_with(&start),
                    "{profile:?} {field}: {notes:?}"
                );
            }
        }
    }
}
