//! What must hold while everything around the controller fails: never more unavailable machines than allowed, and the
//! rollout completes.

use super::fixture::{ControllerFixture, file};
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

fn populate(fixture: &mut ControllerFixture, machines: usize) {
    fixture.apply(&file("00-worker", "worker", "/etc/base", "base"));
    fixture.populate(machines, self::machine_behaviour());
    let patch = r#"{"spec": {"maxUnavailable": 3}}"#;
    fixture.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", patch]);
}

/// A rollout during which a fault is injected repeatedly until it completes.
fn rollout(
    fixture: &mut ControllerFixture,
    round: u32,
    mut inject_fault: impl FnMut(&mut ControllerFixture, u32),
) {
    let before = fixture.wait_for_new_config("worker", "");
    fixture.apply(&file("60-round", "worker", "/etc/round", &format!("round {round}")));
    let end = Instant::now() + Duration::from_secs(4);
    for n in 0.. {
        if Instant::now() >= end {
            break;
        }
        inject_fault(fixture, n);
    }
    fixture.wait_for_new_config("worker", &before);
    fixture.wait_updated("worker");
}

/// Controllers are killed about once a second, one stands by, and the lease changes holders. Their clocks are hours
/// off, in opposite directions.
#[test]
fn repeatedly_killed_controllers_finish_the_rollout() {
    let mut fixture = ControllerFixture::openshift();
    fixture.start_controller();
    populate(&mut fixture, 24);
    for round in 0..3 {
        rollout(&mut fixture, round, |fixture, n| {
            // The oldest one is killed and a new one stands by.
            fixture.kill_controller();
            fixture.start_controller_at(if n % 2 == 0 { "+5h" } else { "-7h" });
            thread::sleep(Duration::from_millis(1300));
        });
    }
    fixture.assert_no_violations();
}

/// The connection is slow and is cut, the API server and etcd are killed, and another client writes to the same Nodes.
#[test]
fn a_slow_and_restarting_api_server_does_not_lose_machines() {
    let mut fixture = ControllerFixture::openshift();
    fixture.kill_controller();
    let cluster = fixture.api_server.cluster().unwrap();
    let address = cluster.lab().loopback();
    let proxy = TcpProxy::start(&address, &format!("{address}:6443")).unwrap();
    let kubeconfig = cluster.kubeconfig_through(proxy.address()).unwrap();
    fixture.start_controller_with(&kubeconfig);
    populate(&mut fixture, 16);
    let stop = Arc::new(AtomicBool::new(false));
    let meddler = write_concurrently(&fixture, Arc::clone(&stop));
    proxy.set_delay(Duration::from_millis(100));
    rollout(&mut fixture, 0, |_, _| {
        thread::sleep(Duration::from_millis(700));
        proxy.disconnect_all();
    });
    proxy.set_delay(Duration::ZERO);
    rollout(&mut fixture, 1, |fixture, n| {
        let cluster = fixture.api_server.cluster().unwrap();
        match n {
            0 => cluster.restart_api().unwrap(),
            1 => cluster.restart_etcd().unwrap(),
            _ => thread::sleep(Duration::from_millis(500)),
        }
    });
    stop.store(true, Ordering::Relaxed);
    meddler.join().unwrap();
    fixture.assert_no_violations();
}

/// Keeps writing its own annotation on all machines, one after the other.
fn write_concurrently(
    fixture: &ControllerFixture,
    stop: Arc<AtomicBool>,
) -> thread::JoinHandle<()> {
    let api: Api<Node> = Api::all(fixture.api_server.client());
    let names = fixture.fleet.as_ref().unwrap().names().to_vec();
    thread::spawn(move || {
        for (n, name) in names.iter().cycle().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let patch = json!({"metadata": {"annotations": {"meddler.example/n": n.to_string()}}});
            // An API server that restarts does not respond.
            let _: Result<_, _> =
                block_on(api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch)));
            thread::sleep(Duration::from_millis(5));
        }
    })
}
