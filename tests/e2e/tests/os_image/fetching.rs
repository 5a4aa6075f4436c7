//! Images are pulled by digest, with the machine's own settings, and only missing layers are fetched.

use super::fixture::{
    ImageFixture, machinist_os, machinist_os_succeeds, second_image, status, version,
};
use machinist_e2e::{ContainerImage, measurements};
use std::fs;

#[test]
fn an_image_is_fetched_deployed_and_rolled_back() {
    let fixture = ImageFixture::new();
    let machine = fixture.machine().boot().unwrap();
    machine.write_file("/etc/local", "mine\n").unwrap();
    let first = status(&machine);
    assert_eq!(first["booted"]["image"], serde_json::Value::Null);
    let image = fixture.push("os/debian:2", &second_image());

    let fetched =
        measurements::measure("os-image-fetch", || Ok(machinist_os(&machine, &["fetch", &image])));
    assert!(fetched.as_ref().unwrap().succeeded(), "{fetched:?}");
    assert_eq!(status(&machine), first, "fetching changes nothing");
    assert_eq!(machine.sh("ls -A /var/lib/machinist/images").unwrap(), "");
    // The second time nothing is left to do, even without a network.
    machine.link_down().unwrap();
    let append = "testkit.second=2 x=\"a b\"";
    machinist_os_succeeds(&machine, &["stage", "--image", &image, "--append", append]);
    machine.link_up().unwrap();
    let staged = status(&machine);
    let kargs = ["root=LABEL=root", "rw", "testkit.first=1", "testkit.second=2", "x=\"a b\""];
    assert_eq!(staged["next"]["image"], image.as_str());
    assert_eq!(staged["next"]["kernelArguments"], serde_json::json!(kargs));
    assert_eq!(staged["booted"], first["booted"]);

    machine.reboot().unwrap();
    let second = status(&machine);
    assert_eq!(version(&machine), "v2");
    assert_eq!(second["booted"]["image"], image.as_str());
    assert_eq!(second["booted"]["kernelArguments"], serde_json::json!(kargs));
    assert_eq!(second["kept"][0]["checksum"], first["booted"]["checksum"]);
    assert!(machine.sh("cat /proc/cmdline").unwrap().contains("root=LABEL=root"));
    assert_eq!(machine.read_file("/etc/local").unwrap(), b"mine\n");
    assert_eq!(machine.read_file("/etc/testkit-untouched").unwrap(), b"from v2\n");
    assert_eq!(machine.read_file("/etc/testkit-new").unwrap(), b"new in v2\n");
    for path in ["/usr/bin/chronyc", "/etc/environment", "/var/lib/not-taken"] {
        assert!(!machine.exists(path).unwrap(), "{path}");
    }
    // Owners, modes and capabilities are those of the image.
    let modes = "stat -c '%U:%G %a' /usr/bin/passwd /etc/shadow";
    assert_eq!(machine.sh(modes).unwrap(), "root:root 4755\nroot:shadow 640\n");
    machinist_os_succeeds(&machine, &["confirm"]);
    assert_eq!(status(&machine), second, "the one before is kept");

    // The rollback is deployed immediately: nothing is left to do during shutdown.
    let checksum = first["booted"]["checksum"].as_str().unwrap();
    let back = ["stage", "--now", "--checksum", checksum, "--delete", append];
    machinist_os_succeeds(&machine, &back);
    machine.power_cut().unwrap();
    machine.power_on().unwrap();
    let third = status(&machine);
    assert_eq!(version(&machine), "v1");
    assert_eq!(third["booted"]["checksum"], checksum);
    assert_eq!(third["booted"]["kernelArguments"], first["booted"]["kernelArguments"]);
    assert_eq!(machine.read_file("/etc/local").unwrap(), b"mine\n");
    assert!(!machine.exists("/etc/testkit-new").unwrap());
    // The image is still stored, so this is quick.
    machine.link_down().unwrap();
    machinist_os_succeeds(&machine, &["stage", "--image", &image]);
    machinist_os_succeeds(&machine, &["unstage"]);
    assert_eq!(status(&machine)["booted"], third["booted"]);
    assert!(status(&machine)["next"].is_null());
}

#[test]
fn fetched_layers_are_not_fetched_again() {
    let fixture = ImageFixture::new();
    let machine = fixture.machine().boot().unwrap();
    let base = ContainerImage::system().unwrap();
    let layers = base.base_layers();
    let image = fixture.push("os/debian:1", &base.file("usr/lib/testkit-version", 0o644, "v3\n"));
    // The registry has lost a layer.
    let (blob, aside) =
        (fixture.registry.blob(&layers[1]).unwrap(), fixture.lab.dir().join("aside"));
    fs::rename(&blob, &aside).unwrap();
    let output = machinist_os(&machine, &["fetch", &image]);
    assert_eq!(output.code, 1, "{output:?}");
    let kept = format!("/var/lib/machinist/images/*/oci/blobs/sha256/{}", &layers[0][7..]);
    machine
        .wait_for("the first layer to be kept", |m| Ok(m.sh(&format!("ls {kept}")).is_ok()))
        .unwrap();
    fs::rename(&aside, &blob).unwrap();
    // On many systems this is the default.
    machine.sh("mount -o remount,bind,ro /sysroot").unwrap();
    machinist_os_succeeds(&machine, &["fetch", &image]);
    assert!(machine.exec(&["touch", "/sysroot/x"]).unwrap().stderr.contains("Read-only"));
    assert_eq!(fixture.registry.fetch_count(&layers[0]).unwrap(), 1);
    machinist_os_succeeds(&machine, &["stage", "--image", &image]);
    machine.reboot().unwrap();
    assert_eq!(version(&machine), "v3");
}
