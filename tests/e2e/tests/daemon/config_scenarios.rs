//! The life of one machine: every kind of change, a rejection, a modified disk, and `leave`.

use super::fixture::{ANNOTATION_PREFIX, HubFixture, differences, file, files, snapshot_trees};
use machinist_e2e::{Machine, measurements, wait_for};
use serde_json::{Value, json};
use std::time::Instant;

const OLD: &str = "server foo.example.net maxdelay 0.4 offline\n";
const NEW: &str = "server bar.example.net maxdelay 0.4 offline\n";
const SHOW: &str = "[Unit]\nDescription=shows its environment\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'echo $WORD >/run/word'\n[Install]\nWantedBy=multi-user.target\n";

fn read(machine: &Machine, path: &str) -> String {
    String::from_utf8(machine.read_file(path).unwrap()).unwrap()
}

fn dropin(word: &str) -> Value {
    json!([{"name": "10-word.conf", "contents": format!("[Service]\nEnvironment=WORD={word}\n")}])
}

fn show(word: &str) -> Value {
    json!({"systemd": {"units": [
        {"name": "show.service", "enabled": true, "contents": SHOW, "dropins": dropin(word)},
        {"name": "sleepy.service", "mask": true},
    ]}})
}

#[test]
fn a_machine_applies_configs_and_leaves_unchanged() {
    let fixture = HubFixture::start();
    let machine = fixture.machine("a");
    let before = snapshot_trees(&machine);
    fixture.join(&machine);
    fixture.wait_done(&machine, "mco-empty-mc");
    chrony(&fixture, &machine);
    units(&fixture, &machine);
    keys(&fixture, &machine);
    deferred_restart(&fixture, &machine);
    rejected_change(&fixture, &machine);
    drift(&fixture, &machine);
    health_gate_rollback(&fixture, &machine);
    rollback_without_api_server(&fixture, &machine);
    unexpected_disk_state(&fixture, &machine);
    paused_and_withdrawn(&fixture, &machine);
    assert!(machine.failed_units().unwrap().is_empty(), "{:?}", machine.failed_units());
    let output = machine.sh("machinist leave -o json").unwrap();
    let output: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(output["node"], "removed");
    assert_eq!(differences(&before, &snapshot_trees(&machine)), Vec::<String>::new());
    assert!(!machine.exists("/var/lib/machinist").unwrap());
    let gone = machinist_e2e::block_on(fixture.nodes().get_opt("a")).unwrap();
    assert!(gone.is_none(), "{gone:?}");
}

/// With a policy a service is reloaded; without one the machine reboots.
fn chrony(fixture: &HubFixture, machine: &Machine) {
    let reload = json!([{"type": "Reload", "reload": {"serviceName": "timekeeper.service"}}]);
    fixture.set_node_disruption_policy(&json!({"files": [
        {"path": "/etc/timekeeper.conf", "actions": reload},
        {"path": "/etc/motd", "actions": [{"type": "None"}]},
    ]}));
    let boots = machine.boots();
    let start = Instant::now();
    let motd = file("/etc/motd", "ours\n");
    let config = fixture
        .apply_config("50-files", &files(&[file("/etc/timekeeper.conf", OLD), motd.clone()]));
    fixture.wait_done(machine, &config);
    measurements::record("daemon-declared-to-done", format!("{:?}", start.elapsed())).unwrap();
    assert_eq!(read(machine, "/etc/timekeeper.conf"), OLD);
    assert_eq!(read(machine, "/var/reloads"), "reloaded\n");
    assert_eq!(machine.boots(), boots);
    assert_eq!(fixture.annotation("a", "reason"), "");
    wait_for("all that is to be reported", || Ok(fixture.condition("a", "Updated") == "True"))
        .unwrap();

    fixture.set_node_disruption_policy(
        &json!({"files": [{"path": "/etc/motd", "actions": [{"type": "None"}]}]}),
    );
    let config =
        fixture.apply_config("50-files", &files(&[file("/etc/timekeeper.conf", NEW), motd]));
    fixture.wait_done(machine, &config);
    assert_eq!(machine.boots(), boots + 1);
    assert_eq!(read(machine, "/etc/timekeeper.conf"), NEW);
    assert_eq!(read(machine, "/var/reloads"), "reloaded\n");
    assert_eq!(fixture.annotation("a", "lastAppliedDrain"), format!("uncordon-{config}"));
    assert_eq!(fixture.annotation("a", "post-config-action"), "");
    wait_for("all that is to be reported", || Ok(fixture.condition("a", "Updated") == "True"))
        .unwrap();
    let events = fixture.events("a");
    let order = ["ServiceReload", "NodeDone", "Cordon", "Drain", "Reboot", "Uncordon", "NodeDone"];
    let mut rest = events.iter();
    for reason in order {
        assert!(rest.any(|event| event == reason), "no {reason} in its place: {events:?}");
    }
}

