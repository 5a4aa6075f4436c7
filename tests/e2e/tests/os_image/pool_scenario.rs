//! A pool gets an image: everything from the MachineConfig to the machine that has booted it, and back.

use super::fixture::{ImageFixture, second_image, status, version};
use crate::daemon::fixture::{file, files};
use machinist_e2e::{ContainerImage, Machine, measurements, wait_for};
use serde_json::{Value, json};

/// The machine is healthy unless its image says otherwise.
const HEALTH: &str =
    "deadline: 5s\nstable: 0s\ncommands:\n- run: [/bin/sh, -c, '! test -e /usr/lib/broken']\n";

fn spec(image: &str, argument: &str, motd: &str) -> Value {
    let written = [file("/etc/motd", motd), file("/etc/machinist/health.yaml", HEALTH)];
    let mut config = files(&written);
    config["ignition"] = json!({"version": "3.5.0"});
    json!({"osImageURL": image, "kernelArguments": [argument], "config": config})
}

fn line(machine: &Machine) -> String {
    machine.sh("cat /proc/cmdline").unwrap()
}

#[test]
fn a_pool_gets_an_image_and_rolls_back_from_a_broken_one() {
    let (hub, fixture, machine) = ImageFixture::with_joined_machine();
    let first = status(&machine);

    // Downloaded before the drain; files, image and kernel arguments with one reboot.
    let (boots, image) = (machine.boots(), fixture.push("os/debian:2", &second_image()));
    let start = std::time::Instant::now();
    let good = hub.apply_config_spec("50-os", &spec(&image, "story=2", "two\n"));
    hub.wait_done(&machine, &good);
    measurements::record("os-image-declared-to-done", format!("{:?}", start.elapsed())).unwrap();
    assert_eq!(machine.boots(), boots + 1);
    assert_eq!(
        (version(&machine).as_str(), &status(&machine)["booted"]["image"]),
        ("v2", &json!(image))
    );
    assert!(line(&machine).contains("root=LABEL=root rw testkit.first=1 story=2"));
    assert_eq!(machine.read_file("/etc/motd").unwrap(), b"two\n");
    assert_eq!(machine.read_file("/etc/local").unwrap(), b"mine\n");
    assert_eq!(machine.read_file("/etc/testkit-new").unwrap(), b"new in v2\n");
    wait_for("all events, in this order", || {
        let events = hub.events("a");
        let mut rest = events.iter();
        for reason in ["OSUpdateStarted", "Drain", "OSUpgradeApplied", "Reboot", "NodeDone"] {
            let found = rest.any(|event| event == reason);
            anyhow::ensure!(found, "no {reason} in its place: {events:?}");
        }
        Ok(true)
    })
    .unwrap();

    // An image on which the machine is unhealthy: an automatic rollback, files included, without a retry.
    let booted = status(&machine)["booted"].clone();
    let broken = second_image().file("usr/lib/broken", 0o644, "").file(
        "usr/lib/testkit-version",
        0o644,
        "v3\n",
    );
    let broken = fixture.push("os/debian:3", &broken);
    let bad = hub.apply_config_spec("50-os", &spec(&broken, "story=3", "three\n"));
    hub.wait_state(&machine, "Degraded", |hub, name| {
        let reason = hub.annotation(name, "reason");
        anyhow::ensure!(reason.contains(&format!("health check failed on {bad}")), "{reason}");
        anyhow::ensure!(hub.annotation(name, "lastAppliedDrain") == format!("uncordon-{good}"));
        Ok(true)
    });
    assert_eq!(machine.boots(), boots + 3);
    assert_eq!(version(&machine), "v2");
    let after = status(&machine)["booted"].clone();
    assert_eq!(
        (&after["checksum"], &after["kernelArguments"]),
        (&booted["checksum"], &booted["kernelArguments"])
    );
    assert_eq!(machine.read_file("/etc/motd").unwrap(), b"two\n");

    // The initial image: the layered files are gone.
    let base = fixture.push("os/debian:1", &ContainerImage::system().unwrap());
    let config = hub.apply_config_spec("50-os", &spec(&base, "story=1", "one\n"));
    hub.wait_done(&machine, &config);
    assert_eq!(machine.boots(), boots + 4);
    assert_eq!(version(&machine), "v1");
    assert!(
        !machine.exists("/etc/testkit-new").unwrap() && machine.exists("/usr/bin/chronyc").unwrap()
    );
    assert!(line(&machine).contains("story=1") && !line(&machine).contains("story=2"));
    let kept = status(&machine)["kept"].as_array().unwrap().len();
    assert_eq!(kept, 1, "what proved itself leaves one to go back to");
    assert_ne!(status(&machine)["booted"]["checksum"], first["booted"]["checksum"]);
    assert_eq!(machine.sh("ls -A /var/lib/machinist/images 2>/dev/null || true").unwrap(), "");
}
