//! Warnings about changes that are allowed but risky.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::api::{MachineConfig, MachineConfigPool};
use crate::diff;
use crate::ignition::schema::Config;
use crate::reconcile_check::{CORE_USER, ConfigChange};
use crate::rollout::{RolloutPolicy, max_unavailable};

use super::forecast::PoolForecast;
use super::image_age;
use super::machine_plan::MachinePlan;

/// The kinds of risks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PlanWarningKind {
    /// SELinux is enabled again on a machine that ran without it.
    SelinuxBack,
    /// Nobody could log in any more.
    LastSshKey,
    /// The kubelet loses a flag or a settings file.
    KubeletSettings,
    /// The OS image is older.
    OlderImage,
    /// The OS image may be older.
    ImageAgeUnknown,
    /// FIPS mode is switched.
    Fips,
    /// Most of the pool may be unavailable at once.
    MaxUnavailable,
    /// The pool has an invalid rollout setting.
    BadSettings,
    /// The pool is paused: nothing happens for now.
    Paused,
    /// The change ends a rollback.
    EndsRollback,
    /// The pool has not rendered its MachineConfigs yet: the change comes on top of another one.
    NotCaughtUp,
}

/// A warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanWarning {
    /// The kind.
    pub warning: PlanWarningKind,
    /// A sentence for people, with the remedy.
    pub message: String,
    /// The affected machines; empty if the warning is about the pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<String>,
}

/// Risks that result from the change of the machines' configs: from every config that one of them
/// has, or from the pool's config if it has no machines.
pub(super) fn config_warnings<'a>(
    machines: &[MachinePlan],
    find: &dyn Fn(&str) -> Option<&'a MachineConfig>,
    before: Option<&str>,
    wanted: &MachineConfig,
) -> Vec<PlanWarning> {
    let mut by_config: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for machine in machines {
        for config in std::iter::once(&machine.from).chain(&machine.towards) {
            by_config.entry(config).or_default().push(machine.machine.clone());
        }
    }
    if let (Some(before), true) = (before, machines.is_empty()) {
        by_config.insert(before, Vec::new());
    }
    let mut found: BTreeMap<(PlanWarningKind, String), Vec<String>> = BTreeMap::new();
    for (from, machines) in by_config {
        let Some(old) = find(from) else { continue };
        for (hurt, message) in change_warnings(old, wanted) {
            found.entry((hurt, message)).or_default().extend(machines.iter().cloned());
        }
    }
    let warning = |((warning, message), mut machines): ((PlanWarningKind, String), Vec<String>)| {
        machines.sort_unstable();
        machines.dedup();
        PlanWarning { warning, message, machines }
    };
    found.into_iter().map(warning).collect()
}

fn change_warnings(old: &MachineConfig, new: &MachineConfig) -> Vec<(PlanWarningKind, String)> {
    let mut found = Vec::new();
    let off = |config: &MachineConfig| {
        config.spec.kernel_arguments.iter().flatten().any(|argument| argument == "selinux=0")
    };
    if off(old) && !off(new) {
        found.push((
            PlanWarningKind::SelinuxBack,
            "selinux=0 is removed: files that were written without SELinux have no labels, and the machine may fail to boot; relabel them first (create /.autorelabel, or boot once with enforcing=0)".to_owned(),
        ));
    }
    if old.spec.fips.unwrap_or_default() != new.spec.fips.unwrap_or_default() {
        found.push((
            PlanWarningKind::Fips,
            "FIPS mode is fixed at installation: running machines refuse to change it".to_owned(),
        ));
    }
    found.extend(image_warning(old, new));
    if let Some(change) = diff::parse_both(old, new) {
        found.extend(ssh_key_warning(&change));
        found.extend(kubelet_warning(&change));
    }
    found
}

fn image_warning(old: &MachineConfig, new: &MachineConfig) -> Option<(PlanWarningKind, String)> {
    let url = |config: &MachineConfig| config.spec.os_image_url.clone().unwrap_or_default();
    let (old, new) = (url(old), url(new));
    // Machines without a managed image cannot get an older one.
    if old == new || old.is_empty() || new.is_empty() {
        return None;
    }
    match image_age::compare(&old, &new) {
        Some(Ordering::Less) => Some((
            PlanWarningKind::OlderImage,
            format!(
                "the OS image {new} is older than {old}: the older system may fail to start with data of the newer one"
            ),
        )),
        Some(_) => None,
        None => Some((
            PlanWarningKind::ImageAgeUnknown,
            format!("the OS image {new} may be older than {old}: their tags cannot be compared"),
        )),
    }
}