/// A unit with a drop-in is added, changed and removed; another one is masked.
fn units(fixture: &HubFixture, machine: &Machine) {
    let config = fixture.apply_config("60-units", &show("first"));
    fixture.wait_done(machine, &config);
    machine.wait_for("the unit to run", |m| m.exists("/run/word")).unwrap();
    assert_eq!(read(machine, "/run/word"), "first\n");
    assert_eq!(machine.sh("systemctl is-enabled show.service").unwrap(), "enabled\n");
    let masked = machine.exec(&["systemctl", "is-enabled", "sleepy.service"]).unwrap();
    assert_eq!(masked.stdout_trimmed(), "masked");

    let actions = json!([
        {"type": "DaemonReload"}, {"type": "Restart", "restart": {"serviceName": "show.service"}},
    ]);
    fixture.set_node_disruption_policy(&json!({"units": [
        {"name": "show.service", "actions": actions},
        {"name": "sleepy.service", "actions": [{"type": "None"}]},
    ]}));
    let boots = machine.boots();
    let config = fixture.apply_config("60-units", &show("second"));
    fixture.wait_done(machine, &config);
    assert_eq!(read(machine, "/run/word"), "second\n");
    assert_eq!(machine.boots(), boots);

    // A failed action rolls the change back.
    let bad = json!([{"type": "Reload", "reload": {"serviceName": "nothing.service"}}]);
    fixture.set_node_disruption_policy(&json!({"units": [
        {"name": "show.service", "actions": bad},
        {"name": "sleepy.service", "actions": [{"type": "None"}]},
    ]}));
    let third = fixture.apply_config("60-units", &show("third"));
    fixture.wait_state(machine, "Degraded", |fixture, name| {
        let reason = fixture.annotation(name, "reason");
        anyhow::ensure!(reason.contains("reloading nothing.service configuration failed"), reason);
        Ok(true)
    });
    let dropin = "/etc/systemd/system/show.service.d/10-word.conf";
    machine.wait_for("the rollback", |m| Ok(read(m, dropin).contains("second"))).unwrap();
    fixture.set_node_disruption_policy(&json!({"units": [
        {"name": "show.service", "actions": actions},
        {"name": "sleepy.service", "actions": [{"type": "None"}]},
    ]}));
    fixture.wait_done(machine, &third);
    assert_eq!(read(machine, "/run/word"), "third\n");
    let config = fixture.delete_config("60-units");
    fixture.wait_state(machine, "Degraded", |_, _| Ok(true));
    // A service that does not exist cannot be restarted; the administrator forces the change.
    fixture.set_node_disruption_policy(&json!({"units": [
        {"name": "show.service", "actions": [{"type": "DaemonReload"}]},
        {"name": "sleepy.service", "actions": [{"type": "None"}]},
    ]}));
    fixture.wait_done(machine, &config);
    assert!(!machine.exists(dropin).unwrap());
    assert!(!machine.exists("/etc/systemd/system/sleepy.service").unwrap());
    assert_eq!(machine.boots(), boots);
}

