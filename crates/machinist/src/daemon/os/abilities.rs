//! Detects what a host can do. Looks and decides nothing: `core::os::abilities` does. Called by the agent when it
//! starts and after each change, and before a change of users.

use std::collections::BTreeMap;
use std::path::Path;

use machinist_core::os::abilities::{
    self, AbilityFacts, HostAbilities, LOOKED_FOR, UserRules, user_rules,
};
use machinist_core::os::sshd;
use machinist_core::profile::{InstallerFacts, KUBELET_PODS, KUBELET_UNIT, MARKERS};
use machinist_core::reconcile_check::ValidationOverrides;

use super::command::HostCommands;
use super::{detect, plain};

/// The settings of containerd.
const CONTAINERD_CONFIG: &str = "/etc/containerd/config.toml";
/// Exists when SELinux is enabled.
const SELINUX: &str = "/sys/fs/selinux/enforce";
/// Exists when systemd is the init process.
const SYSTEMD_BOOTED: &str = "/run/systemd/system";
/// The settings of sshd, and the directory that Debian, Fedora and their relatives include first.
const SSHD_CONFIG: &str = "/etc/ssh/sshd_config";
const SSHD_CONFIG_DIR: &str = "/etc/ssh/sshd_config.d";
/// How many files of that directory are read.
const MAX_SSHD_FILES: usize = 64;

/// What a host can do.
pub(crate) fn detect_abilities(root: &Path) -> HostAbilities {
    let host = HostCommands::new(root);
    let facts = detect::host_facts(&host);
    HostAbilities::from_facts(&AbilityFacts {
        loader: plain::boot_loader_facts(&host, &facts),
        is_systemd: host.path(SYSTEMD_BOOTED).is_dir(),
        commands: LOOKED_FOR.into_iter().filter(|command| host.has_command(command)).collect(),
        containerd_config: host.read_text(CONTAINERD_CONFIG),
        containerd_major: containerd_major(&host),
        authorized_keys: authorized_keys(&host, None),
        selinux: host.path(SELINUX).exists(),
        architecture: std::env::consts::ARCH,
        installer: installer_facts(&host),
        host: facts,
    })
}

/// What shows who installed the kubelet.
fn installer_facts(host: &HostCommands) -> InstallerFacts {
    let exists = |path: &&'static str| host.path(path).symlink_metadata().is_ok();
    InstallerFacts {
        markers: MARKERS.iter().map(|(path, _)| *path).filter(exists).collect(),
        kubelet_unit: host.read_text(KUBELET_UNIT),
        has_run_pods: host.path(KUBELET_PODS).is_dir(),
        is_coreos: false,
    }
}

/// Whether the host has a containerd that reads `certs.d`.
pub(crate) fn reads_certs_d(root: &Path) -> bool {
    let host = HostCommands::new(root);
    let config = host.read_text(CONTAINERD_CONFIG);
    host.has_command("containerd")
        && abilities::reads_certs_d(config.as_deref(), containerd_major(&host))
}

/// Where sshd reads the keys of users, by user; `None` where MCO's rules apply. Without a file, sshd reads none.
pub(crate) fn keys_files<'a>(
    root: &Path,
    users: impl Iterator<Item = &'a str>,
) -> Option<BTreeMap<String, Option<String>>> {
    let host = HostCommands::new(root);
    if user_rules(&detect::os_release(&host)) == UserRules::Core {
        return None;
    }
    Some(users.map(|user| (user.to_owned(), authorized_keys(&host, Some(user)))).collect())
}

/// The overrides with the users that a config may declare on a host.
pub(crate) fn with_user_rules(root: &Path, overrides: ValidationOverrides) -> ValidationOverrides {
    let rules = user_rules(&detect::os_release(&HostCommands::new(root)));
    ValidationOverrides { any_user: rules == UserRules::Any, ..overrides }
}

/// The pattern of the file that sshd reads the keys of a user from; `None` if it reads none. Asks sshd itself, and
/// reads its settings where it does not answer, as on a root that is not running.
fn authorized_keys(host: &HostCommands, user: Option<&str>) -> Option<String> {
    let ask = |user: Option<&str>| {
        let mut arguments = vec!["-T".to_owned()];
        // Settings may differ by user.
        arguments.extend(user.into_iter().flat_map(|user| {
            ["-C".to_owned(), format!("user={user},host=localhost,addr=127.0.0.1")]
        }));
        host.output("sshd", &arguments, false).ok().filter(|output| output.status.success())
    };
    if host.has_command("sshd")
        && let Some(output) = ask(user)
    {
        return sshd::from_effective(&String::from_utf8_lossy(&output.stdout));
    }
    let mut texts = Vec::new();
    let mut names: Vec<_> = std::fs::read_dir(host.path(SSHD_CONFIG_DIR))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".conf"))
        .collect();
    names.sort_unstable();
    names.truncate(MAX_SSHD_FILES);
    texts.extend(
        names.iter().filter_map(|name| host.read_text(&format!("{SSHD_CONFIG_DIR}/{name}"))),
    );
    texts.extend(host.read_text(SSHD_CONFIG));
    sshd::from_settings(&texts)
}

/// `containerd github.com/containerd/containerd 1.7.2 …` is version 1.
fn containerd_major(host: &HostCommands) -> Option<u32> {
    if !host.has_command("containerd") {
        return None;
    }
    let output = host.output("containerd", &["--version"], false).ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_whitespace().nth(2)?.trim_start_matches('v').to_owned();
    version.split('.').next()?.parse().ok()
}
