//! `machinist upgrade` on real machines: daemons replace themselves a few at a time, a binary that does not come up is
//! rolled back and stops the upgrade, and what is not the wished binary never runs.

mod fixture;
mod hostile;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fixture::{BINARY, UPGRADE, UpgradeFixture, digest, script};

/// How many machines have been asked and do not run a binary yet, at most, until the end.
fn most_at_once(fixture: &UpgradeFixture, sha256: &str, is_over: &AtomicBool) -> usize {
    let mut most = 0;
    while !is_over.load(Ordering::Relaxed) {
        let names = fixture.machines.iter().map(machinist_e2e::Machine::name);
        let is_upgrading = |name: &&str| {
            // In this order: one that has been asked may be done by now.
            fixture.hub.annotation(name, UPGRADE).contains(sha256) && fixture.runs(name) != sha256
        };
        most = most.max(names.filter(is_upgrading).count());
        thread::sleep(Duration::from_millis(50));
    }
    most
}

#[test]
fn daemons_upgrade_a_few_at_a_time_and_a_broken_one_is_rolled_back() {
    let fixture = UpgradeFixture::start(&["a", "b", "c"]);
    let hub = &fixture.hub;

    let newer = fixture.newer(b'2');
    let is_over = AtomicBool::new(false);
    let (output, most) = thread::scope(|scope| {
        let watcher = scope.spawn(|| most_at_once(&fixture, &digest(&newer), &is_over));
        let output = fixture.upgrade("worker", &newer, &[]);
        is_over.store(true, Ordering::Relaxed);
        (output, watcher.join().unwrap())
    });
    let logs = || fixture.machines.iter().map(|it| fixture.log(it)).collect::<String>();
    assert!(output.code == 0, "{output:?}\n{}", logs());
    assert!(output.stdout.contains("3 of 3 machines run it; done"), "{output:?}");
    assert_eq!(most, 1, "maxUnavailable is 1: {output:?}");
    for machine in &fixture.machines {
        fixture.wait_runs(machine, &newer);
        // The one before is kept, for a person who wants it back.
        let kept =
            machine.sh("sha256sum </var/lib/machinist/last-good/machinist.previous").unwrap();
        assert!(kept.starts_with(&digest(&fixture.first)), "{kept}");
        let events = hub.events(machine.name());
        for reason in ["DaemonUpgrading", "DaemonUpgraded"] {
            assert!(events.iter().any(|event| event == reason), "no {reason}: {events:?}");
        }
    }
    // The new daemons answer.
    let log = hub.machinist(&["logs", "a"]);
    assert!(log.code == 0 && log.stdout.contains("upgraded this daemon"), "{log:?}");

    // One that ends at once: the first machine returns to the last good one, and no other is asked.
    let broken = script("9.9.9", "exit 1");
    let output = fixture.upgrade("worker", &broken, &[]);
    assert!(output.code == 3, "{output:?}\n{}", logs());
    for part in [
        "0 of 3 machines run it; stopped until you act",
        "because it failed on",
        "it ends shortly after each start",
    ] {
        assert!(output.stdout.contains(part), "no {part:?}: {output:?}\n{}", logs());
    }
    let asked: Vec<&str> = fixture
        .machines
        .iter()
        .map(machinist_e2e::Machine::name)
        .filter(|name| hub.annotation(name, UPGRADE).contains(&digest(&broken)))
        .collect();
    let &[failed] = asked.as_slice() else { panic!("{asked:?}: {output:?}") };
    for machine in &fixture.machines {
        fixture.wait_runs(machine, &newer);
    }
    let events = hub.events(failed);
    for reason in ["DaemonUpgradeFailed", "DaemonRestored"] {
        assert!(events.iter().any(|event| event == reason), "no {reason}: {events:?}");
    }
    let status = hub.machinist(&["status", failed]);
    assert!(status.stdout.contains("the upgrade of its daemon failed"), "{status:?}");
    let status = hub.machinist(&["upgrade", "--status", "worker"]);
    assert!(status.stdout.contains("stopped until you act"), "{status:?}");

    // One machine of the pool cannot get another binary than its pool.
    let hanging = script("9.9.9", "exec sleep infinity");
    let refused = fixture.upgrade(failed, &hanging, &[]);
    assert!(refused.code == 3 && refused.stderr.contains("is in the pool worker"), "{refused:?}");
    assert_eq!(hub.machinist(&["upgrade", "worker", "--cancel"]).code, 0);
    // One that never comes up is replaced, too.
    let output = fixture.upgrade(failed, &hanging, &[]);
    let expected = "has not reached the API server in its time";
    assert!(output.code == 3 && output.stdout.contains(expected), "{output:?}\n{}", logs());
    fixture.wait_runs(fixture.machine(failed), &newer);

    // A power cut at any time leaves a daemon that runs, and the upgrade goes on.
    let machine = fixture.machine(failed);
    for (number, wait) in [0_u64, 700, 1500].into_iter().enumerate() {
        let next = fixture.newer(b'a' + u8::try_from(number).unwrap());
        let file = fixture.file("next", &next);
        let asked = hub.machinist(&["upgrade", failed, "--binary", &file]);
        assert_eq!(asked.code, 0, "{asked:?}");
        thread::sleep(Duration::from_millis(wait));
        machine.power_cut().unwrap();
        machine.power_on().unwrap();
        fixture.wait_runs(machine, &next);
    }
    assert!(machine.exists(BINARY).unwrap());
}