fn ssh_key_warning(change: &ConfigChange) -> Option<(PlanWarningKind, String)> {
    let count = |config: &Config| -> usize {
        let users = config.passwd.users.iter().filter(|user| user.name == CORE_USER);
        users.map(|user| user.ssh_authorized_keys.len()).sum()
    };
    (count(&change.old) > 0 && count(&change.new) == 0).then(|| {
        let message = "the last SSH key of core is removed: nobody can log in over SSH any more";
        (PlanWarningKind::LastSshKey, message.to_owned())
    })
}

const KUBELET_UNIT: &str = "kubelet.service";
const KUBELET_SETTINGS: &str = "/etc/kubernetes/kubelet.conf";
const KUBELET_DROPINS: &str = "/etc/systemd/system/kubelet.service.d/";

/// Flags, drop-ins and files that the kubelet loses.
fn kubelet_warning(change: &ConfigChange) -> Option<(PlanWarningKind, String)> {
    let settings = |config: &Config| -> BTreeSet<String> {
        let mut settings = BTreeSet::new();
        for file in config.storage.files.iter() {
            if file.path == KUBELET_SETTINGS || file.path.starts_with(KUBELET_DROPINS) {
                settings.insert(format!("file {}", file.path));
            }
        }
        for unit in config.systemd.units.iter().filter(|unit| unit.name == KUBELET_UNIT) {
            let parts = unit.dropins.iter().map(|dropin| (&dropin.name, &dropin.contents));
            for (name, _) in parts.clone() {
                settings.insert(format!("drop-in {name}"));
            }
            let texts = parts.map(|(_, contents)| contents).chain([&unit.contents]);
            for text in texts.flatten() {
                settings.extend(flags(text).map(|flag| format!("flag {flag}")));
            }
        }
        settings
    };
    let (old, new) = (settings(&change.old), settings(&change.new));
    let gone: Vec<String> = old.difference(&new).cloned().collect();
    (!gone.is_empty()).then(|| {
        (PlanWarningKind::KubeletSettings, format!("the kubelet loses: {}", gone.join(", ")))
    })
}

/// The flags on the command lines of a unit, without their values.
fn flags(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
    let name = |word: &str| word.find('=').unwrap_or(word.len());
    words
        .filter(|word| word.starts_with("--") && word.len() > 2)
        .map(move |word| &word[..name(word)])
}

