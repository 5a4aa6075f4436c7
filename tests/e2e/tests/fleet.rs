//! The fleet room of the kit: simulated machines against a real API server.

use machinist_e2e::checker::{Slack, WatchLog, check};
use machinist_e2e::fleet::{Behaviour, PREFIX, Plan};
use machinist_e2e::load::Load;
use machinist_e2e::{Cluster, Fleet, figures, wait_within};
use std::time::{Duration, Instant};

#[test]
fn machines_that_fail_crash_and_lose_answers_arrive_all_the_same() {
    let cluster = Cluster::start().unwrap();
    let behaviour = Behaviour {
        apply: 0..=50,
        reboot: Some(0..=50),
        failure: 20,
        crash: 20,
        lost_answer: 20,
        ..Behaviour::default()
    };
    let plan = Plan { machines: 60, behaviour, own_watches: true, ..Plan::default() };
    let fleet = Fleet::start(cluster.client(), plan).unwrap();
    fleet.target_all("rendered-worker-1").unwrap();
    wait_within(Duration::from_secs(60), "the fleet to arrive", || {
        Ok(fleet.progress("rendered-worker-1")? == (60, 0))
    })
    .unwrap();
}

/// The figure: 5,000 machines within 2 GB and at least 500 updates a second.
#[test]
fn five_thousand_machines_stay_within_their_budget() {
    const MACHINES: usize = 5000;
    let cluster = Cluster::start().unwrap();
    let plan = Plan { machines: MACHINES, ..Plan::default() };
    let start = Instant::now();
    let fleet = Fleet::start(cluster.client(), plan).unwrap();
    let made = start.elapsed();
    let load = Load::start(cluster.processes());
    fleet.target_all("rendered-worker-1").unwrap();
    wait_within(Duration::from_secs(120), "the fleet to arrive", || {
        // Two writes each; listing them all is worth it only then.
        Ok(fleet.updates() >= 2 * MACHINES as u64
            && fleet.progress("rendered-worker-1")? == (MACHINES, 0))
    })
    .unwrap();
    let (took, share) = (load.elapsed(), load.share());
    let updates = fleet.updates() as f64 + MACHINES as f64;
    let (etcd, api) = cluster.memory();
    let own = machinist_e2e::fleet::own_memory();
    // Beside other work the machine is slower than it is: what it would give alone is what counts.
    let rate = updates / took.as_secs_f64();
    let alone = rate / share;
    let megabytes = |bytes: u64| bytes / 1024 / 1024;
    let figure = format!(
        "{updates} updates in {took:.1?} = {rate:.0}/s with {:.0} % of the machine = {alone:.0}/s; \
         etcd {} MB, kube-apiserver {} MB, fleet {} MB; made in {made:.1?}",
        share * 100.0,
        megabytes(etcd),
        megabytes(api),
        megabytes(own)
    );
    println!("{figure}");
    figures::record("fleet-of-5000", figure).unwrap();
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
fn the_checker_tells_a_careful_rollout_from_a_careless_one() {
    let cluster = Cluster::start().unwrap();
    cluster.install_published_crds().unwrap();
    cluster.apply(&pool("rendered-worker-0")).unwrap();
    let fleet = Fleet::start(cluster.client(), Plan { machines: 6, ..Plan::default() }).unwrap();
    let log = WatchLog::start(&cluster.client()).unwrap();
    cluster.apply(&pool("rendered-worker-1")).unwrap();
    for (n, name) in fleet.names().iter().enumerate() {
        let desired = format!("{PREFIX}/desiredConfig=rendered-worker-1");
        cluster.kubectl(&["annotate", "--overwrite", "node", name, &desired]).unwrap();
        wait_within(Duration::from_secs(30), "the machine to arrive", || {
            Ok(fleet.progress("rendered-worker-1")?.0 == n + 1)
        })
        .unwrap();
    }
    assert_eq!(check(&log.stop().unwrap(), Slack::default()), []);

    let log = WatchLog::start(&cluster.client()).unwrap();
    fleet.target_all("rendered-worker-2").unwrap();
    wait_within(Duration::from_secs(30), "the fleet to arrive", || {
        Ok(fleet.progress("rendered-worker-2")?.0 == 6)
    })
    .unwrap();
    let broken = check(&log.stop().unwrap(), Slack::default());
    assert!(broken.iter().any(|violation| violation.rule.contains("the pool's config")));
}
