//! How much a change disrupts a running machine: not at all, a reload or restart of a service, a
//! drain, or a reboot. The administrator's NodeDisruptionPolicy is merged over the default
//! policies; [`rules`] says which rule decides. A change that no rule covers needs a reboot.

mod plain_defaults;
mod registries;
mod rules;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::api::operator::{
    DisruptionAction, DisruptionActionType, FileDisruptionPolicy, MachineConfiguration,
    NodeDisruptionPolicy, NodeDisruptionPolicyStatus, ServiceReference, SshKeyDisruptionPolicy,
    UnitDisruptionPolicy,
};
use crate::diff::ChangeFlags;
use crate::go::path as go_path;
use crate::ignition::schema::Config;
use crate::reconcile_check::ConfigChange;

use DisruptionActionType as Type;

pub use registries::{REGISTRIES_CONF, drain_reason};
pub use rules::{DecidedChange, DecidingRule, DisruptionRules};

/// The actions that a change requires, and the files and units that cause them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Disruption {
    /// The actions, in this order.
    pub actions: Vec<DisruptionAction>,
    /// Files that were added, removed or changed, by path.
    pub files: Vec<String>,
    /// Units that were added, removed or changed, by name.
    pub units: Vec<String>,
    /// What decided about each of them. Empty if the operating system decides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decided: Vec<DecidedChange>,
}

/// The actions for a change.
#[must_use]
pub fn disruption(
    change: &ConfigChange,
    flags: ChangeFlags,
    rules: &DisruptionRules,
) -> Disruption {
    let files = changed(&change.old, &change.new, |config| &config.storage.files, |f| &f.path);
    let units = changed(&change.old, &change.new, |config| &config.systemd.units, |u| &u.name);
    let files_decided = files.iter().map(|path| rules.decide_file(path, change));
    let decided: Vec<DecidedChange> =
        files_decided.chain(units.iter().map(|name| rules.decide_unit(name, change))).collect();
    let actions = actions(flags, &decided, rules);
    let decided = if needs_boot(flags) { Vec::new() } else { decided };
    Disruption { actions, files, units, decided }
}

/// The names whose entries differ between two configs.
fn changed<T: PartialEq>(
    old: &Config,
    new: &Config,
    items: impl Fn(&Config) -> &[T],
    name: impl Fn(&T) -> &String,
) -> Vec<String> {
    // The last entry with a name wins.
    let index = |config| -> std::collections::BTreeMap<String, &T> {
        items(config).iter().map(|item| (name(item).clone(), item)).collect()
    };
    let (old, new) = (index(old), index(new));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    names.into_iter().filter(|name| old.get(*name) != new.get(*name)).cloned().collect()
}

/// Whether the operating system changes, which only a boot completes.
fn needs_boot(flags: ChangeFlags) -> bool {
    flags.os_update || flags.kargs || flags.fips || flags.kernel_type || flags.extensions
}

fn actions(
    flags: ChangeFlags,
    decided: &[DecidedChange],
    rules: &DisruptionRules,
) -> Vec<DisruptionAction> {
    if needs_boot(flags) {
        return vec![action(Type::Reboot)];
    }
    if !flags.files && !flags.units && !flags.passwd {
        return vec![action(Type::None)];
    }
    let mut actions: Vec<DisruptionAction> = Vec::new();
    for DecidedChange { rule, actions: wanted, .. } in decided {
        let is_mcos = matches!(rule, DecidingRule::Policy(_) | DecidingRule::Default(_));
        for action in wanted {
            // MCO repeats actions; ours run once for all files.
            if is_mcos || !actions.contains(action) {
                actions.push(action.clone());
            }
        }
    }
    if flags.passwd {
        actions.extend(rules.ssh_key_actions());
    }
    simplify_actions(actions)
}

/// A reboot makes all other actions redundant; `None` only makes sense alone.
pub(crate) fn simplify_actions(mut actions: Vec<DisruptionAction>) -> Vec<DisruptionAction> {
    let is = |action: &DisruptionAction, type_: Type| action.type_ == type_;
    if actions.iter().any(|action| is(action, Type::Reboot)) {
        return vec![action(Type::Reboot)];
    }
    let says_none = actions.iter().any(|action| is(action, Type::None));
    actions.retain(|action| !is(action, Type::None));
    if says_none && actions.is_empty() { vec![action(Type::None)] } else { actions }
}

