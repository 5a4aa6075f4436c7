//! A directory as the root of a host without a boot loader's tools: the file, and its restoration.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

const FILE: &str = "etc/default/grub.d/90-machinist.cfg";

/// A root whose update-grub cannot be run (it has no chroot): only the file counts.
fn host(directory: &std::path::Path) -> PlainBackend {
    for name in ["etc/default/grub.d", "etc/machine-config-daemon", "usr/sbin", "proc"] {
        fs::create_dir_all(directory.join(name)).unwrap();
    }
    fs::write(directory.join("proc/cmdline"), "root=/dev/sda quiet\n").unwrap();
    PlainBackend {
        host: HostCommands::new(directory),
        loader: BootLoader::Grub,
        no_loader: None,
        os: "Test".to_owned(),
    }
}

fn change(old: &[&str], new: &[&str]) -> OsChange {
    let list = |words: &[&str]| -> Vec<String> { words.iter().map(|&it| it.to_owned()).collect() };
    let kernel_arguments = kernel_arguments::change_between(&list(old), &list(new));
    OsChange { kernel_arguments, ..OsChange::default() }
}

#[test]
fn staging_twice_is_the_same_as_once_and_can_be_undone() {
    let directory = tempfile::tempdir().unwrap();
    let plain = host(directory.path());
    let text = || fs::read_to_string(directory.path().join(FILE)).ok();
    // The command cannot be run here, but the file is written before it.
    let _ = plain.stage(&change(&[], &["a=1"]), false);
    let first = text().unwrap();
    assert!(first.contains("LINUX a=1\""), "{first}");
    let mode = fs::metadata(directory.path().join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
    let _ = plain.stage(&change(&[], &["a=1"]), false);
    assert_eq!(text(), Some(first));
    let status = plain.status().unwrap();
    assert_eq!(status.booted.kernel_arguments.join(" "), "root=/dev/sda quiet");
    assert_eq!(status.next.unwrap().kernel_arguments.join(" "), "root=/dev/sda quiet a=1");
    let _ = plain.unstage();
    assert_eq!(text(), None);
}

#[test]
fn a_host_without_a_boot_loader_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let plain = PlainBackend { loader: BootLoader::Nobody, ..host(directory.path()) };
    plain.stage(&change(&[], &["a=1"]), false).unwrap();
    assert!(!directory.path().join(FILE).exists());
    assert_eq!(plain.status().unwrap().next, None);
    let image = OsChange { image: Some("os:1".to_owned()), ..OsChange::default() };
    assert!(plain.refusal(&image).unwrap().starts_with("spec.osImageURL: "));
}
