//! The first boot of machines that are set up by a server.

use crate::first_boot::fixture::{FirstBootFixture, ServerMode, file, second_system};
use crate::first_boot::{power_on_new_machine, read, record_first_boot_time};
use machinist_e2e::{Lab, Machine};
use serde_json::{Value, json};
use std::time::Instant;

/// What only a new machine needs is gone: the pending work of the first boot, its token, its initial report, and the
/// presets that Ignition wrote.
fn assert_first_boot_cleaned_up(machine: &Machine) {
    for path in [
        "/etc/ignition-machine-config-encapsulated.json",
        "/etc/kubernetes/kubeconfig",
        "/etc/machine-config-daemon/node-annotations.json",
        "/etc/systemd/system-preset/20-ignition.preset",
    ] {
        // The daemon removes the last of it after its Node has reported Done.
        machine.wait_for(&format!("{path} to go"), |it| Ok(!it.exists(path)?)).unwrap();
    }
    // The state that the daemon continues from.
    assert!(machine.exists("/etc/machine-config-daemon/currentconfig").unwrap());
}

/// The kubelet was started once, after the first boot was complete; the first boot waited for the network.
fn assert_first_boot_order(machine: &Machine) {
    assert_eq!(read(machine, "/var/kubelet.log"), "in order\n");
    let unit = "systemctl show machinist-firstboot.service -p After -p Before -p RequiredBy";
    let unit = machine.sh(unit).unwrap();
    for (key, name) in [
        ("After=", "network-online.target"),
        ("After=", "machinist-enrol.service"),
        ("Before=", "kubelet.service"),
        ("Before=", "machinist-daemon.service"),
        ("RequiredBy=", "kubelet.service"),
    ] {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        assert!(line.split(' ').any(|word| word == name), "{key}{name}: {unit}");
    }
}

#[test]
fn a_machine_first_boots_into_the_image_of_its_pool() {
    let lab = Lab::new().unwrap();
    let (_registry, image, registry_files) = second_system(&lab);
    let fixture = FirstBootFixture::new(&lab, ServerMode::Embedded);
    let mut files = vec![file("/etc/greeting", 0o644, "hello\n")];
    files.extend(registry_files);
    let arguments = ["firstboot=1", "quiet"];
    let config = fixture
        .declare(json!({"osImageURL": image, "kernelArguments": arguments, "fips": true}), &files);
    let pointer = fixture.pointer_config(Some(&fixture.token())).to_string();
    let start = Instant::now();
    let machine = power_on_new_machine(lab.ostree_machine("new").with_ignition(&pointer));
    let node = fixture.wait_done(&machine, &config);
    record_first_boot_time("first-boot-with-image", start);
    assert_eq!(node["metadata"]["labels"]["node-role.kubernetes.io/worker"], "");
    assert_eq!(machine.boots(), 2, "one restart, and no other");
    assert_eq!(read(&machine, "/usr/lib/testkit-version"), "v2\n");
    assert_eq!(read(&machine, "/etc/greeting"), "hello\n");
    let line = read(&machine, "/proc/cmdline");
    // FIPS mode is enabled with the first reboot.
    assert!(
        line.contains(" firstboot=1 quiet fips=1") && line.contains("root=LABEL=root"),
        "{line}"
    );
    assert_first_boot_cleaned_up(&machine);
    assert_first_boot_order(&machine);
    let status: Value =
        serde_json::from_str(&machine.sh("machinist daemon status -o json").unwrap()).unwrap();
    assert!(status.to_string().contains("ostree"), "{status}");
    // It cannot be disabled: no machine is even targeted.
    fixture.change(&json!({"fips": false}));
    let reason = fixture.wait_for_render_failure();
    assert!(reason.contains("FIPS"), "{reason}");
    assert_eq!(machine.boots(), 2);
}

#[test]
fn a_machine_that_matches_its_config_does_not_reboot() {
    let lab = Lab::new().unwrap();
    let fixture = FirstBootFixture::new(&lab, ServerMode::Embedded);
    let config = fixture.declare(json!({}), &[file("/etc/greeting", 0o644, "hello\n")]);
    let pointer = fixture.pointer_config(Some(&fixture.token())).to_string();
    let start = Instant::now();
    let machine = power_on_new_machine(lab.machine("plain").with_ignition(&pointer));
    fixture.wait_done(&machine, &config);
    record_first_boot_time("first-boot", start);
    assert_eq!(machine.boots(), 1);
    assert_eq!(read(&machine, "/etc/greeting"), "hello\n");
    assert_first_boot_cleaned_up(&machine);
    assert_first_boot_order(&machine);
}

/// The server is a separate process next to the hub.
#[test]
fn a_machine_first_boots_through_a_separate_server() {
    let lab = Lab::new().unwrap();
    let (_registry, image, files) = second_system(&lab);
    let fixture = FirstBootFixture::new(&lab, ServerMode::Separate);
    let config =
        fixture.declare(json!({"osImageURL": image, "kernelArguments": ["firstboot=2"]}), &files);
    let pointer = fixture.pointer_config(Some(&fixture.token())).to_string();
    let start = Instant::now();
    let machine = power_on_new_machine(lab.ostree_machine("beside").with_ignition(&pointer));
    fixture.wait_done(&machine, &config);
    record_first_boot_time("first-boot-separate-server", start);
    assert_eq!(machine.boots(), 2, "one restart, and no other");
    assert_eq!(read(&machine, "/usr/lib/testkit-version"), "v2\n");
    assert!(read(&machine, "/proc/cmdline").contains(" firstboot=2"));
    assert_first_boot_cleaned_up(&machine);
}