/// SSH keys of `core` need no reboot, and allow a login.
fn keys(fixture: &HubFixture, machine: &Machine) {
    machine
        .sh("ssh-keygen -q -t ed25519 -N '' -f /root/key && ssh-keygen -A && systemctl start ssh.service")
        .unwrap();
    let key = read(machine, "/root/key.pub");
    let user = json!({"name": "core", "sshAuthorizedKeys": [key.trim()]});
    let boots = machine.boots();
    let config = fixture.apply_config("70-keys", &json!({"passwd": {"users": [user]}}));
    fixture.wait_done(machine, &config);
    assert_eq!(machine.boots(), boots);
    let login = "ssh -i /root/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null core@127.0.0.1 id -un";
    assert_eq!(machine.sh(login).unwrap(), "core\n");
    machine.sh("systemctl stop ssh.service; rm -f /root/key* /etc/ssh/ssh_host_*").unwrap();
    let config = fixture.delete_config("70-keys");
    fixture.wait_done(machine, &config);
}

/// With a deferred reboot the files are in place, and somebody must allow the reboot.
fn deferred_restart(fixture: &HubFixture, machine: &Machine) {
    let reboot = "machinist.dev/reboot";
    fixture.patch_pool(&json!({"metadata": {"annotations": {reboot: "deferred"}}}));
    let (boots, old) = (machine.boots(), fixture.annotation("a", "currentConfig"));
    let config = fixture.apply_config("80-later", &files(&[file("/etc/later", "later\n")]));
    fixture.wait_state(machine, "Working", |fixture, name| {
        Ok(fixture.annotation(name, "machinist.dev/restart-pending") == config)
    });
    assert_eq!(read(machine, "/etc/later"), "later\n");
    assert_eq!((machine.boots(), fixture.annotation("a", "currentConfig")), (boots, old));
    let status = machine.sh("machinist daemon status -o json").unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["pending"]["needsRestart"], true, "{status}");
    assert!(fixture.machinist(&["reboot", "a"]).succeeded());
    fixture.wait_done(machine, &config);
    assert_eq!(machine.boots(), boots + 1);
    assert_eq!(fixture.annotation("a", "machinist.dev/restart-pending"), "");
    fixture.patch_pool(&json!({"metadata": {"annotations": {reboot: Value::Null}}}));
}

/// What cannot change in place is refused, and nothing is written.
fn rejected_change(fixture: &HubFixture, machine: &Machine) {
    fixture.patch_pool(&json!({"spec": {"paused": true}}));
    let good = fixture.annotation("a", "currentConfig");
    let tree = snapshot_trees(machine);
    let config = json!({"storage": {"directories": [{"path": "/etc/directory"}],
        "files": [file("/etc/never", "never\n")]}});
    fixture.create_unselected_config("refused", &config);
    fixture.annotate("a", &[("desiredConfig", "refused")]);
    fixture.wait_state(machine, "Unreconcilable", |fixture, name| {
        let reason = fixture.annotation(name, "reason");
        let expected = format!("can't reconcile config {good} with refused: ");
        anyhow::ensure!(reason.starts_with(&expected), reason);
        anyhow::ensure!(reason.contains("ignition directories section contains changes"), reason);
        Ok(true)
    });
    assert_eq!(differences(&tree, &snapshot_trees(machine)), Vec::<String>::new());
    let status = machine.exec(&["machinist", "daemon", "status"]).unwrap();
    assert_eq!(status.code, 3, "{status:?}");
    assert!(status.stdout.contains("Unreconcilable"), "{status:?}");
    let plan = machine.exec(&[
        "machinist",
        "daemon",
        "plan",
        "--kubeconfig",
        "/var/lib/machinist/kubeconfig",
    ]);
    let plan = plan.unwrap();
    assert_eq!(plan.code, 3, "{plan:?}");
    fixture.annotate("a", &[("desiredConfig", &good)]);
    fixture.wait_done(machine, &good);
    fixture.patch_pool(&json!({"spec": {"paused": false}}));
}

