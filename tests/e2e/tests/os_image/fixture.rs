//! A machine with ostree and a registry that it knows by another name.

use crate::daemon::fixture::HubFixture;
use machinist_e2e::command::ExitOutput;
use machinist_e2e::machine::MachineBuilder;
use machinist_e2e::pki::TestCa;
use machinist_e2e::{ContainerImage, ImageRegistry, Lab, Machine};
use serde_json::Value;

/// The machine's name for the registry.
const REGISTRY_NAME: &str = "images.example";

/// A policy that accepts every image from the registry.
pub(crate) const ACCEPT_ALL_POLICY: &str = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;

pub(crate) struct ImageFixture {
    pub(crate) registry: ImageRegistry,
    pub(crate) lab: Lab,
}

impl ImageFixture {
    pub(crate) fn new() -> Self {
        Self::in_lab(Lab::new().unwrap())
    }

    pub(crate) fn in_lab(lab: Lab) -> Self {
        Self { registry: ImageRegistry::start(&lab).unwrap(), lab }
    }

    /// A hub with a registry, and a joined machine with a file of its own.
    pub(crate) fn with_joined_machine() -> (HubFixture, Self, Machine) {
        let hub = HubFixture::start();
        let fixture = Self::in_lab(hub.lab.clone());
        let machine = fixture.machine().boot().unwrap();
        machine.write_file("/etc/local", "mine\n").unwrap();
        hub.join(&machine);
        hub.wait_done(&machine, "mco-empty-mc");
        (hub, fixture, machine)
    }

    /// A machine that finds the registry through its own settings.
    pub(crate) fn machine(&self) -> MachineBuilder {
        self.machine_with_registry(&self.registry.host())
    }

    /// The same for a registry at this address.
    pub(crate) fn machine_with_registry(&self, address: &str) -> MachineBuilder {
        let registries = format!(
            "[[registry]]\nprefix = \"{REGISTRY_NAME}\"\nlocation = \"{address}\"\ninsecure = true\n"
        );
        let machine =
            self.lab.ostree_machine("a").with_machinist().unwrap().karg("testkit.first=1");
        machine
            .file("/etc/containers/registries.conf", registries)
            .file("/etc/containers/policy.json", ACCEPT_ALL_POLICY)
    }

    /// Pushes an image. Returns its name as the machine uses it.
    pub(crate) fn push(&self, name: &str, image: &ContainerImage) -> String {
        let pullspec = self.registry.push(name, image).unwrap();
        pullspec.replacen(&self.registry.host(), REGISTRY_NAME, 1)
    }
}

/// A registry that requires a password, and machines that trust its certificate.
pub(crate) struct PrivateRegistry {
    pub(crate) registry: ImageRegistry,
    lab: Lab,
    authority: TestCa,
}

impl PrivateRegistry {
    pub(crate) fn new() -> Self {
        let (lab, authority) = (Lab::new().unwrap(), TestCa::new("registries").unwrap());
        Self { registry: ImageRegistry::start_with_auth(&lab, &authority).unwrap(), lab, authority }
    }

    /// A machine without a pull secret.
    pub(crate) fn machine(&self) -> MachineBuilder {
        let trust = format!("/etc/containers/certs.d/{}/ca.crt", self.registry.host());
        let machine = self.lab.ostree_machine("a").with_machinist().unwrap();
        machine
            .file(&trust, self.authority.certificate())
            .file("/etc/containers/policy.json", ACCEPT_ALL_POLICY)
    }
}

/// The second version of the system: a changed file, a new one and a removed one, in /usr and /etc.
pub(crate) fn second_image() -> ContainerImage {
    ContainerImage::system()
        .unwrap()
        .file("usr/lib/testkit-version", 0o644, "v2\n")
        .file("etc/testkit-untouched", 0o644, "from v2\n")
        .file("etc/testkit-new", 0o644, "new in v2\n")
        .file("var/lib/not-taken", 0o644, "")
        .whiteout("usr/bin/chronyc")
        .whiteout("etc/environment")
}

pub(crate) fn version(machine: &Machine) -> String {
    machine.sh("cat /usr/lib/testkit-version").unwrap().trim().to_owned()
}

/// Runs `machinist os …` on the machine. Any exit code is accepted.
pub(crate) fn machinist_os(machine: &Machine, args: &[&str]) -> ExitOutput {
    let args = [&["machinist", "os"], args].concat();
    machine.exec(&args).unwrap()
}

/// The same, which must succeed.
pub(crate) fn machinist_os_succeeds(machine: &Machine, args: &[&str]) {
    let output = machinist_os(machine, args);
    assert!(output.succeeded(), "{args:?}: {output:?}");
}

pub(crate) fn status(machine: &Machine) -> Value {
    let output = machinist_os(machine, &["status", "-o", "json"]);
    assert!(output.succeeded(), "{output:?}");
    serde_json::from_str(&output.stdout).unwrap()
}

pub(crate) fn arguments(deployment: &Value) -> Vec<String> {
    serde_json::from_value(deployment["kernelArguments"].clone()).unwrap()
}

/// Asserts that no bootable part of a change is left on the machine, and that its repository is valid.
pub(crate) fn assert_unchanged(machine: &Machine, before: &Value) {
    assert_eq!(status(machine), *before);
    assert!(machine.exec(&["ostree", "fsck", "--quiet"]).unwrap().succeeded());
}
