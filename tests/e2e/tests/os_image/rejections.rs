//! Images that a machine refuses, and its state afterwards.

use super::fixture::{ACCEPT_ALL_POLICY, ImageFixture, assert_unchanged, machinist_os, status};
use machinist_e2e::{ContainerImage, Machine};
use std::fs;
use std::os::unix::fs::FileExt as _;

fn assert_refused(machine: &Machine, image: &str, code: i32, reason: &str) {
    let output = machinist_os(machine, &["fetch", image]);
    let text = format!("{}{}", output.stdout, output.stderr);
    assert_eq!(output.code, code, "{text}");
    assert!(text.contains(reason), "{reason}: {text}");
}

#[test]
fn invalid_images_are_refused_and_the_machine_is_unchanged() {
    let fixture = ImageFixture::new();
    let machine = fixture.machine().boot().unwrap();
    let before = status(&machine);
    let small = ContainerImage::busybox().unwrap();
    let image = fixture.push("os/small:1", &small);

    assert_refused(&machine, "images.example/os/small:1", 3, "it has no digest");
    assert_refused(&machine, &image, 1, "no systemd and no /sbin/init");
    let no_kernel = small.clone().file("etc/os-release", 0o644, "").file("sbin/init", 0o755, "");
    assert_refused(
        &machine,
        &fixture.push("os/kernel:1", &no_kernel),
        1,
        "the image has no kernel",
    );
    let missing = image.replace("os/small", "os/missing");
    assert_refused(&machine, &missing, 1, "unknown");

    // A link that points outside the image.
    let hostile = small.link("out", "/etc").file("out/passwd", 0o644, "root::0:0::/:/bin/sh\n");
    let passwd = machine.read_file("/etc/passwd").unwrap();
    assert_refused(&machine, &fixture.push("os/hostile:1", &hostile), 1, "out/passwd");
    assert_eq!(machine.read_file("/etc/passwd").unwrap(), passwd);

    machine
        .write_file("/etc/containers/policy.json", r#"{"default": [{"type": "reject"}]}"#)
        .unwrap();
    assert_refused(&machine, &image, 1, "rejected by policy");
    machine.write_file("/etc/containers/policy.json", ACCEPT_ALL_POLICY).unwrap();

    // A byte was changed in the registry.
    let tampered = fixture.push("os/tampered:1", &ContainerImage::system().unwrap());
    let layers = ContainerImage::system().unwrap().base_layers();
    let blob = fixture.registry.blob(&layers[0]).unwrap();
    let file = fs::File::options().read(true).write(true).open(blob).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 1 << 20).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 1 << 20).unwrap();
    assert_refused(&machine, &tampered, 1, &layers[0]);
    assert_unchanged(&machine, &before);
}

#[test]
fn a_disk_that_is_too_small_is_detected_before_the_download() {
    let fixture = ImageFixture::new();
    let machine = fixture.machine().disk(1024).boot().unwrap();
    let before = status(&machine);
    let image = fixture.push("os/debian:1", &ContainerImage::system().unwrap());
    assert_refused(&machine, &image, 1, "MB on the file system of /var/lib/machinist/images");
    let layers = ContainerImage::system().unwrap().base_layers();
    assert_eq!(fixture.registry.fetch_count(&layers[0]).unwrap(), 0);
    assert_unchanged(&machine, &before);
}
