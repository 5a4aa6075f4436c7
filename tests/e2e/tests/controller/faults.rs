//! What must hold while everything around the controller breaks: never more machines away than allowed, and the rollout
//! ends.

use super::site::{ControllerFixture, file};
use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use machinist_e2e::fleet::MachineBehaviour;
use machinist_e2e::{TcpProxy, block_on};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn machine_behaviour() -> MachineBehaviour {
    MachineBehaviour {
        apply: 20..=120,
        reboot: Some(20..=120),
        drain: true,
        failure: 10,
        crash: 10,
        lost_response: 20,
    }
}

fn populate(site: &mut ControllerFixture, machines: usize) {
    site.apply(&file("00-worker", "worker", "/etc/base", "base"));
    site.populate(machines, self::machine_behaviour());
    let patch = r#"{"spec": {"maxUnavailable": 3}}"#;
    site.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", patch]);
}

/// A rollout during which something happens, again and again until it is over.
fn rollout(
    site: &mut ControllerFixture,
    round: u32,
    mut trouble: impl FnMut(&mut ControllerFixture, u32),
) {
    let before = site.wait_for_new_config("worker", "");
    site.apply(&file("60-round", "worker", "/etc/round", &format!("round {round}")));
    let end = Instant::now() + Duration::from_secs(4);
    for n in 0.. {
        if Instant::now() >= end {
            break;
        }
        trouble(site, n);
    }
    site.wait_for_new_config("worker", &before);
    site.wait_updated("worker");
}

/// Controllers are killed every second or so, one stands by, and the lease changes hands. Their clocks are hours off,
/// each the other way.
#[test]
fn repeatedly_killed_controllers_finish_the_rollout() {
    let mut site = ControllerFixture::openshift();
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
    site.assert_no_violations();
}

/// The wire is slow and is cut, the API server and etcd are killed, and somebody else writes to the same machines.
#[test]
fn a_slow_and_restarting_api_server_does_not_lose_machines() {
    let mut site = ControllerFixture::openshift();
    site.kill_controller();
    let cluster = site.api_server.cluster().unwrap();
    let address = cluster.lab().loopback();
    let proxy = TcpProxy::start(&address, &format!("{address}:6443")).unwrap();
    let kubeconfig = cluster.kubeconfig_through(proxy.address()).unwrap();
    site.start_controller_with(&kubeconfig);
    populate(&mut site, 16);
    let stop = Arc::new(AtomicBool::new(false));
    let meddler = write_concurrently(&site, Arc::clone(&stop));
    proxy.set_delay(Duration::from_millis(100));
    rollout(&mut site, 0, |_, _| {
        thread::sleep(Duration::from_millis(700));
        proxy.disconnect_all();
    });
    proxy.set_delay(Duration::ZERO);
    rollout(&mut site, 1, |site, n| {
        let cluster = site.api_server.cluster().unwrap();
        match n {
            0 => cluster.restart_api().unwrap(),
            1 => cluster.restart_etcd().unwrap(),
            _ => thread::sleep(Duration::from_millis(500)),
        }
    });
    stop.store(true, Ordering::Relaxed);
    meddler.join().unwrap();
    site.assert_no_violations();
}

/// Writes an annotation of its own on all machines, in turn, all the time.
fn write_concurrently(site: &ControllerFixture, stop: Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let api: Api<Node> = Api::all(site.api_server.client());
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