/// The policy for the file itself, or for the closest directory above it.
fn closest_policy<'a>(
    path: &str,
    policies: &'a [FileDisruptionPolicy],
) -> Option<&'a FileDisruptionPolicy> {
    let covers = |policy: &&FileDisruptionPolicy| {
        policy.path == path
            || go_path::clean(path)
                .strip_prefix(&go_path::clean(&policy.path))
                .is_some_and(|rest| rest.starts_with('/'))
    };
    // The first of several with the same length.
    policies.iter().filter(covers).rev().max_by_key(|policy| policy.path.len())
}

fn action(type_: Type) -> DisruptionAction {
    DisruptionAction { type_, ..DisruptionAction::default() }
}

fn service(name: &str) -> Option<ServiceReference> {
    Some(ServiceReference { service_name: name.to_owned(), ..ServiceReference::default() })
}

fn reload(name: &str) -> DisruptionAction {
    DisruptionAction { reload: service(name), ..action(Type::Reload) }
}

fn restart(name: &str) -> DisruptionAction {
    DisruptionAction { restart: service(name), ..action(Type::Restart) }
}

/// The default policies.
#[must_use]
pub fn system_policy() -> NodeDisruptionPolicy {
    let file = |path: &str, actions: Vec<DisruptionAction>| FileDisruptionPolicy {
        path: path.to_owned(),
        actions,
        ..FileDisruptionPolicy::default()
    };
    let trust = "coreos-update-ca-trust.service";
    let files = vec![
        file("/var/lib/kubelet/config.json", vec![action(Type::None)]),
        file(
            "/etc/machine-config-daemon/no-reboot/containers-gpg.pub",
            vec![reload("crio.service")],
        ),
        file("/etc/containers/policy.json", vec![reload("crio.service")]),
        file(REGISTRIES_CONF, vec![action(Type::Special)]),
        file("/etc/containers/registries.d", vec![reload("crio.service")]),
        file("/etc/crio/policies", vec![reload("crio.service")]),
        file("/etc/nmstate/openshift", vec![action(Type::None)]),
        file(
            "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
            vec![restart(trust), restart("crio.service")],
        ),
        file("/etc/kubernetes/credential-providers", vec![restart("kubelet.service")]),
        file(
            "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf",
            vec![action(Type::DaemonReload), restart("kubelet.service")],
        ),
        file("/etc/iri-registry", vec![restart("iri-registry.service")]),
        file("/usr/local/bin/load-registry-image.sh", vec![restart("iri-registry.service")]),
        file("/etc/pki/ca-trust/source/anchors/iri-root-ca.crt", vec![restart(trust)]),
    ];
    let unit = UnitDisruptionPolicy {
        name: "iri-registry.service".to_owned(),
        actions: vec![action(Type::DaemonReload), restart("iri-registry.service")],
        ..UnitDisruptionPolicy::default()
    };
    let sshkey = SshKeyDisruptionPolicy {
        actions: vec![action(Type::None)],
        ..SshKeyDisruptionPolicy::default()
    };
    NodeDisruptionPolicy {
        files: Some(files),
        units: Some(vec![unit]),
        sshkey: Some(sshkey),
        ..NodeDisruptionPolicy::default()
    }
}

/// Whether a unit is one that the default policies reload or restart.
#[must_use]
pub fn is_default_unit(unit: &str) -> bool {
    let policy = system_policy();
    let files = policy.files.iter().flatten().flat_map(|policy| &policy.actions);
    let units = policy.units.iter().flatten().flat_map(|policy| &policy.actions);
    let named = |action: &DisruptionAction| {
        let service = action.reload.as_ref().or(action.restart.as_ref());
        service.is_some_and(|it| {
            it.service_name.trim_end_matches(".service") == unit.trim_end_matches(".service")
        })
    };
    files.chain(units).any(named)
}

/// The administrator's policy merged over the default one: an entry for the same path or name
/// replaces the default entry, others are appended.
#[must_use]
pub fn with_system_policy(user: &NodeDisruptionPolicy) -> NodeDisruptionPolicy {
    let mut merged = system_policy();
    let files = merged.files.get_or_insert_default();
    overlay(files, user.files.iter().flatten(), |policy| &policy.path);
    let units = merged.units.get_or_insert_default();
    overlay(units, user.units.iter().flatten(), |policy| &policy.name);
    if let Some(sshkey) = user.sshkey.as_ref().filter(|policy| !policy.actions.is_empty()) {
        merged.sshkey = Some(sshkey.clone());
    }
    merged
}

