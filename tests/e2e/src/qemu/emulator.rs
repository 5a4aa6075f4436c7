//! The emulator: whether it is installed, and how it is started.

use super::VirtualMachine;
use crate::environment;
use anyhow::Result;
use std::io::Write as _;
use std::process::Command;

/// The emulator's binary.
pub(super) const EMULATOR: &str = "qemu-system-x86_64";

/// Kernel arguments that speed up an emulated boot and make a panic end immediately.
pub(super) const FAST_BOOT_ARGS: &str =
    "console=ttyS0 mitigations=off audit=0 nokaslr tsc=reliable loglevel=4 panic=-1";

/// Whether a test is skipped because this host has no emulator; prints so loudly. The emulator is the only part of the
/// kit without which tests pass, because not every host can have it.
pub fn skip_without_emulator(test: &str) -> bool {
    let reason = reason_to_skip(test, environment::find_tool(EMULATOR).is_ok());
    if let Some(reason) = &reason {
        // Not with a macro: the test harness captures those and shows them only for failing tests.
        let _ = std::io::stderr().write_all(reason.as_bytes());
    }
    reason.is_some()
}

fn reason_to_skip(test: &str, has_emulator: bool) -> Option<String> {
    (!has_emulator).then(|| {
        format!(
            "\n!!! SKIPPED: {test}: no kernel was booted, because there is no {EMULATOR} on this machine.\n\
             !!! Install the Debian package qemu-system-x86 (make testkit does) and run the test again.\n\n"
        )
    })
}

/// The command that starts a machine.
pub(super) fn command(machine: &VirtualMachine) -> Result<Command> {
    let mut qemu = Command::new("nsenter");
    qemu.arg(format!("--net=/run/netns/{}", machine.port.namespace)).arg(EMULATOR);
    qemu.args(["-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "Nehalem", "-smp", "2"]);
    qemu.args(["-m", "1024", "-nodefaults", "-no-user-config", "-display", "none"]);
    if !machine.boot_loader {
        let kernel = machine.image.kernel(&machine.dir)?;
        qemu.args(["-no-reboot", "-append", &format!("{} {FAST_BOOT_ARGS}", kernel.options)]);
        qemu.arg("-kernel").arg(&kernel.linux).arg("-initrd").arg(&kernel.initrd);
    }
    let drive = format!("file={},if=virtio,format=raw", machine.image.path().display());
    qemu.args(["-drive", &drive, "-device", "virtio-rng-pci"]);
    qemu.args(["-netdev", "user,id=n0,ipv6=off", "-device", "virtio-net-pci,netdev=n0,romfile="]);
    qemu.arg("-serial").arg(format!("file:{}", machine.serial().display()));
    let socket = format!("socket,id=h0,path={},server=on,wait=off", machine.socket().display());
    qemu.args(["-device", "virtio-serial-pci", "-chardev", &socket]);
    qemu.args(["-device", "virtconsole,chardev=h0"]);
    Ok(qemu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_skipped_only_without_an_emulator_and_never_silently() {
        assert_eq!(reason_to_skip("a_test", true), None);
        let reason = reason_to_skip("a_test", false).unwrap();
        for word in ["SKIPPED: a_test", EMULATOR, "package qemu-system-x86"] {
            assert!(reason.contains(word), "{reason}");
        }
    }
}
