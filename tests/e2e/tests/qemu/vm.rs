//! What the tests ask of a virtual machine.

use machinist_e2e::ImageRegistry;
use machinist_e2e::VirtualMachine;
use machinist_e2e::command::ExitOutput;
use machinist_e2e::qemu::QemuBuilder;
use serde_json::Value;

/// Has a machine take images from a registry without TLS and without signatures.
pub(crate) fn with_trusted_registry(machine: QemuBuilder, registry: &ImageRegistry) -> QemuBuilder {
    let registries = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", registry.host());
    machine
        .file("/etc/containers/registries.conf", registries)
        .file("/etc/containers/policy.json", r#"{"default": [{"type": "insecureAcceptAnything"}]}"#)
}

/// Runs a script that has to succeed; gives what it says.
#[track_caller]
pub(crate) fn sh(machine: &VirtualMachine, script: &str) -> String {
    let answer: ExitOutput = machine.sh(script).unwrap();
    assert!(answer.succeeded(), "{script}: {answer:?}");
    answer.stdout
}

/// What `machinist os status` says.
#[track_caller]
pub(crate) fn status(machine: &VirtualMachine) -> Value {
    serde_json::from_str(&sh(machine, "machinist os status -o json")).unwrap()
}
