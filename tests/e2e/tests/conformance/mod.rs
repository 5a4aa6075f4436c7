//! One suite, two API servers: the same requests to a real kube-apiserver and to the hub. Where they differ, the hub is
//! wrong.
mod compression;
mod definitions;
mod details;
mod go_client;
mod kubectl;
mod objects;
mod old_kubectl;
mod patches;
mod rbac;
mod reads;
mod rejections;
mod server_side_apply;

use machinist_e2e::api_server::{self, ApiServer};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What must hold on any API server.
type ConformanceCheck = (&'static str, fn(&ApiServer));

fn checks() -> Vec<ConformanceCheck> {
    let groups: [&[ConformanceCheck]; 9] = [
        objects::CHECKS,
        patches::CHECKS,
        reads::CHECKS,
        rejections::CHECKS,
        kubectl::CHECKS,
        details::CHECKS,
        definitions::CHECKS,
        go_client::CHECKS,
        compression::CHECKS,
    ];
    groups.concat()
}

/// Runs every check and reports all failures, not only the first.
fn run(api_server: &ApiServer, checks: &[ConformanceCheck]) {
    let failed: Vec<&str> = checks
        .iter()
        .filter(|(_, check)| catch_unwind(AssertUnwindSafe(|| check(api_server))).is_err())
        .map(|(name, _)| *name)
        .collect();
    let (total, count) = (checks.len(), failed.len());
    assert!(failed.is_empty(), "{}: {count} of {total} checks failed: {failed:?}", api_server.name);
    eprintln!("{}: {total} checks hold", api_server.name);
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