/// A manual change is detected as drift and, with a policy, reverted.
fn drift(fixture: &HubFixture, machine: &Machine) {
    let (boots, config) = (machine.boots(), fixture.annotation("a", "currentConfig"));
    let degraded = |mismatch: &str| {
        fixture.wait_state(machine, "Degraded", |fixture, name| {
            let reason = fixture.annotation(name, "reason");
            anyhow::ensure!(reason.contains(mismatch), reason);
            Ok(true)
        });
    };
    machine.sh("cp -a /etc/later /run/later && echo drifted >>/etc/later").unwrap();
    degraded("content mismatch for file \"/etc/later\"");
    let status = machine.exec(&["machinist", "daemon", "status"]).unwrap();
    assert_eq!(status.code, 3, "{status:?}");
    assert!(status.stdout.contains("content mismatch"), "{status:?}");
    machine.sh("cp -a /run/later /etc/later").unwrap();
    fixture.wait_done(machine, &config);
    assert_eq!(fixture.annotation("a", "reason"), "");
    machine.sh("chmod 600 /etc/later").unwrap();
    degraded("mode mismatch for file: \"/etc/later\"");
    fixture.annotate("a", &[("machinist.dev/drift", "heal")]);
    fixture.wait_done(machine, &config);
    assert_eq!(machine.sh("stat -c %a /etc/later").unwrap(), "644\n");
    machine.sh("rm /etc/later && ln -s /etc/shadow /etc/later").unwrap();
    machine
        .wait_for("the file to be put right", |m| Ok(read(m, "/etc/later") == "later\n"))
        .unwrap();
    fixture.wait_done(machine, &config);
    fixture.annotate("a", &[("machinist.dev/drift", "report")]);
    let events = fixture.events("a");
    for reason in ["ConfigDriftMonitorStarted", "ConfigDriftDetected", "ConfigDriftHealed"] {
        assert!(events.iter().any(|event| event == reason), "no {reason}: {events:?}");
    }
    assert_eq!(machine.boots(), boots);
}

/// A machine that is unhealthy on a config rolls back by itself, even through a reboot, and does not retry until it is
/// asked to.
fn health_gate_rollback(fixture: &HubFixture, machine: &Machine) {
    let (boots, good) = (machine.boots(), fixture.annotation("a", "currentConfig"));
    let health = "deadline: 3s\nstable: 0s\ncommands:\n- run: [/bin/test, -e, /var/well]\n";
    let gated = files(&[file("/etc/machinist/health.yaml", health), file("/etc/gated", "gated\n")]);
    let config = fixture.apply_config("82-gated", &gated);
    fixture.wait_state(machine, "Degraded", |fixture, name| {
        let reason = fixture.annotation(name, "reason");
        let expected = format!("health check failed on {config}: command /bin/test -e /var/well");
        anyhow::ensure!(reason.contains(&expected), reason);
        anyhow::ensure!(fixture.annotation(name, "lastAppliedDrain") == format!("uncordon-{good}"));
        Ok(true)
    });
    assert_eq!(machine.boots(), boots + 2);
    assert!(!machine.exists("/etc/gated").unwrap());
    assert_eq!(fixture.annotation("a", "currentConfig"), good);
    // It is healthy now, and the administrator requests a retry.
    machine.sh("touch /var/well").unwrap();
    fixture.annotate("a", &[("machinist.dev/retry", &config)]);
    fixture.wait_done(machine, &config);
    assert_eq!(machine.boots(), boots + 3);
    assert_eq!(read(machine, "/etc/gated"), "gated\n");
    assert_eq!(fixture.annotation("a", "machinist.dev/retry"), "");
    let config = fixture.delete_config("82-gated");
    fixture.wait_done(machine, &config);
}

