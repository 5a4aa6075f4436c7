//! What the tests ask of a virtual machine.

use machinist_e2e::Qemu;
use machinist_e2e::Registry;
use machinist_e2e::command::Answer;
use machinist_e2e::qemu::Builder;
use serde_json::Value;

/// Has a machine take images from a registry without TLS and without signatures.
pub(crate) fn trusting(machine: Builder, registry: &Registry) -> Builder {
    let registries = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", registry.host());
    machine
        .file("/etc/containers/registries.conf", registries)
        .file("/etc/containers/policy.json", r#"{"default": [{"type": "insecureAcceptAnything"}]}"#)
}

/// Runs a script that has to succeed; gives what it says.
#[track_caller]
pub(crate) fn sh(machine: &Qemu, script: &str) -> String {
    let answer: Answer = machine.sh(script).unwrap();
    assert!(answer.ok(), "{script}: {answer:?}");
    answer.stdout
}

/// What `machinist os status` says.
#[track_caller]
pub(crate) fn status(machine: &Qemu) -> Value {
    serde_json::from_str(&sh(machine, "machinist os status -o json")).unwrap()
}
