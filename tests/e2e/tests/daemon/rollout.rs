//! Three machines, one at a time.

use super::site::{ANNOTATION_PREFIX, HubFixture, file, files};
use machinist_e2e::rollout_checker::{ReactionTime, check};
use machinist_e2e::{Machine, WatchLog, measurements};
use serde_json::{Value, json};
use std::fs;
use std::thread;
use std::time::Instant;

#[test]
fn three_machines_update_one_at_a_time() {
    let site = HubFixture::start();
    let machines: Vec<_> = thread::scope(|scope| {
        let names = ["a", "b", "c"];
        let booting: Vec<_> = names.map(|name| scope.spawn(|| site.machine(name))).into();
        booting.into_iter().map(|machine| machine.join().unwrap()).collect()
    });
    let (by_hand, others) = machines.split_first().unwrap();
    join_by_hand(&site, by_hand);
    for machine in others {
        site.join(machine);
    }
    for machine in &machines {
        site.wait_done(machine, "mco-empty-mc");
    }
    let log = WatchLog::start(&site.client).unwrap();
    let start = Instant::now();
    let config = site.apply_config("50-file", &files(&[file("/etc/rolled", "out\n")]));
    for machine in &machines {
        site.wait_done(machine, &config);
    }
    measurements::record("daemon-three-machines-rebooted", format!("{:?}", start.elapsed()))
        .unwrap();
    for machine in &machines {
        assert_eq!(machine.read_file("/etc/rolled").unwrap(), b"out\n");
        assert_eq!(machine.boots(), 2);
    }
    new_machine(&site, &config);
    let violations = check(&log.stop().unwrap(), ReactionTime::default());
    assert!(violations.is_empty(), "{violations:?}");
}

/// An administrator joins a machine with a kubeconfig, of which nothing stays on the machine.
fn join_by_hand(site: &HubFixture, machine: &Machine) {
    let kubeconfig = fs::read(&site.kubeconfig).unwrap();
    machine.write_file("/run/admin.kubeconfig", &kubeconfig).unwrap();
    machine.sh("machinist join --kubeconfig /run/admin.kubeconfig --role worker").unwrap();
    let own = machine.read_file("/var/lib/machinist/kubeconfig").unwrap();
    let own: Value = serde_json::from_slice(&own).unwrap();
    let certificate = own["users"][0]["user"]["client-certificate-data"].as_str().unwrap();
    assert!(!String::from_utf8(kubeconfig).unwrap().contains(certificate));
    assert_eq!(machine.sh("stat -c %a /var/lib/machinist/kubeconfig").unwrap(), "600\n");
    let again = machine.exec(&["machinist", "join", "--kubeconfig", "/run/admin.kubeconfig"]);
    let again = again.unwrap();
    assert!(again.code == 1 && again.stderr.contains("machinist leave first"), "{again:?}");
}

/// A machine that was installed with the pool's config takes it for its own, and does not restart.
fn new_machine(site: &HubFixture, config: &str) {
    let machine = site.machine("d");
    let name = |key: &str| format!("{ANNOTATION_PREFIX}/{key}");
    let annotations = json!({
        name("currentConfig"): config, name("desiredConfig"): config, name("state"): "Done",
    });
    let folder = "/etc/machine-config-daemon";
    machine
        .write_file(&format!("{folder}/node-annotations.json"), annotations.to_string())
        .unwrap();
    machine.write_file("/etc/rolled", "out\n").unwrap();
    site.join(&machine);
    site.wait_done(&machine, config);
    machine
        .wait_for("the first boot to end", |m| {
            m.exists(&format!("{folder}/node-annotation.json.bak"))
        })
        .unwrap();
    let current = machine.read_file(&format!("{folder}/currentconfig")).unwrap();
    assert!(String::from_utf8(current).unwrap().contains(config));
    assert_eq!(machine.boots(), 1);
}
