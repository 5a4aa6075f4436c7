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
mod rejections;

use machinist_e2e::api_server::{self, ApiServer};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What must hold in any home.
type ConformanceCheck = (&'static str, fn(&ApiServer));

fn checks() -> Vec<ConformanceCheck> {
    let rooms: [&[ConformanceCheck]; 6] = [
        objects::CHECKS,
        patches::CHECKS,
        reads::CHECKS,
        rejections::CHECKS,
        kubectl::CHECKS,
        details::CHECKS,
    ];
    rooms.concat()
}

/// Runs every check; all failures are told, not only the first.
fn run(home: &ApiServer, checks: &[ConformanceCheck]) {
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
    run(&ApiServer::kubernetes().unwrap(), &checks());
}

#[test]
fn the_hub_conforms() {
    let checks = [checks(), reads::HUB_CHECKS.to_vec(), rejections::HUB_CHECKS.to_vec()].concat();
    run(&ApiServer::hub().unwrap(), &checks);
}
