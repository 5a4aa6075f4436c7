//! What must hold while everything around the controller breaks: never more machines away than allowed, and the rollout
//! ends.

use super::site::{Site, file};
use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use machinist_e2e::fleet::Behaviour;
use machinist_e2e::{Proxy, block_on};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn machines() -> Behaviour {
    Behaviour {
        apply: 20..=120,
        reboot: Some(20..=120),
        drain: true,
        failure: 10,
        crash: 10,
        lost_answer: 20,
    }
}

fn populate(site: &mut Site, machines: usize) {
    site.apply(&file("00-worker", "worker", "/etc/base", "base"));
    site.populate(machines, self::machines());
    let patch = r#"{"spec": {"maxUnavailable": 3}}"#;
    site.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", patch]);
}

/// A rollout during which something happens, again and again until it is over.
fn rollout(site: &mut Site, round: u32, mut trouble: impl FnMut(&mut Site, u32)) {
    let before = site.rendered("worker", "");
    site.apply(&file("60-round", "worker", "/etc/round", &format!("round {round}")));
    let end = Instant::now() + Duration::from_secs(4);
    for n in 0.. {
        if Instant::now() >= end {
            break;
        }
        trouble(site, n);
    }
    site.rendered("worker", &before);
    site.updated("worker");
}

/// Controllers are killed every second or so, one stands by, and the lease changes hands. Their clocks are hours off,
/// each the other way.
#[test]
fn controllers_that_are_killed_again_and_again_lose_no_machine() {
    let mut site = Site::openshift();
    site.start_controller();
    populate(&mut site, 24);
    for round in 0..3 {
        rollout(&mut site, round, |site, n| {
            // The oldest dies; a new one stands by.
            site.kill_controller();
            site.start_controller_at(if n % 2 == 0 { "+5h" } else { "-7h" });
            thread::sleep(Duration::from_millis(1300));
        });
    }
    site.nothing_was_broken();
}

/// The wire is slow and is cut, the API server and etcd are killed, and somebody else writes to the same machines.
#[test]
fn an_api_that_is_slow_is_cut_and_restarts_loses_no_machine() {
    let mut site = Site::openshift();
    site.kill_controller();
    let cluster = site.home.cluster().unwrap();
    let address = cluster.lab().loopback();
    let proxy = Proxy::start(&address, &format!("{address}:6443")).unwrap();
    let kubeconfig = cluster.kubeconfig_through(proxy.address()).unwrap();
    site.start_controller_with(&kubeconfig);
    populate(&mut site, 16);
    let stop = Arc::new(AtomicBool::new(false));
    let meddler = meddle(&site, Arc::clone(&stop));
    proxy.slow(Duration::from_millis(100));
    rollout(&mut site, 0, |_, _| {
        thread::sleep(Duration::from_millis(700));
        proxy.cut();
    });
    proxy.slow(Duration::ZERO);
    rollout(&mut site, 1, |site, n| {
        let cluster = site.home.cluster().unwrap();
        match n {
            0 => cluster.restart_api().unwrap(),
            1 => cluster.restart_etcd().unwrap(),
            _ => thread::sleep(Duration::from_millis(500)),
        }
    });
    stop.store(true, Ordering::Relaxed);
    meddler.join().unwrap();
    site.nothing_was_broken();
}

/// Writes an annotation of its own on all machines, in turn, all the time.
fn meddle(site: &Site, stop: Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let api: Api<Node> = Api::all(site.home.client());
    let names = site.fleet.as_ref().unwrap().names().to_vec();
    thread::spawn(move || {
        for (n, name) in names.iter().cycle().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let patch = json!({"metadata": {"annotations": {"meddler.example/n": n.to_string()}}});
            // An API server that restarts does not answer.
            let _: Result<_, _> =
                block_on(api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch)));
            thread::sleep(Duration::from_millis(5));
        }
    })
}
