//! Helpers for virtual machines.

use machinist_e2e::ImageRegistry;
use machinist_e2e::VirtualMachine;
use machinist_e2e::command::ExitOutput;
use machinist_e2e::qemu::QemuBuilder;
use serde_json::Value;

/// Lets a machine pull images from a registry without TLS and signatures.
pub(crate) fn with_trusted_registry(machine: QemuBuilder, registry: &ImageRegistry) -> QemuBuilder {
    let registries = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", registry.host());
    machine
        .file("/etc/containers/registries.conf", registries)
        .file("/etc/containers/policy.json", r#"{"default": [{"type": "insecureAcceptAnything"}]}"#)
}

/// Runs a script that must succeed. Returns its output.
#[track_caller]
pub(crate) fn sh(machine: &VirtualMachine, script: &str) -> String {
    let output: ExitOutput = machine.sh(script).unwrap();
    assert!(output.succeeded(), "{script}: {output:?}");
    output.stdout
}

/// The output of `machinist os status`.
#[track_caller]
pub(crate) fn status(machine: &VirtualMachine) -> Value {
    serde_json::from_str(&sh(machine, "machinist os status -o json")).unwrap()
}
