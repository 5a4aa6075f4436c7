//! The exact calls, and the output of rpm-ostree 2024.x on RHCOS 9 and Fedora CoreOS.

use super::*;
use crate::os::KernelArgumentsChange;

const UPDATED: &str = include_str!("fixtures/rhcos-staged.json");
const OLD: &str = include_str!("fixtures/rhcos-pivot.json");

fn list(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn lines(calls: &[RpmOstreeCall]) -> Vec<String> {
    calls.iter().map(|call| call.arguments.join(" ")).collect()
}

#[test]
fn calls_in_their_order() {
    let rebase = "rebase --experimental ostree-unverified-registry:r/os@sha256:1";
    let reset = "override reset kernel kernel-core --uninstall kernel-rt-core";
    let image = OsChange { image: Some("r/os@sha256:1".to_owned()), ..OsChange::default() };
    let arguments =
        KernelArgumentsChange { delete: list(&["a", "b=1"]), append: list(&["a", "c=\"d e\""]) };
    let kargs = "kargs --delete-if-present=a --delete-if-present=b=1 --append=a --append=c=\"d e\"";
    let everything = OsChange {
        kernel_arguments: arguments.clone(),
        kernel_type: Some(("realtime".to_owned(), "realtime".to_owned())),
        extensions: Some(list(&["usbguard"])),
        ..image.clone()
    };
    let plain = OsDeployment::default();
    let realtime = OsDeployment {
        removed_packages: list(&["kernel", "kernel-core"]),
        requested_packages: list(&["kernel-rt-core", "sysstat"]),
        ..OsDeployment::default()
    };
    let switch = kernel_type::switch_arguments("realtime").unwrap().join(" ");
    for (change, booted, expected) in [
        (OsChange::default(), &plain, vec!["cleanup -p"]),
        (image.clone(), &plain, vec!["cleanup -p", rebase]),
        (image.clone(), &realtime, vec!["cleanup -p", reset, rebase]),
        (
            OsChange { kernel_arguments: arguments, ..OsChange::default() },
            &realtime,
            vec!["cleanup -p", kargs],
        ),
        (
            OsChange {
                kernel_type: Some(("realtime".to_owned(), "default".to_owned())),
                ..OsChange::default()
            },
            &realtime,
            vec!["cleanup -p", reset],
        ),
        (
            everything,
            &realtime,
            vec![
                "cleanup -p",
                reset,
                rebase,
                kargs,
                &switch,
                "update --install usbguard --uninstall sysstat",
            ],
        ),
        (
            OsChange { checksum: Some("c".to_owned()), ..image.clone() },
            &plain,
            vec!["cleanup -p", rebase],
        ),
        (
            OsChange { checksum: Some("c".to_owned()), ..OsChange::default() },
            &plain,
            vec!["cleanup -p", "rebase --experimental c"],
        ),
    ] {
        assert_eq!(lines(&stage(&change, booted)), expected);
    }
    let fetch = fetch(&image).unwrap();
    assert!(fetch.is_download);
    assert_eq!(
        fetch.arguments.join(" "),
        "rebase --experimental --download-only ostree-unverified-registry:r/os@sha256:1"
    );
}

#[test]
fn a_staged_image_and_a_kept_one() {
    let status = parse_status(UPDATED).unwrap();
    let image = "quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:";
    let name = |deployment: &OsDeployment| deployment.image.clone().unwrap();
    let next = status.next.unwrap();
    assert_eq!(name(&next), format!("{image}{}", "b".repeat(64)));
    assert_eq!(name(&status.booted), format!("{image}{}", "a".repeat(64)));
    assert_eq!(status.booted.version.as_deref(), Some("9.6.20250701-0"));
    assert_eq!(
        status.booted.requested_packages,
        list(&["kernel-rt-core", "kernel-rt-modules", "usbguard"])
    );
    assert_eq!(status.booted.removed_packages, list(&["kernel", "kernel-core", "kernel-modules"]));
    assert!(status.booted.checksum.starts_with("1111"), "the base's");
    assert_eq!(status.kept.len(), 1);
}

#[test]
fn an_old_origin() {
    let status = parse_status(OLD).unwrap();
    assert_eq!(status.next, None);
    let image = status.booted.image.unwrap();
    assert!(image.starts_with("registry.svc.ci.openshift.org/rhcos/maipo@sha256:"), "{image}");
    assert!(parse_status("{\"deployments\": []}").unwrap_err().contains("no deployment is booted"));
    assert!(parse_status("x").unwrap_err().contains("cannot be read"));
}

#[test]
fn names_of_images() {
    for (reference, expected) in [
        (
            "ostree-unverified-registry:quay.io/fedora/fedora-coreos:stable",
            "quay.io/fedora/fedora-coreos:stable",
        ),
        ("ostree-remote-registry:fedora:quay.io/x@sha256:1", "quay.io/x@sha256:1"),
        ("ostree-unverified-image:docker://quay.io/x:1", "quay.io/x:1"),
        ("ostree-unverified-image:containers-storage:quay.io/x@sha256:1", "quay.io/x@sha256:1"),
        ("ostree-image-signed:docker://quay.io/x:1", "quay.io/x:1"),
        ("ostree-remote-image:fedora:docker://quay.io/x:1", "quay.io/x:1"),
        ("quay.io/x:1", "quay.io/x:1"),
    ] {
        assert_eq!(image_name(reference), expected);
    }
}

#[test]
fn pauses_double_up_to_a_minute() {
    let seconds: Vec<u64> =
        (1..MAX_DOWNLOAD_ATTEMPTS).map(|failures| download_backoff(failures).as_secs()).collect();
    assert_eq!(seconds, [10, 20, 40, 60, 60, 60]);
}
