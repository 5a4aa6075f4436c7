//! A registry with TLS and passwords: the machine's pull secret gives access, and appears in no log.

use super::fixture::{PrivateRegistry, machinist_os, status, version};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use machinist_e2e::image_registry::{PASSWORD, USER};
use machinist_e2e::{ContainerImage, Machine};

const SECRET: &str = "/var/lib/kubelet/config.json";

/// The machine refuses the image. Returns its message.
fn refusal(machine: &Machine, image: &str) -> String {
    let output = machinist_os(machine, &["fetch", image]);
    let text = format!("{}{}", output.stdout, output.stderr);
    assert_eq!(output.code, 1, "{text}");
    assert!(text.contains(image), "{text}");
    text
}

#[test]
fn the_pull_secret_gives_access_and_is_not_logged() {
    let fixture = PrivateRegistry::new();
    let registry = &fixture.registry;
    let machine = fixture.machine().boot().unwrap();
    let before = status(&machine);
    let new = ContainerImage::system().unwrap().file("usr/lib/testkit-version", 0o644, "v2\n");
    let image = registry.push("os/debian:2", &new).unwrap();

    let mut text = refusal(&machine, &image);
    let expected = format!("put one with an entry for {} into {SECRET}", registry.host());
    assert!(text.contains(&expected), "{text}");
    machine.sh("mkdir -p /var/lib/kubelet").unwrap();
    machine
        .write_file(SECRET, r#"{"auths": {"other.example": {"auth": "bm9ib2R5Om5vdGhpbmc="}}}"#)
        .unwrap();
    let unknown = refusal(&machine, &image);
    assert!(unknown.contains(&format!("add an entry for {}", registry.host())), "{unknown}");
    let wrong = "not-the-password";
    machine.write_file(SECRET, registry.pull_secret(wrong).to_string()).unwrap();
    let refused = refusal(&machine, &image);
    let expected = format!("does not accept the credentials of the pull secret {SECRET}");
    assert!(refused.contains(&expected), "{refused}");
    assert_eq!(status(&machine), before);
    let layers = new.base_layers();
    assert_eq!(registry.fetch_count(&layers[0]).unwrap(), 0);

    machine.write_file(SECRET, registry.pull_secret(PASSWORD).to_string()).unwrap();
    let staged = machinist_os(&machine, &["stage", "--image", &image]);
    assert!(staged.succeeded(), "{staged:?}");
    assert_eq!(registry.fetch_count(&layers[0]).unwrap(), 1);
    machine.reboot().unwrap();
    assert_eq!(version(&machine), "v2");

    for more in [unknown, refused, staged.stdout, staged.stderr, machine.journal().unwrap()] {
        text += &more;
    }
    for password in [PASSWORD, wrong] {
        let encoded = BASE64_STANDARD.encode(format!("{USER}:{password}"));
        assert!(!text.contains(password) && !text.contains(&encoded), "{text}");
    }
}
