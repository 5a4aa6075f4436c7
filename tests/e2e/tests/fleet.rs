//! The kit's fleet: simulated machines against a real API server.

use machinist_e2e::cpu_load::CpuLoad;
use machinist_e2e::fleet::{ANNOTATION_PREFIX, FleetSpec, MachineBehaviour};
use machinist_e2e::rollout_checker::{ReactionTime, WatchLog, check};
use machinist_e2e::{Cluster, Fleet, measurements, wait_with_timeout};
use std::time::{Duration, Instant};

#[test]
fn machines_that_fail_crash_and_lose_responses_converge() {
    let cluster = Cluster::start().unwrap();
    let behaviour = MachineBehaviour {
        apply: 0..=50,
        reboot: Some(0..=50),
        failure: 20,
        crash: 20,
        lost_response: 20,
        ..MachineBehaviour::default()
    };
    let fleet_spec =
        FleetSpec { machines: 60, behaviour, watch_per_machine: true, ..FleetSpec::default() };
    let fleet = Fleet::start(cluster.client(), fleet_spec).unwrap();
    fleet.target_all("rendered-worker-1").unwrap();
    wait_with_timeout(Duration::from_secs(60), "the fleet to arrive", || {
        Ok(fleet.progress("rendered-worker-1")? == (60, 0))
    })
    .unwrap();
}

/// The budget: 5,000 machines within 2 GB and at least 500 updates per second.
#[test]
fn five_thousand_machines_stay_within_their_budget() {
    const MACHINES: usize = 5000;
    let cluster = Cluster::start().unwrap();
    let fleet_spec = FleetSpec { machines: MACHINES, ..FleetSpec::default() };
    let start = Instant::now();
    let fleet = Fleet::start(cluster.client(), fleet_spec).unwrap();
    let made = start.elapsed();
    let load = CpuLoad::start(cluster.processes());
    fleet.target_all("rendered-worker-1").unwrap();
    wait_with_timeout(Duration::from_secs(120), "the fleet to arrive", || {
        // Each machine writes twice. Listing them all is too expensive before that.
        Ok(fleet.updates() >= 2 * MACHINES as u64
            && fleet.progress("rendered-worker-1")? == (MACHINES, 0))
    })
    .unwrap();
    let (took, share) = (load.elapsed(), load.available_share());
    let updates = fleet.updates() as f64 + MACHINES as f64;
    let (etcd, api) = cluster.memory();
    let own = machinist_e2e::fleet::process_memory();
    // Other load slows the host down, so the rate is scaled to an otherwise idle host.
    let rate = updates / took.as_secs_f64();
    let alone = rate / share;
    let megabytes = |bytes: u64| bytes / 1024 / 1024;
    let summary = format!(
        "{updates} updates in {took:.1?} = {rate:.0}/s with {:.0} % of the machine = {alone:.0}/s; \
         etcd {} MB, kube-apiserver {} MB, fleet {} MB; made in {made:.1?}",
        share * 100.0,
        megabytes(etcd),
        megabytes(api),
        megabytes(own)
    );
    println!("{summary}");
    measurements::record("fleet-of-5000", summary).unwrap();
    assert!(etcd + api + own < 2 * 1024 * 1024 * 1024, "too much memory");
    assert!(alone >= 500.0, "only {alone:.0} updates a second");
}

/// A pool for simulated workers.
fn pool(config: &str) -> String {
    format!(
        r#"{{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {{"name": "worker"}}, "spec": {{"maxUnavailable": 2,
        "nodeSelector": {{"matchLabels": {{"node-role.kubernetes.io/worker": ""}}}},
        "machineConfigSelector": {{"matchLabels": {{"role": "worker"}}}},
        "configuration": {{"name": "{config}"}}}}}}"#
    )
}

#[test]
fn the_checker_detects_a_rule_violation() {
    let cluster = Cluster::start().unwrap();
    cluster.install_published_crds().unwrap();
    cluster.apply(&pool("rendered-worker-0")).unwrap();
    let fleet =
        Fleet::start(cluster.client(), FleetSpec { machines: 6, ..FleetSpec::default() }).unwrap();
    let log = WatchLog::start(&cluster.client()).unwrap();
    cluster.apply(&pool("rendered-worker-1")).unwrap();
    for (n, name) in fleet.names().iter().enumerate() {
        let desired = format!("{ANNOTATION_PREFIX}/desiredConfig=rendered-worker-1");
        cluster.kubectl(&["annotate", "--overwrite", "node", name, &desired]).unwrap();
        wait_with_timeout(Duration::from_secs(30), "the machine to arrive", || {
            Ok(fleet.progress("rendered-worker-1")?.0 == n + 1)
        })
        .unwrap();
    }
    assert_eq!(check(&log.stop().unwrap(), ReactionTime::default()), []);

    let log = WatchLog::start(&cluster.client()).unwrap();
    fleet.target_all("rendered-worker-2").unwrap();
    wait_with_timeout(Duration::from_secs(30), "the fleet to arrive", || {
        Ok(fleet.progress("rendered-worker-2")?.0 == 6)
    })
    .unwrap();
    let broken = check(&log.stop().unwrap(), ReactionTime::default());
    assert!(broken.iter().any(|violation| violation.rule.contains("the pool's config")));
}
