//! The power fails while an image is fetched to a machine.

use super::power_cut_step::{SCRIPT, complete, cut_in};
use super::vm::{sh, status, with_trusted_registry};
use machinist_e2e::{ContainerImage, ImageRegistry, Lab, measurements, qemu};

#[test]
#[ignore = "nightly: ten minutes of emulation; os_image::crash cuts the power at the same steps on a container"]
fn a_power_cut_during_a_fetch_leaves_the_machine_unchanged_and_the_retry_succeeds() {
    if qemu::skip_without_emulator("a power cut while an image comes") {
        return;
    }
    let lab = Lab::new().unwrap();
    let registry = ImageRegistry::start(&lab).unwrap();
    let image = registry.push("os/small:2", &ContainerImage::small_system().unwrap()).unwrap();
    let machine =
        lab.qemu("vm").unwrap().with_machinist().unwrap().script("testkit-cut", SCRIPT).unwrap();
    let machine = with_trusted_registry(machine, &registry).build().unwrap();
    machine.boot().unwrap();
    let before = status(&machine);

    let fetch = format!("machinist os fetch {image}");
    for step in ["copy", "unpack", "commit"] {
        let marker = cut_in(&machine, step, &fetch);
        assert!(marker.contains("up v1"), "{step}: {marker}");
        assert_eq!(status(&machine), before, "{step}");
    }
    let fetched = measurements::measure("qemu-image-fetch", || {
        complete(&machine, &fetch);
        Ok(())
    });
    fetched.unwrap();
    assert_eq!(status(&machine), before, "fetching changes nothing");
    // What is reported as present is present after a power cut, and all of it is intact.
    assert_eq!(sh(&machine, "ls -A /var/lib/machinist/images"), "");
    let (names, (_, sum)) =
        (machine.power_cut_and_fsck().unwrap(), image.rsplit_once(':').unwrap());
    assert!(names.contains(sum), "{names}");
}