/// Risks that result from the pool's settings.
pub(super) fn pool_warnings(
    pool: &MachineConfigPool,
    machines: usize,
    old: Option<&PoolForecast>,
    new: &PoolForecast,
) -> Vec<PlanWarning> {
    let mut found = Vec::new();
    let mut warn = |warning, message: String| {
        found.push(PlanWarning { warning, message, machines: Vec::new() });
    };
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    match max_unavailable(pool, machines) {
        Ok(max) => {
            let max = usize::try_from(max).unwrap_or_default();
            if machines > 1 && max * 2 > machines {
                warn(
                    PlanWarningKind::MaxUnavailable,
                    format!(
                        "maxUnavailable allows {max} of {machines} machines to be unavailable at once, more than half"
                    ),
                );
            }
        }
        Err(error) => warn(PlanWarningKind::BadSettings, error.to_string()),
    }
    if let Err(error) = RolloutPolicy::from_annotations(pool) {
        warn(PlanWarningKind::BadSettings, error.to_string());
    }
    if pool.spec.paused == Some(true) {
        warn(
            PlanWarningKind::Paused,
            format!("the pool is paused: nothing happens until you run `machinist resume {name}`"),
        );
    }
    if new.ends_rollback && old.is_some_and(|old| !old.ends_rollback) {
        warn(
            PlanWarningKind::EndsRollback,
            "the pool was rolled back; this change ends the rollback".to_owned(),
        );
    }
    if old.is_some_and(|old| old.blocked.is_none() && old.target != pool.target_config()) {
        warn(PlanWarningKind::NotCaughtUp, "the pool has not rendered its current MachineConfigs yet: this plan includes those changes".to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn config(spec: &Value) -> MachineConfig {
        let mut spec = spec.clone();
        if spec.get("config").is_none() {
            spec["config"] = json!({});
        }
        spec["config"]["ignition"] = json!({"version": "3.5.0"});
        serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "x"}, "spec": spec
        }))
        .unwrap()
    }

    fn user(keys: &Value) -> Value {
        json!({"config": {"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": keys}]}}})
    }

    fn kubelet_unit(start: &str, dropins: &[&str]) -> Value {
        let dropins: Vec<Value> = dropins
            .iter()
            .map(|name| json!({"name": name, "contents": "[Service]\nEnvironment=X=1\n"}))
            .collect();
        let contents = format!("[Service]\nExecStart={start}\n");
        let unit = json!({"name": "kubelet.service", "contents": contents, "dropins": dropins});
        json!({"config": {"systemd": {"units": [unit]}}})
    }

    fn file(path: &str) -> Value {
        json!({"config": {"storage": {"files": [{"path": path, "contents": {"source": "data:,x"}}]}}})
    }

    #[test]
    fn only_risky_changes_give_warnings() {
        let none = json!({});
        let image = |tag: &str| json!({"osImageURL": format!("r.example/os{tag}")});
        let cases: Vec<(Value, Value, Option<PlanWarningKind>, &str)> = vec![
            (
                json!({"kernelArguments": ["selinux=0"]}),
                none.clone(),
                Some(PlanWarningKind::SelinuxBack),
                "label",
            ),
            (none.clone(), json!({"kernelArguments": ["selinux=0"]}), None, ""),
            (
                json!({"kernelArguments": ["selinux=0", "a"]}),
                json!({"kernelArguments": ["selinux=0"]}),
                None,
                "",
            ),
            (
                user(&json!(["ssh-ed25519 a"])),
                user(&json!([])),
                Some(PlanWarningKind::LastSshKey),
                "SSH",
            ),
            (
                user(&json!(["ssh-ed25519 a"])),
                none.clone(),
                Some(PlanWarningKind::LastSshKey),
                "SSH",
            ),
            (user(&json!(["ssh-ed25519 a"])), user(&json!(["ssh-ed25519 b"])), None, ""),
            (
                kubelet_unit("/usr/bin/kubelet --a=1 \\\n  --b", &[]),
                kubelet_unit("/usr/bin/kubelet --a=2", &[]),
                Some(PlanWarningKind::KubeletSettings),
                "flag --b",
            ),
            (
                kubelet_unit("k", &["10-a.conf", "20-b.conf"]),
                kubelet_unit("k", &["20-b.conf"]),
                Some(PlanWarningKind::KubeletSettings),
                "drop-in 10-a.conf",
            ),
            (kubelet_unit("k --a=1", &[]), kubelet_unit("k --a=2 --c", &["x.conf"]), None, ""),
            (
                file(KUBELET_SETTINGS),
                none.clone(),
                Some(PlanWarningKind::KubeletSettings),
                KUBELET_SETTINGS,
            ),
            (file("/etc/motd"), none.clone(), None, ""),
            (image(":2"), image(":1"), Some(PlanWarningKind::OlderImage), "older than"),
            (image(":1"), image(":2"), None, ""),
            (
                image("@sha256:a"),
                image("@sha256:b"),
                Some(PlanWarningKind::ImageAgeUnknown),
                "may be older than",
            ),
            (none.clone(), image(":1"), None, ""),
            (json!({"fips": true}), none.clone(), Some(PlanWarningKind::Fips), "FIPS"),
        ];
        for (old, new, expected, word) in cases {
            let found = change_warnings(&config(&old), &config(&new));
            let hurts: Vec<PlanWarningKind> = found.iter().map(|(hurt, _)| *hurt).collect();
            assert_eq!(hurts, expected.into_iter().collect::<Vec<_>>(), "{old} {new}");
            assert!(found.iter().all(|(_, message)| message.contains(word)), "{found:?}");
        }
    }
}
