//! The virtual machine of the kit: a real kernel with real arguments.

use machinist_e2e::{Lab, Qemu, figures, program};

#[test]
fn a_kernel_boots_with_a_changed_argument() {
    let lab = Lab::new().unwrap();
    let machine = Qemu::new(&lab, "vm", &["testkit.first=1"]).unwrap();
    let marker = figures::timed("qemu-boot", || machine.boot()).unwrap();
    assert!(marker.contains("up v1") && marker.contains("testkit.first=1"), "{marker}");
    let release = machine.sh("uname -r; test -e /run/ostree-booted").unwrap();
    assert!(release.ok() && release.stdout.contains("cloud"), "{release:?}");
}

#[test]
fn a_real_boot_loader_boots_a_staged_update_in_place() {
    let lab = Lab::new().unwrap();
    let machine = Qemu::with_boot_loader(&lab, "vm", &["testkit.first=1"]).unwrap();
    let marker = machine.boot().unwrap();
    assert!(marker.contains("up v1") && marker.contains("testkit.first=1"), "{marker}");
    let staged = machine.sh("ostree admin deploy --stage --karg-append=testkit.second=2 debian/v2");
    assert!(staged.as_ref().unwrap().ok(), "{staged:?}");
    let marker = machine.reboot().unwrap();
    assert!(marker.contains("up v2") && marker.contains("testkit.second=2"), "{marker}");
}

#[test]
fn a_power_cut_loses_what_the_machine_had_not_synced() {
    let lab = Lab::new().unwrap();
    let machine = Qemu::new(&lab, "vm", &[]).unwrap();
    machine.boot().unwrap();
    let script = "echo kept >/etc/kept; sync /etc/kept /etc; echo lost >/etc/lost";
    assert!(machine.sh(script).unwrap().ok());
    machine.power_cut().unwrap();
    machine.boot().unwrap();
    let found = machine.sh("cat /etc/kept; cat /etc/lost 2>/dev/null || true").unwrap();
    assert_eq!(found.stdout, "kept\n");
}

#[test]
fn a_kernel_boots_what_our_program_has_staged_unless_the_power_fails() {
    let lab = Lab::new().unwrap();
    let ours = program::machinist().unwrap();
    let machine = Qemu::with_programs(&lab, "vm", &["testkit.first=1"], &[&ours]).unwrap();
    machine.boot().unwrap();
    let commit = machine.sh("ostree rev-parse --repo=/ostree/repo debian/v2").unwrap();
    let stage = format!(
        "/usr/local/bin/machinist os stage --checksum {} --append testkit.second=2",
        commit.text()
    );
    let staged = machine.sh(&stage).unwrap();
    assert!(staged.ok(), "{staged:?}");
    // What is not complete yet is lost with the power, and the machine boots what it had.
    machine.power_cut().unwrap();
    let marker = machine.boot().unwrap();
    assert!(marker.contains("up v1") && !marker.contains("testkit.second"), "{marker}");
    let staged = machine.sh(&stage).unwrap();
    assert!(staged.ok(), "{staged:?}");
    machine.reboot().unwrap();
    let found =
        machine.sh("cat /proc/cmdline; /usr/local/bin/machinist os status -o json").unwrap();
    let (line, status) = found.stdout.split_once('\n').unwrap();
    let status: serde_json::Value = serde_json::from_str(status).unwrap();
    assert!(line.contains("root=LABEL=root rw testkit.first=1 testkit.second=2"), "{line}");
    assert_eq!(status["booted"]["checksum"], commit.text());
}
