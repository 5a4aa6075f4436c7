//! The power fails in the middle of a step: the emulator is killed exactly there.

use super::vm::sh;
use machinist_e2e::VirtualMachine;
use machinist_e2e::qemu::BOOT_TIMEOUT;

/// The script in the machine that stops a command in the middle of a step.
pub(crate) const SCRIPT: &str = include_str!("cut.sh");

/// Starts a command in the machine that will be stopped in a step, and waits until it is stopped or has ended.
#[track_caller]
fn run(machine: &VirtualMachine, step: &str, command: &str) -> String {
    let before = script_events(&machine.console()).count();
    // As a unit, so that no shell waits for it.
    sh(machine, &format!("systemd-run --quiet --collect testkit-cut {step} {command}"));
    let find = |console: &str| script_events(console).nth(before).map(str::to_owned);
    machine.wait_console(step, BOOT_TIMEOUT, find).unwrap()
}

/// The output of the script: `at STEP` or `ended CODE STEP`.
fn script_events(console: &str) -> impl Iterator<Item = &str> {
    let lines = console.lines().filter_map(|line| line.split_once("testkit: "));
    lines.map(|(_, line)| line).filter(|line| line.starts_with("at ") || line.starts_with("ended "))
}

/// Runs a command to completion with a long timeout.
#[track_caller]
pub(crate) fn complete(machine: &VirtualMachine, command: &str) {
    let end = run(machine, "none", command);
    assert_eq!(end, "ended 0 none", "{command}: {}", sh(machine, "cat /run/command.log"));
}

/// Cuts the power in the middle of a step of a command, and boots. Returns the line that says what has booted.
#[track_caller]
pub(crate) fn cut_in(machine: &VirtualMachine, step: &str, command: &str) -> String {
    assert_eq!(run(machine, step, command), format!("at {step}"), "{command}");
    machine.power_cut().unwrap();
    machine.boot().unwrap_or_else(|error| panic!("after a power cut in {step}: {error:#}"))
}
