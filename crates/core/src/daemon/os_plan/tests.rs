//! Tables for planning, checking and returning from an OS change.

use super::*;
use crate::apply::empty_config;
use crate::os::OsDeployment;

const A: &str = "r/os@sha256:aaaa";
const B: &str = "r/os@sha256:bbbb";

fn config(name: &str, image: &str, arguments: &[&str]) -> MachineConfig {
    let mut config = empty_config();
    config.metadata.name = Some(name.to_owned());
    config.spec.os_image_url = Some(image.to_owned()).filter(|image| !image.is_empty());
    config.spec.kernel_arguments = Some(arguments.iter().map(|&word| word.to_owned()).collect());
    config
}

fn observed(kind: HostKind, image: &str, command_line: &str) -> OsObserved {
    let words = command_line.split_whitespace().map(str::to_owned).collect();
    let booted = OsDeployment {
        checksum: image.to_owned(),
        image: Some(image.to_owned()).filter(|image| !image.is_empty()),
        kernel_arguments: words,
        ..OsDeployment::default()
    };
    let status = OsStatus { booted, ..OsStatus::default() };
    OsObserved { kind, status, command_line: Some(command_line.to_owned()) }
}

/// An update from `a` to `b` that was planned on `was`, in the boot `now`.
fn pending(was: &OsObserved) -> PendingChange {
    let (old, new) = (config("a", A, &[]), config("b", B, &[]));
    let reboot = serde_json::from_value(serde_json::json!([{"type": "Reboot"}])).unwrap();
    let mut pending = PendingChange::new(&old, &new, reboot, "now", None);
    pending.os = plan_os_change(&old, &new, None, false, "now", was);
    pending
}

#[test]
fn the_host_is_observed_only_if_the_os_may_change() {
    let (a, b) = (config("a", A, &[]), config("b", B, &[]));
    let mut renamed = a.clone();
    renamed.metadata.name = Some("c".to_owned());
    let earlier = pending(&observed(HostKind::Ostree, A, ""));
    assert!(!may_change_os(&a, &renamed, None, false));
    assert!(may_change_os(&a, &b, None, false));
    assert!(may_change_os(&a, &renamed, None, true));
    assert!(may_change_os(&a, &renamed, Some(&earlier), false));
}

#[test]
fn an_update_stages_what_differs() {
    let (a, b) = (config("a", A, &[]), config("b", B, &[]));
    let on_a = observed(HostKind::Ostree, A, "");
    let found = plan_os_change(&a, &b, None, false, "now", &on_a).unwrap();
    assert_eq!((found.change.image.as_deref(), found.is_staged), (Some(B), false));
    assert_eq!(found.was, on_a.status.booted);
    // Another name for the booted image changes nothing.
    let on_b = observed(HostKind::Ostree, B, "");
    assert_eq!(plan_os_change(&a, &b, None, false, "now", &on_b), None);
}

#[test]
fn the_force_file_repairs_image_and_kernel_arguments() {
    let wanted = config("a", A, &["x=1"]);
    let found =
        |observed: &OsObserved| plan_os_change(&wanted, &wanted, None, true, "now", observed);
    assert_eq!(found(&observed(HostKind::Ostree, A, "x=1")), None);
    let change = found(&observed(HostKind::Ostree, B, "")).unwrap().change;
    assert_eq!(change.image.as_deref(), Some(A));
    assert_eq!(change.kernel_arguments.append, ["x=1"]);
    // Nothing reads kernel arguments here.
    let blind = OsObserved { command_line: None, ..observed(HostKind::Ostree, A, "") };
    assert_eq!(found(&blind), None);
}

#[test]
fn an_unfinished_update_is_taken_into_account() {
    let on_a = observed(HostKind::Ostree, A, "");
    let (earlier, b, a) = (pending(&on_a), config("b", B, &[]), config("a2", A, &[]));
    // Not rebooted: what is staged is not wanted any more and has to be dropped.
    let found = plan_os_change(&b, &a, Some(&earlier), false, "now", &on_a).unwrap();
    assert!(found.change.is_empty() && !found.is_staged);
    // Rebooted into the new image: going to the old one is a change like any other.
    let on_b = observed(HostKind::Ostree, B, "");
    let found = plan_os_change(&b, &a, Some(&earlier), false, "later", &on_b).unwrap();
    assert_eq!(found.change.image.as_deref(), Some(A));
    assert_eq!(found.was, on_a.status.booted);
}

#[test]
fn what_a_reboot_made_of_an_update() {
    let on_a = observed(HostKind::Ostree, A, "");
    let on_b = observed(HostKind::Ostree, B, "");
    let b = config("b", B, &[]);
    let there = pending(&on_a);
    let tried = |attempts| {
        let mut pending = there.clone();
        pending.os = pending.os.map(|os| PendingOsChange { attempts, ..os });
        pending
    };
    let mut back = tried(MAX_STAGE_ATTEMPTS);
    back.is_rollback = true;
    let problem = format!("expected target osImageURL {B:?}, have {A:?}");
    let mismatch = || BootVerdict::Mismatch { problem: problem.clone() };
    let again = BootVerdict::StageAgain(Box::new(there.clone().retry("later")));
    for (what, pending, boot_id, observed, expected) in [
        ("booted", Some(&there), "later", &on_b, BootVerdict::Matches),
        ("lost", Some(&there), "later", &on_a, again),
        (
            "lost too often",
            Some(&tried(MAX_STAGE_ATTEMPTS)),
            "later",
            &on_a,
            BootVerdict::NotBooted { problem: problem.clone() },
        ),
        ("a failed rollback", Some(&back), "later", &on_a, mismatch()),
        ("not rebooted", Some(&there), "now", &on_a, mismatch()),
        ("no update", None, "now", &on_a, mismatch()),
        ("no update, as desired", None, "now", &on_b, BootVerdict::Matches),
    ] {
        assert_eq!(boot_verdict(&b, pending, boot_id, observed), expected, "{what}");
        assert!(needs_boot_check(&b, pending, boot_id), "{what}");
    }
    assert!(!needs_boot_check(&config("c", "", &[]), None, "now"));
    assert!(needs_boot_check(&config("c", "", &[]), Some(&there), "later"));
}

#[test]
fn missing_kernel_arguments_are_a_mismatch_on_every_host() {
    let wanted = config("a", "", &["x=1"]);
    let problem = "missing expected kernel arguments: [x=1]".to_owned();
    for kind in [HostKind::Ostree, HostKind::Plain] {
        let found = boot_verdict(&wanted, None, "now", &observed(kind, A, "y"));
        assert_eq!(found, BootVerdict::Mismatch { problem: problem.clone() });
    }
    // A package host has no image to compare.
    let found = boot_verdict(&config("a", B, &[]), None, "now", &observed(HostKind::Plain, "", ""));
    assert_eq!(found, BootVerdict::Matches);
}

#[test]
fn a_rollback_returns_to_the_booted_os_or_drops_the_staged_one() {
    let (on_a, on_b) = (observed(HostKind::Ostree, A, ""), observed(HostKind::Ostree, B, ""));
    let (b, there) = (config("b", B, &[]), pending(&on_a));
    let booted = plan_os_rollback(&b, &there, &on_b).unwrap();
    assert_eq!(booted.change.checksum.as_deref(), Some(A));
    let lost = plan_os_rollback(&b, &there, &on_a).unwrap();
    assert!(lost.change.is_empty() && !lost.is_staged);
    assert_eq!(plan_os_rollback(&b, &PendingChange { os: None, ..there }, &on_a), None);
}
