//! The whole first boot of a machine: a pointer config, the real Ignition, our server, the pool's image, one reboot,
//! joined, Done.
mod etcd_index;
mod fixture;
mod in_place;
mod leave;
mod sealed_config;
mod served;

use machinist_e2e::machine::MachineBuilder;
use machinist_e2e::{Machine, measurements};
use std::time::Instant;

/// Switches a new machine on.
fn power_on_new_machine(machine: MachineBuilder) -> Machine {
    let machine = machine.build().unwrap();
    let up = machine.power_on();
    assert!(up.is_ok(), "{up:?}\n{}", machine.journal().unwrap_or_default());
    machine
}

/// Records and prints the time from power-on to Done.
fn record_first_boot_time(name: &str, start: Instant) {
    let took = format!("{:.1} s from power-on to Done", start.elapsed().as_secs_f64());
    measurements::record(name, took).unwrap();
}

fn read(machine: &Machine, path: &str) -> String {
    machine.sh(&format!("cat {path}")).unwrap()
}
