//! The daemon applies a pool's image and kernel argument to a machine, and the machine's own boot loader and kernel
//! start what it has staged.

use super::vm::{sh, status, with_trusted_registry};
use crate::daemon::fixture::{HubFixture, file, files};
use machinist_e2e::{
    ContainerImage, ImageRegistry, VirtualMachine, measurements, qemu, wait_with_timeout,
};
use serde_json::json;
use std::time::{Duration, Instant};

/// Timeout for the whole scenario.
const LIMIT: Duration = Duration::from_secs(15 * 60);

#[test]
fn the_daemon_changes_image_and_argument_and_the_kernel_boots_with_them() {
    if qemu::skip_without_emulator("the daemon changes image and argument") {
        return;
    }
    let began = Instant::now();
    let left = || LIMIT.saturating_sub(began.elapsed());
    let hub = HubFixture::start();
    let registry = ImageRegistry::start(&hub.lab).unwrap();
    let image = registry.push("os/small:2", &ContainerImage::small_system().unwrap()).unwrap();
    let (ca, token) = hub.join_credentials();
    let machine = hub.lab.qemu("vm").unwrap().karg("testkit.first=1").with_machinist().unwrap();
    let machine = machine.file("/etc/join/ca.crt", ca).file("/etc/join/token", token);
    let machine = with_trusted_registry(machine, &registry).boot_loader().build().unwrap();
    let marker = measurements::measure("qemu-boot", || machine.boot()).unwrap();
    assert!(marker.contains("up v1") && marker.contains("testkit.first=1"), "{marker}");
    assert!(sh(&machine, "test -e /run/ostree-booted; uname -r").contains("cloud"));

    sh(&machine, &hub.join_command("/etc/join"));
    wait_done(&hub, &machine, "mco-empty-mc", left());
    let first = status(&machine);
    let start = Instant::now();
    let mut config = files(&[file("/etc/motd", "two\n")]);
    config["ignition"] = json!({"version": "3.5.0"});
    let spec =
        json!({"osImageURL": image, "kernelArguments": ["testkit.second=2"], "config": config});
    let config = hub.apply_config_spec("50-os", &spec);
    // Only the daemon reboots it.
    let marker = machine.wait_boots(2, left()).unwrap();
    assert!(marker.contains("up v2"), "{marker}");
    wait_done(&hub, &machine, &config, left());
    measurements::record("qemu-declared-to-done", format!("{:?}", start.elapsed())).unwrap();

    let (line, second) = (sh(&machine, "cat /proc/cmdline"), status(&machine));
    assert!(line.contains("testkit.first=1") && line.contains("testkit.second=2"), "{line}");
    assert_eq!(second["booted"]["image"], image.as_str());
    assert_ne!(second["booted"]["checksum"], first["booted"]["checksum"]);
    assert_eq!(second["kept"][0]["checksum"], first["booted"]["checksum"]);
    assert_eq!(sh(&machine, "cat /etc/motd /etc/testkit-new"), "two\nnew in v2\n");
    assert_eq!(machine.boots(), 2, "one restart for all of it");
}

/// Waits until a machine reports a config as applied.
#[track_caller]
fn wait_done(hub: &HubFixture, machine: &VirtualMachine, config: &str, limit: Duration) {
    let name = machine.name();
    let waited = wait_with_timeout(limit, &format!("{name} to be Done"), || {
        let (state, current) =
            (hub.annotation(name, "state"), hub.annotation(name, "currentConfig"));
        anyhow::ensure!(
            state == "Done" && current == config,
            "it is {state} on {current}: {}",
            hub.annotation(name, "reason")
        );
        Ok(true)
    });
    if let Err(error) = waited {
        let log = machine.sh("journalctl --no-pager -u machinist-daemon.service | tail -40");
        panic!("{error:#}\n{}", log.map(|output| output.stdout).unwrap_or_default());
    }
}
