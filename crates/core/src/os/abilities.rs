//! What a host can do. The daemon detects it, and reports it on its Node; `plan` and the daemon refuse a
//! config that the host cannot carry out with the same words.
//!
//! Pure functions over what was found on a host; `daemon/os/detect` looks.

use serde::{Deserialize, Serialize};

use super::host::{HostFacts, HostKind, detect_host_kind, is_coreos, is_enterprise_linux, os_name};
use super::package_host::{self, BootLoader, BootLoaderFacts, detect_boot_loader};
use super::{DesiredOs, OsChange, OsDeployment, bootc};
use crate::api::MachineConfig;
use crate::profile::{self, InstallerFacts, NodeInstaller, detect_installer};

/// A longer report is not read: a machine writes it.
const MAX_REPORT_BYTES: usize = 4096;

/// The [`HostAbilities::init`] of a host without an init process that can be asked: a directory, for example.
pub const NO_INIT: &str = "none";

/// A container runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostRuntime {
    /// CRI-O.
    Crio,
    /// containerd that reads `certs.d`.
    Containerd,
    /// containerd whose settings name no directory for registries: it ignores mirrors.
    ContainerdWithoutCertsD,
    /// Docker.
    Docker,
    /// Podman, and what else uses the files in `/etc/containers`.
    Podman,
}

/// Whose rules apply to users and SSH keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserRules {
    /// MCO's: keys and password of `core`, in the file of Ignition.
    #[default]
    Core,
    /// Any user; keys go where sshd reads them.
    Any,
}

/// What a host can do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostAbilities {
    /// The name of its operating system.
    pub os: String,
    /// `systemd`, or [`NO_INIT`].
    pub init: String,
    /// How its operating system is changed: `plain`, `ostree`, `rpm-ostree`, `bootc`.
    pub images: Option<HostKind>,
    /// What reads kernel arguments; none where the images decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_loader: Option<BootLoader>,
    /// Why kernel arguments cannot be set, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_kernel_arguments: Option<String>,
    /// The kernels that `spec.kernelType` may name.
    pub kernel_types: Vec<String>,
    /// Whether `spec.extensions` works.
    pub extensions: bool,
    /// The container runtimes.
    pub container_runtimes: Vec<HostRuntime>,
    /// Whether containerd reads [`CONTAINERD_IMPORTS`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub containerd_drop_ins: bool,
    /// The file that sshd reads keys from, as a pattern of sshd_config; none with MCO's rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorized_keys: Option<String>,
    /// Whose keys and passwords can be managed.
    pub users: UserRules,
    /// Whether SELinux is enabled.
    pub selinux: bool,
    /// The package manager, such as `apt` or `dnf`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packages: Option<String>,
    /// Who installed its kubelet; none without a kubelet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installer: Option<NodeInstaller>,
}

/// What was found on a host, besides [`HostFacts`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AbilityFacts {
    /// What decides about the kind of the host.
    pub host: HostFacts,
    /// What decides about its boot loader.
    pub loader: BootLoaderFacts,
    /// Whether systemd runs.
    pub is_systemd: bool,
    /// The commands of [`LOOKED_FOR`] that are installed.
    pub commands: Vec<&'static str>,
    /// The settings of containerd.
    pub containerd_config: Option<String>,
    /// The major version of containerd, if it says so.
    pub containerd_major: Option<u32>,
    /// The pattern of the first file that sshd reads keys from.
    pub authorized_keys: Option<String>,
    /// Whether SELinux is enabled.
    pub selinux: bool,
    /// The architecture, as Rust names it.
    pub architecture: &'static str,
    /// What was found of a kubelet and its installer.
    pub installer: InstallerFacts,
}

/// The commands that a host is searched for.
pub const LOOKED_FOR: [&str; 9] =
    ["crio", "containerd", "dockerd", "podman", "sshd", "apt-get", "dnf", "zypper", "pacman"];

impl HostAbilities {
    /// The abilities of a host with these facts.
    #[must_use]
    pub fn from_facts(facts: &AbilityFacts) -> Self {
        let release = &facts.host.os_release;
        let (kind, _) = detect_host_kind(&facts.host);
        let (loader, why) = detect_boot_loader(facts.loader);
        let boot_loader = (kind == HostKind::Plain).then_some(loader);
        let has = |command: &str| facts.commands.contains(&command);
        let no_kernel_arguments = match kind {
            HostKind::Plain if loader == BootLoader::Nobody => Some(why),
            HostKind::Bootc if !facts.host.has_rpm_ostree => {
                Some("a bootc host cannot do this without rpm-ostree".to_owned())
            }
            _ => None,
        };
        let has_packages = kind == HostKind::RpmOstree && is_enterprise_linux(release);
        let kernels: &[&str] = match has_packages {
            true if facts.architecture == "aarch64" => &["default", "realtime", "64k-pages"],
            true => &["default", "realtime"],
            false => &["default"],
        };
        let users = user_rules(release);
        let managers =
            [("apt-get", "apt"), ("dnf", "dnf"), ("zypper", "zypper"), ("pacman", "pacman")];
        Self {
            os: os_name(release).to_owned(),
            init: if facts.is_systemd { "systemd" } else { NO_INIT }.to_owned(),
            images: Some(kind),
            boot_loader,
            no_kernel_arguments,
            kernel_types: kernels.iter().map(|&kernel| kernel.to_owned()).collect(),
            extensions: has_packages,
            container_runtimes: container_runtimes(facts),
            containerd_drop_ins: has("containerd")
                && imports_drop_ins(facts.containerd_config.as_deref().unwrap_or_default()),
            authorized_keys: facts.authorized_keys.clone().filter(|_| users == UserRules::Any),
            users,
            selinux: facts.selinux,
            packages: managers
                .iter()
                .find(|(command, _)| has(command))
                .map(|(_, name)| (*name).to_owned()),
            installer: detect_installer(&InstallerFacts {
                is_coreos: is_coreos(release),
                ..facts.installer.clone()
            }),
        }
    }

