//! The power fails while a machine turns a fetched image into the system of its next boot.

use super::power_cut_step::{SCRIPT, complete, cut_in};
use super::vm::{sh, status};
use machinist_e2e::{Lab, qemu};

/// Completes what is staged, as the machine does during shutdown.
const FINALIZE: &str = "systemctl stop ostree-finalize-staged.service";

#[test]
#[ignore = "nightly: ten minutes of emulation; os_image::crash cuts the power at the same steps on a container"]
fn a_power_cut_at_any_step_of_staging_leaves_the_old_or_the_new_system() {
    if qemu::skip_without_emulator("a power cut at any step of staging") {
        return;
    }
    let lab = Lab::new().unwrap();
    let machine = lab.qemu("vm").unwrap().karg("testkit.first=1").image("debian-small/v2");
    let machine =
        machine.with_machinist().unwrap().script("testkit-cut", SCRIPT).unwrap().build().unwrap();
    machine.boot().unwrap();
    let before = status(&machine);
    let commit = sh(&machine, "ostree rev-parse --repo=/ostree/repo debian-small/v2");
    let stage =
        format!("machinist os stage --checksum {} --append testkit.second=2", commit.trim());
    let assert_old = |marker: &str, step: &str| {
        assert!(marker.contains("up v1") && marker.contains("testkit.first=1"), "{step}: {marker}");
        let now = status(&machine);
        assert_eq!((&now["booted"], now["next"].is_null()), (&before["booted"], true), "{step}");
    };

    assert_old(&cut_in(&machine, "deploy", &stage), "deploy");

    // Staged changes are complete only after the shutdown and lost with the power, as is every unsynced file, which
    // proves that the cut is real.
    complete(&machine, &stage);
    assert_eq!(status(&machine)["next"]["checksum"], commit.trim());
    sh(&machine, "echo kept >/etc/kept; sync /etc/kept /etc; echo lost >/etc/lost");
    machine.power_cut().unwrap();
    assert_old(&machine.boot().unwrap(), "staged");
    assert_eq!(sh(&machine, "cat /etc/kept /etc/lost 2>/dev/null || true"), "kept\n");

    complete(&machine, &stage);
    assert_old(&cut_in(&machine, "kernel", FINALIZE), "kernel");

    complete(&machine, &stage);
    let marker = cut_in(&machine, "loader", FINALIZE);
    if marker.contains("up v1") {
        assert_old(&marker, "loader");
        complete(&machine, &stage);
        machine.reboot().unwrap();
    }
    let line = sh(&machine, "cat /proc/cmdline");
    assert!(line.contains("testkit.first=1 testkit.second=2"), "{line}");
    assert_eq!(status(&machine)["booted"]["checksum"], commit.trim());
    assert_eq!(sh(&machine, "cat /usr/lib/testkit-version"), "v2\n");
    machine.power_cut_and_fsck().unwrap();
}
