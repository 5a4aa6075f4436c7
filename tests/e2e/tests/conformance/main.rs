//! One suite, two homes: the same questions to a real kube-apiserver and to the hub. Where they
//! differ, the hub is wrong.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub,
    reason = "helpers of tests may panic as tests do, and nothing of a test is reachable"
)]

mod details;
mod kubectl;
mod objects;
mod patches;
mod reads;
mod refusals;

use machinist_e2e::home::{self, Home};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What must hold in any home.
type Check = (&'static str, fn(&Home));

fn checks() -> Vec<Check> {
    let rooms: [&[Check]; 6] = [
        objects::CHECKS,
        patches::CHECKS,
        reads::CHECKS,
        refusals::CHECKS,
        kubectl::CHECKS,
        details::CHECKS,
    ];
    rooms.concat()
}

/// Runs every check; all failures are told, not only the first.
fn run(home: &Home, checks: &[Check]) {
    let failed: Vec<&str> = checks
        .iter()
        .filter(|(_, check)| catch_unwind(AssertUnwindSafe(|| check(home))).is_err())
        .map(|(name, _)| *name)
        .collect();
    let (total, count) = (checks.len(), failed.len());
    assert!(failed.is_empty(), "{}: {count} of {total} checks failed: {failed:?}", home.name);
    eprintln!("{}: {total} checks hold", home.name);
}

#[test]
fn a_real_kube_apiserver_conforms() {
    run(&Home::kubernetes().unwrap(), &checks());
}

#[test]
fn the_hub_conforms() {
    let checks = [checks(), reads::HUB_CHECKS.to_vec(), refusals::HUB_CHECKS.to_vec()].concat();
    run(&Home::hub().unwrap(), &checks);
}