/// The policy in effect, as the status of a MachineConfiguration has it. MCO's daemon changes no machine
/// before the status has it.
#[must_use]
pub fn policy_status(object: &MachineConfiguration) -> NodeDisruptionPolicyStatus {
    let wished = object.spec.node_disruption_policy.as_ref();
    NodeDisruptionPolicyStatus {
        cluster_policies: Some(wished.map_or_else(system_policy, with_system_policy)),
        ..NodeDisruptionPolicyStatus::default()
    }
}

fn overlay<'a, T: Clone + 'a>(
    merged: &mut Vec<T>,
    user: impl Iterator<Item = &'a T>,
    key: impl Fn(&T) -> &String,
) {
    let system = merged.len();
    for policy in user {
        match merged[..system].iter().position(|own| key(own) == key(policy)) {
            Some(at) => merged[at] = policy.clone(),
            None => merged.push(policy.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(actions: &[DisruptionAction]) -> Vec<String> {
        let of = |service: &Option<ServiceReference>| {
            service.as_ref().map(|s| s.service_name.clone()).unwrap_or_default()
        };
        let name = |action: &DisruptionAction| match action.type_ {
            Type::Reload => format!("reload {}", of(&action.reload)),
            Type::Restart => format!("restart {}", of(&action.restart)),
            ref other => format!("{other:?}"),
        };
        actions.iter().map(name).collect()
    }

    /// The documented examples: the default policies and one of an administrator.
    #[test]
    fn each_change_requires_its_actions() {
        let user = NodeDisruptionPolicy {
            files: Some(vec![FileDisruptionPolicy {
                path: "/etc/my".to_owned(),
                actions: vec![action(Type::Drain), reload("x.service")],
                ..FileDisruptionPolicy::default()
            }]),
            ..NodeDisruptionPolicy::default()
        };
        let policy = with_system_policy(&user);
        let passwd = ChangeFlags { passwd: true, ..ChangeFlags::default() };
        let files = ChangeFlags { files: true, ..ChangeFlags::default() };
        let units = ChangeFlags { units: true, ..ChangeFlags::default() };
        let both = ChangeFlags { files: true, passwd: true, ..ChangeFlags::default() };
        let kargs = ChangeFlags { kargs: true, files: true, ..ChangeFlags::default() };
        let crio = "reload crio.service";
        type Case<'a> = (ChangeFlags, &'a [&'a str], &'a [&'a str], &'a [&'a str]);
        let cases: [Case<'_>; 14] = [
            (passwd, &[], &[], &["None"]),
            (files, &["/etc/nope"], &[], &["Reboot"]),
            (units, &[], &["foo.service"], &["Reboot"]),
            (files, &["/var/lib/kubelet/config.json"], &[], &["None"]),
            (both, &["/etc/containers/policy.json", "/var/lib/kubelet/config.json"], &[], &[crio]),
            (files, &["/etc/containers/registries.d/a/b.yaml"], &[], &[crio]),
            (files, &["/etc/containers/registries.dx"], &[], &["Reboot"]),
            (
                files,
                &["/etc/containers/policy.json", "/etc/containers/registries.conf"],
                &[],
                &[crio, "Special"],
            ),
            (files, &["/etc/my"], &[], &["Drain", "reload x.service"]),
            (files, &["/etc/my/a/b"], &[], &["Drain", "reload x.service"]),
            (files, &["/etc/myx"], &[], &["Reboot"]),
            (kargs, &["/etc/my"], &[], &["Reboot"]),
            (ChangeFlags::default(), &[], &[], &["None"]),
            (
                units,
                &[],
                &["iri-registry.service"],
                &["DaemonReload", "restart iri-registry.service"],
            ),
        ];
        for (flags, files, units, expected) in cases {
            let paths: Vec<_> =
                files.iter().map(|path| serde_json::json!({"path": path})).collect();
            let named: Vec<_> =
                units.iter().map(|name| serde_json::json!({"name": name})).collect();
            let new = crate::apply::from_ignition(serde_json::json!({
                "ignition": {"version": "3.5.0"}, "storage": {"files": paths}, "systemd": {"units": named},
            }));
            let change = crate::diff::parse_both(&crate::apply::empty_config(), &new).unwrap();
            let found = disruption(&change, flags, &DisruptionRules::of_policy(&policy)).actions;
            assert_eq!(names(&found), expected, "{files:?} {units:?}");
        }
    }
}
