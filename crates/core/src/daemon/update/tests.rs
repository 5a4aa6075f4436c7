//! Tables for refusals, actions and the drain.

use serde_json::{Value, json};

use super::*;
use crate::api::names::annotation::{self, machinist};
use crate::apply::{empty_config, from_ignition};
use crate::disruption::system_policy;
use crate::os::OsChange;

fn config(name: &str, fips: Option<bool>) -> MachineConfig {
    let mut config = from_ignition(json!({"ignition": {"version": "3.5.0"}}));
    config.metadata.name = Some(name.to_owned());
    config.spec.fips = fips;
    config
}

fn change(old: &MachineConfig, new: &MachineConfig) -> ConfigChange {
    check_reconcilable(old, new, ValidationOverrides::default()).unwrap()
}

fn types(actions: &[DisruptionAction]) -> Vec<DisruptionActionType> {
    actions.iter().map(|action| action.type_.clone()).collect()
}

#[test]
fn fips_mode_has_to_match_the_running_kernel() {
    for (wanted, host, is_refused) in [
        (None, None, false),
        (Some(true), None, false),
        (None, Some(false), false),
        (Some(false), Some(false), false),
        (Some(true), Some(true), false),
        (Some(true), Some(false), true),
        (None, Some(true), true),
        (Some(false), Some(true), true),
    ] {
        let found = fips_refusal(&config("b", wanted), host);
        assert_eq!(found.is_some(), is_refused, "wanted {wanted:?}, host {host:?}");
    }
}

#[test]
fn the_config_is_refused_before_the_host_is_asked() {
    let (old, new) = (config("a", None), config("b", None));
    let disks = from_ignition(json!({
        "ignition": {"version": "3.5.0"}, "storage": {"disks": [{"device": "/dev/sda"}]}
    }));
    let refused =
        || HostLimits { os_refusal: Some("no boot loader".to_owned()), ..HostLimits::default() };
    let profile = || HostLimits { profile_refusal: Some("kubeadm".to_owned()), ..refused() };
    let fips = || HostLimits { fips: Some(true), ..refused() };
    for (new, host, expected) in [
        (&new, HostLimits::default(), None),
        (&new, refused(), Some("no boot loader")),
        (&new, profile(), Some("kubeadm")),
        (&new, fips(), Some("FIPS")),
        (&disks, fips(), Some("disks")),
    ] {
        let found = check_update(&old, new, ValidationOverrides::default(), host).err();
        match (expected, found) {
            (None, None) => {}
            (Some(text), Some(found)) => assert!(found.contains(text), "{found}"),
            (expected, found) => panic!("expected {expected:?}, found {found:?}"),
        }
    }
}

#[test]
fn the_force_file_leads_to_a_reboot() {
    let (old, new) = (config("a", None), config("b", None));
    let change = change(&old, &new);
    let flags = update_flags(&old, &new, &change, None, true);
    let rules = DisruptionRules::of_policy(&system_policy());
    let found = |force| types(&update_actions(&change, flags, &rules, force));
    assert_eq!(found(true), [DisruptionActionType::Reboot]);
    assert_eq!(found(false), [DisruptionActionType::None]);
}

#[test]
fn the_host_says_whether_the_os_changes() {
    let old = config("a", None);
    let mut new = config("b", None);
    new.spec.os_image_url = Some("r/os:latest".to_owned());
    let change = change(&old, &new);
    let os = |image: Option<&str>| PendingOsChange {
        change: OsChange { image: image.map(str::to_owned), ..OsChange::default() },
        ..PendingOsChange::default()
    };
    for (os, expected) in [(None, false), (Some(os(None)), false), (Some(os(Some("i"))), true)] {
        assert_eq!(update_flags(&old, &new, &change, os.as_ref(), true).os_update, expected);
    }
}

#[test]
fn a_machine_is_drained_once_and_only_where_that_helps() {
    let drained = (annotation::LAST_APPLIED_DRAIN, "drain-b");
    let single = (annotation::CONTROL_PLANE_TOPOLOGY, "SingleReplica");
    let deferred = (machinist::REBOOT, "deferred");
    for (annotations, action, needs_drain, expected) in [
        (vec![], "Reboot", true, DrainDecision::Request),
        (vec![drained], "Reboot", true, DrainDecision::AlreadyDrained),
        (vec![single], "Reboot", true, DrainDecision::Unsupported),
        (vec![], "None", false, DrainDecision::NotNeeded),
        (vec![deferred], "Reboot", true, DrainDecision::NotNeeded),
        (vec![deferred], "Drain", true, DrainDecision::Request),
    ] {
        let pairs = annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value)));
        let pairs = Value::Object(pairs.collect());
        let node = json!({"metadata": {"name": "n", "annotations": pairs}});
        let node: Node = serde_json::from_value(node).unwrap();
        let actions: Vec<DisruptionAction> =
            serde_json::from_value(json!([{"type": action}])).unwrap();
        let found = drain_decision(&node, "b", &actions, needs_drain);
        assert_eq!(found, expected, "{annotations:?} {action}");
    }
}

#[test]
fn only_a_complete_change_is_checked_without_the_api_server() {
    let reboot: Vec<DisruptionAction> =
        serde_json::from_value(json!([{"type": "Reboot"}])).unwrap();
    let there = PendingChange::new(&empty_config(), &config("b", None), reboot, "now", None);
    let back = there.clone().rollback("later");
    for (disk, pending, boot_id, expected) in [
        ("b", &there, "later", true),
        ("b", &there, "now", false),
        ("a", &there, "later", false),
        ("b", &back, "later", false),
    ] {
        assert_eq!(
            needs_offline_health_check(disk, pending, boot_id),
            expected,
            "{disk} {boot_id}"
        );
    }
}
