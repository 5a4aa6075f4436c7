//! A sealed config and an image: anybody may read what Ignition gets, and the machine still completes its first boot.

use crate::first_boot::fixture::{FirstBootFixture, ServerMode, file, second_system};
use crate::first_boot::{power_on_new_machine, read, record_first_boot_time};
use machinist_e2e::Lab;
use serde_json::json;
use std::time::Instant;

const SECRET: &str = "swordfish";

#[test]
fn a_machine_enrols_and_first_boots_into_the_image_of_its_pool() {
    let lab = Lab::new().unwrap();
    let (_registry, image, registry_files) = second_system(&lab);
    let fixture = FirstBootFixture::new(&lab, ServerMode::Sealed);
    let mut files = vec![file("/etc/closed", 0o600, SECRET)];
    files.extend(registry_files);
    let config =
        fixture.declare(json!({"osImageURL": image, "kernelArguments": ["firstboot=3"]}), &files);
    // The author of the pointer config adds the token; an administrator could also approve the machine. The machine has
    // no binary: it downloads ours from the server and enrols with it.
    let mut pointer = fixture.pointer_config(None);
    pointer["storage"]["files"] =
        json!([file("/etc/machinist/enrol-token", 0o600, &fixture.token())]);
    let start = Instant::now();
    let machine =
        power_on_new_machine(lab.ostree_machine("sealed").with_ignition(&pointer.to_string()));
    fixture.wait_done(&machine, &config);
    record_first_boot_time("first-boot-sealed", start);
    assert_eq!(machine.boots(), 2, "one restart, and no other");
    assert_eq!(read(&machine, "/usr/lib/testkit-version"), "v2\n");
    assert!(read(&machine, "/proc/cmdline").contains(" firstboot=3"));
    assert_eq!(read(&machine, "/etc/closed"), SECRET);
    assert_eq!(read(&machine, "/var/kubelet.log"), "in order\n");
    for path in [
        "/etc/ignition-machine-config-encapsulated.json",
        "/etc/kubernetes/kubeconfig",
        "/etc/machinist/enrol-token",
    ] {
        assert!(!machine.exists(path).unwrap(), "{path}");
    }
}
