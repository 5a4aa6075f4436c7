//! Three machines, one at a time.

use super::fixture::{ANNOTATION_PREFIX, HubFixture, file, files};
use machinist_e2e::rollout_checker::{ReactionTime, check};
use machinist_e2e::{Machine, WatchLog, measurements};
use serde_json::{Value, json};
use std::fs;
use std::thread;
use std::time::Instant;

#[test]
fn three_machines_update_one_at_a_time() {
    let fixture = HubFixture::start();
    let machines: Vec<_> = thread::scope(|scope| {
        let names = ["a", "b", "c"];
        let booting: Vec<_> = names.map(|name| scope.spawn(|| fixture.machine(name))).into();
        booting.into_iter().map(|machine| machine.join().unwrap()).collect()
    });
    let (by_hand, others) = machines.split_first().unwrap();
    join_by_hand(&fixture, by_hand);
    for machine in others {
        fixture.join(machine);
    }
    for machine in &machines {
        fixture.wait_done(machine, "mco-empty-mc");
    }
    let log = WatchLog::start(&fixture.client).unwrap();
    let start = Instant::now();
    let config = fixture.apply_config("50-file", &files(&[file("/etc/rolled", "out\n")]));
    for machine in &machines {
        fixture.wait_done(machine, &config);
    }
    measurements::record("daemon-three-machines-rebooted", format!("{:?}", start.elapsed()))
        .unwrap();
    for machine in &machines {
        assert_eq!(machine.read_file("/etc/rolled").unwrap(), b"out\n");
        assert_eq!(machine.boots(), 2);
    }
    new_machine(&fixture, &config);
    let violations = check(&log.stop().unwrap(), ReactionTime::default());
    assert!(violations.is_empty(), "{violations:?}");
}

/// An administrator joins a machine with a kubeconfig, which does not stay on the machine.
fn join_by_hand(fixture: &HubFixture, machine: &Machine) {
    let kubeconfig = fs::read(&fixture.kubeconfig).unwrap();
    machine.write_file("/run/admin.kubeconfig", &kubeconfig).unwrap();
    machine.sh("machinist join --kubeconfig /run/admin.kubeconfig --role worker").unwrap();
    let own = machine.read_file("/var/lib/machinist/kubeconfig").unwrap();
    let own: Value = serde_json::from_slice(&own).unwrap();
    let certificate = own["users"][0]["user"]["client-certificate-data"].as_str().unwrap();
    assert!(!String::from_utf8(kubeconfig).unwrap().contains(certificate));
    assert_eq!(machine.sh("stat -c %a /var/lib/machinist/kubeconfig").unwrap(), "600\n");
    let again = machine.sh("machinist join --kubeconfig /run/admin.kubeconfig").unwrap();
    assert!(again.contains("nothing is to be repaired"), "{again}");
}

/// A machine that was installed with the pool's config adopts it and does not reboot.
fn new_machine(fixture: &HubFixture, config: &str) {
    let machine = fixture.machine("d");
    let name = |key: &str| format!("{ANNOTATION_PREFIX}/{key}");
    let annotations = json!({
        name("currentConfig"): config, name("desiredConfig"): config, name("state"): "Done",
    });
    let dir = "/etc/machine-config-daemon";
    machine.write_file(&format!("{dir}/node-annotations.json"), annotations.to_string()).unwrap();
    machine.write_file("/etc/rolled", "out\n").unwrap();
    fixture.join(&machine);
    fixture.wait_done(&machine, config);
    machine
        .wait_for("the first boot to end", |m| m.exists(&format!("{dir}/node-annotation.json.bak")))
        .unwrap();
    let current = machine.read_file(&format!("{dir}/currentconfig")).unwrap();
    assert!(String::from_utf8(current).unwrap().contains(config));
    assert_eq!(machine.boots(), 1);
}