    /// Reads what a machine reports. An unreadable report counts as none.
    #[must_use]
    pub fn parse(report: &str) -> Option<Self> {
        (report.len() <= MAX_REPORT_BYTES).then(|| serde_json::from_str(report).ok())?
    }

    /// The report for the Node.
    #[must_use]
    pub fn to_report(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether the host has a container runtime.
    #[must_use]
    pub fn has_runtime(&self, runtime: HostRuntime) -> bool {
        self.container_runtimes.contains(&runtime)
    }

    /// Why the host cannot make a change of its operating system.
    #[must_use]
    pub fn refusal(&self, change: &OsChange) -> Option<String> {
        match self.images? {
            HostKind::Plain => package_host::refusal(change, self.no_kernel_arguments.as_deref()),
            HostKind::Bootc => bootc::refusal(change, self.no_kernel_arguments.is_none()),
            HostKind::RpmOstree | HostKind::Ostree => self.package_refusal(change),
        }
    }

    /// Why a host cannot take the packages of a change.
    fn package_refusal(&self, change: &OsChange) -> Option<String> {
        let os = &self.os;
        let kernel = change.kernel_type.as_ref().map(|(_, new)| new);
        if let Some(kernel) = kernel.filter(|kernel| !self.kernel_types.contains(kernel)) {
            let there = self.kernel_types.join(", ");
            return Some(format!(
                "spec.kernelType: {kernel} is not available on this host ({os}), which has {there}: take it out of the config, or build it into the image"
            ));
        }
        let wanted = change.extensions.as_deref().unwrap_or_default();
        (!wanted.is_empty() && !self.extensions).then(|| {
            let wanted = wanted.join(", ");
            format!(
                "spec.extensions: this host ({os}) takes no extensions ({wanted}): take them out of the config, or build them into the image"
            )
        })
    }

    /// Why a machine with this host does not take the profile or the files of a config.
    #[must_use]
    pub fn profile_refusal(&self, old: &MachineConfig, new: &MachineConfig) -> Option<String> {
        profile::refusal(self.installer, old, new)
    }

    /// Why a machine with this host cannot change from one config to another.
    #[must_use]
    pub fn config_refusal(&self, old: &MachineConfig, new: &MachineConfig) -> Option<String> {
        if let Some(refused) = self.profile_refusal(old, new) {
            return Some(refused);
        }
        let (old, new) = (DesiredOs::from_config(old), DesiredOs::from_config(new));
        if old == new {
            return None;
        }
        let booted = OsDeployment { image: old.image.clone(), ..OsDeployment::default() };
        self.refusal(&OsChange::between(&old, &new, &booted))
    }
}

/// Whose rules apply to users, by os-release. MCO's for its own hosts, and for a root that says nothing about itself.
#[must_use]
pub fn user_rules(os_release: &str) -> UserRules {
    let is_known = super::host::os_field(os_release, "ID").is_some();
    if is_known && !is_coreos(os_release) { UserRules::Any } else { UserRules::Core }
}

fn container_runtimes(facts: &AbilityFacts) -> Vec<HostRuntime> {
    let has = |command: &str| facts.commands.contains(&command);
    let containerd = match reads_certs_d(facts.containerd_config.as_deref(), facts.containerd_major)
    {
        true => HostRuntime::Containerd,
        false => HostRuntime::ContainerdWithoutCertsD,
    };
    [
        ("crio", HostRuntime::Crio),
        ("containerd", containerd),
        ("dockerd", HostRuntime::Docker),
        ("podman", HostRuntime::Podman),
    ]
    .into_iter()
    .filter_map(|(command, runtime)| has(command).then_some(runtime))
    .collect()
}

/// Whether containerd reads [`CERTS_D`], by its settings and its major version. From version 2 on it needs no
/// such a setting.
#[must_use]
pub fn reads_certs_d(config: Option<&str>, major: Option<u32>) -> bool {
    let lines = config
        .unwrap_or_default()
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("config_path"));
    let mut values = lines.filter_map(|line| line.split_once('=')).map(|(_, value)| value.trim());
    match values.next_back() {
        Some(value) => value.contains(CERTS_D),
        None => major.is_some_and(|major| major >= 2),
    }
}

/// Whether the settings of containerd import [`CONTAINERD_IMPORTS`].
fn imports_drop_ins(config: &str) -> bool {
    let Ok(settings) = toml_edit::Document::parse(config) else { return false };
    let imports = settings.get("imports").and_then(toml_edit::Item::as_array);
    imports.is_some_and(|all| all.iter().any(|path| path.as_str() == Some(CONTAINERD_IMPORTS)))
}

/// The drop-ins of containerd. The settings of version 2.2 import them by default.
pub const CONTAINERD_IMPORTS: &str = "/etc/containerd/conf.d/*.toml";
/// Where containerd reads the settings of registries.
pub const CERTS_D: &str = "/etc/containerd/certs.d";

#[cfg(test)]
mod tests;