/// A machine that cannot reach the API server after a reboot rolls back without it.
fn rollback_without_api_server(fixture: &HubFixture, machine: &Machine) {
    let (boots, good) = (machine.boots(), fixture.annotation("a", "currentConfig"));
    let health = "deadline: 3s\nstable: 0s\napi: true\n";
    let cut = files(&[file("/etc/machinist/health.yaml", health), file("/etc/cut", "cut\n")]);
    let config = fixture.apply_config("83-cut", &cut);
    // The last thing that it reports before it reboots.
    wait_for("the machine to go down", || Ok(!fixture.is_ready("a"))).unwrap();
    machine.link_down().unwrap();
    wait_for("the machine to go back", || Ok(machine.boots() == boots + 2)).unwrap();
    machine.link_up().unwrap();
    fixture.wait_state(machine, "Degraded", |fixture, name| {
        let reason = fixture.annotation(name, "reason");
        let expected = format!("health check failed on {config}: API");
        anyhow::ensure!(reason.contains(&expected), reason);
        anyhow::ensure!(fixture.annotation(name, "lastAppliedDrain") == format!("uncordon-{good}"));
        Ok(true)
    });
    assert_eq!(machine.boots(), boots + 2);
    assert!(!machine.exists("/etc/cut").unwrap());
    let config = fixture.delete_config("83-cut");
    fixture.wait_done(machine, &config);
    assert_eq!(machine.boots(), boots + 2);
}

/// A disk with an unexpected state is not changed until it is repaired or the change is forced.
fn unexpected_disk_state(fixture: &HubFixture, machine: &Machine) {
    let boots = machine.boots();
    machine.sh("systemctl stop machinist-daemon.service; echo spoiled >/etc/later").unwrap();
    let config = fixture.apply_config("81-more", &files(&[file("/etc/more", "more\n")]));
    let wanted = || Ok(fixture.annotation("a", "desiredConfig") == config);
    wait_for("the config to be wanted of the machine", wanted).unwrap();
    machine.sh("systemctl start machinist-daemon.service").unwrap();
    fixture.wait_state(machine, "Degraded", |fixture, name| {
        let reason = fixture.annotation(name, "reason");
        anyhow::ensure!(reason.starts_with("unexpected on-disk state validating against"), reason);
        anyhow::ensure!(reason.ends_with("content mismatch for file \"/etc/later\""), reason);
        Ok(true)
    });
    assert!(!machine.exists("/etc/more").unwrap());
    machine.sh("touch /run/machine-config-daemon-force").unwrap();
    fixture.wait_done(machine, &config);
    assert_eq!(machine.boots(), boots + 1);
    assert_eq!(read(machine, "/etc/later"), "later\n");
    assert_eq!(read(machine, "/etc/more"), "more\n");
    assert!(!machine.exists("/run/machine-config-daemon-force").unwrap());
}

/// Nothing happens while the pool is paused; what a config no longer manages is restored.
fn paused_and_withdrawn(fixture: &HubFixture, machine: &Machine) {
    fixture.set_node_disruption_policy(
        &json!({"files": [{"path": "/etc", "actions": [{"type": "None"}]}]}),
    );
    fixture.patch_pool(&json!({"spec": {"paused": true}}));
    let before = fixture.annotation("a", "currentConfig");
    let paused = fixture.apply_config("50-files", &files(&[file("/etc/timekeeper.conf", NEW)]));
    // The explanation shows that the controller has seen it.
    let waits = || {
        let output = fixture.machinist(&["rollout", "explain", "worker", "-o", "json"]);
        let output: Value = serde_json::from_str(&output.stdout)?;
        Ok(output["waiting"]["a"]["reason"] == "poolPaused")
    };
    wait_for("the machine to wait for its pool", waits).unwrap();
    assert_eq!(fixture.annotation("a", "desiredConfig"), before);
    assert_eq!(read(machine, "/etc/motd"), "ours\n");
    fixture.patch_pool(&json!({"spec": {"paused": false}}));
    fixture.wait_done(machine, &paused);
    assert_eq!(read(machine, "/etc/motd"), "as it was packaged\n");
    assert!(fixture.annotation("a", "state") == "Done", "{ANNOTATION_PREFIX}");
}
