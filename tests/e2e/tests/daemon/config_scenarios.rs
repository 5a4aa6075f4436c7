//! The life of one machine: every kind of change, a refusal, a spoiled disk, and the way out.

use super::site::{ANNOTATION_PREFIX, HubFixture, differences, file, files, snapshot_trees};
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
    let site = HubFixture::start();
    let machine = site.machine("a");
    let before = snapshot_trees(&machine);
    site.join(&machine);
    site.wait_done(&machine, "mco-empty-mc");
    chrony(&site, &machine);
    units(&site, &machine);
    keys(&site, &machine);
    deferred_restart(&site, &machine);
    rejected_change(&site, &machine);
    drift(&site, &machine);
    health_gate_rollback(&site, &machine);
    rollback_without_api_server(&site, &machine);
    unexpected_disk_state(&site, &machine);
    paused_and_withdrawn(&site, &machine);
    assert!(machine.failed_units().unwrap().is_empty(), "{:?}", machine.failed_units());
    let said = machine.sh("machinist leave -o json").unwrap();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["node"], "removed");
    assert_eq!(differences(&before, &snapshot_trees(&machine)), Vec::<String>::new());
    assert!(!machine.exists("/var/lib/machinist").unwrap());
    let gone = machinist_e2e::block_on(site.nodes().get_opt("a")).unwrap();
    assert!(gone.is_none(), "{gone:?}");
}

/// Under a policy a service is reloaded; without one the machine restarts.
fn chrony(site: &HubFixture, machine: &Machine) {
    let reload = json!([{"type": "Reload", "reload": {"serviceName": "timekeeper.service"}}]);
    site.set_node_disruption_policy(&json!({"files": [
        {"path": "/etc/chrony.conf", "actions": reload},
        {"path": "/etc/motd", "actions": [{"type": "None"}]},
    ]}));
    let boots = machine.boots();
    let start = Instant::now();
    let motd = file("/etc/motd", "ours\n");
    let config =
        site.apply_config("50-files", &files(&[file("/etc/chrony.conf", OLD), motd.clone()]));
    site.wait_done(machine, &config);
    measurements::record("daemon-declared-to-done", format!("{:?}", start.elapsed())).unwrap();
    assert_eq!(read(machine, "/etc/chrony.conf"), OLD);
    assert_eq!(read(machine, "/var/reloads"), "reloaded\n");
    assert_eq!(machine.boots(), boots);
    assert_eq!(site.annotation("a", "reason"), "");
    wait_for("all that is to be reported", || Ok(site.condition("a", "Updated") == "True"))
        .unwrap();

    site.set_node_disruption_policy(
        &json!({"files": [{"path": "/etc/motd", "actions": [{"type": "None"}]}]}),
    );
    let config = site.apply_config("50-files", &files(&[file("/etc/chrony.conf", NEW), motd]));
    site.wait_done(machine, &config);
    assert_eq!(machine.boots(), boots + 1);
    assert_eq!(read(machine, "/etc/chrony.conf"), NEW);
    assert_eq!(read(machine, "/var/reloads"), "reloaded\n");
    assert_eq!(site.annotation("a", "lastAppliedDrain"), format!("uncordon-{config}"));
    assert_eq!(site.annotation("a", "post-config-action"), "");
    wait_for("all that is to be reported", || Ok(site.condition("a", "Updated") == "True"))
        .unwrap();
    let events = site.events("a");
    let order = ["ServiceReload", "NodeDone", "Cordon", "Drain", "Reboot", "Uncordon", "NodeDone"];
    let mut rest = events.iter();
    for reason in order {
        assert!(rest.any(|event| event == reason), "no {reason} in its place: {events:?}");
    }
}

/// A unit with a drop-in comes, changes and goes; another one is masked.
fn units(site: &HubFixture, machine: &Machine) {
    let config = site.apply_config("60-units", &show("first"));
    site.wait_done(machine, &config);
    machine.wait_for("the unit to run", |m| m.exists("/run/word")).unwrap();
    assert_eq!(read(machine, "/run/word"), "first\n");
    assert_eq!(machine.sh("systemctl is-enabled show.service").unwrap(), "enabled\n");
    let masked = machine.exec(&["systemctl", "is-enabled", "sleepy.service"]).unwrap();
    assert_eq!(masked.stdout_trimmed(), "masked");

    let actions = json!([
        {"type": "DaemonReload"}, {"type": "Restart", "restart": {"serviceName": "show.service"}},
    ]);
    site.set_node_disruption_policy(&json!({"units": [
        {"name": "show.service", "actions": actions},
        {"name": "sleepy.service", "actions": [{"type": "None"}]},
    ]}));
    let boots = machine.boots();
    let config = site.apply_config("60-units", &show("second"));
    site.wait_done(machine, &config);
    assert_eq!(read(machine, "/run/word"), "second\n");
    assert_eq!(machine.boots(), boots);

    // An action that fails takes the change back.
    let bad = json!([{"type": "Reload", "reload": {"serviceName": "nothing.service"}}]);
    site.set_node_disruption_policy(&json!({"units": [
        {"name": "show.service", "actions": bad},
        {"name": "sleepy.service", "actions": [{"type": "None"}]},
    ]}));
    let third = site.apply_config("60-units", &show("third"));
    site.wait_state(machine, "Degraded", |site, name| {
        let reason = site.annotation(name, "reason");
        anyhow::ensure!(reason.contains("reloading nothing.service configuration failed"), reason);
        Ok(true)
    });
    let dropin = "/etc/systemd/system/show.service.d/10-word.conf";
    machine.wait_for("the way back", |m| Ok(read(m, dropin).contains("second"))).unwrap();
    site.set_node_disruption_policy(&json!({"units": [
        {"name": "show.service", "actions": actions},
        {"name": "sleepy.service", "actions": [{"type": "None"}]},
    ]}));
    site.wait_done(machine, &third);
    assert_eq!(read(machine, "/run/word"), "third\n");
    let config = site.delete_config("60-units");
    site.wait_state(machine, "Degraded", |_, _| Ok(true));
    // A service that is gone cannot be restarted: the administrator says so.
    site.set_node_disruption_policy(&json!({"units": [
        {"name": "show.service", "actions": [{"type": "DaemonReload"}]},
        {"name": "sleepy.service", "actions": [{"type": "None"}]},
    ]}));
    site.wait_done(machine, &config);
    assert!(!machine.exists(dropin).unwrap());
    assert!(!machine.exists("/etc/systemd/system/sleepy.service").unwrap());
    assert_eq!(machine.boots(), boots);
}

/// Keys of `core` need no restart, and open the door.
fn keys(site: &HubFixture, machine: &Machine) {
    machine
        .sh("ssh-keygen -q -t ed25519 -N '' -f /root/key && ssh-keygen -A && systemctl start ssh.service")
        .unwrap();
    let key = read(machine, "/root/key.pub");
    let user = json!({"name": "core", "sshAuthorizedKeys": [key.trim()]});
    let boots = machine.boots();
    let config = site.apply_config("70-keys", &json!({"passwd": {"users": [user]}}));
    site.wait_done(machine, &config);
    assert_eq!(machine.boots(), boots);
    let login = "ssh -i /root/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null core@127.0.0.1 id -un";
    assert_eq!(machine.sh(login).unwrap(), "core\n");
    machine.sh("systemctl stop ssh.service; rm -f /root/key* /etc/ssh/ssh_host_*").unwrap();
    let config = site.delete_config("70-keys");
    site.wait_done(machine, &config);
}

/// With a deferred restart the files are in place, and somebody has to allow the rest.
fn deferred_restart(site: &HubFixture, machine: &Machine) {
    let reboot = "machinist.dev/reboot";
    site.patch_pool(&json!({"metadata": {"annotations": {reboot: "deferred"}}}));
    let (boots, old) = (machine.boots(), site.annotation("a", "currentConfig"));
    let config = site.apply_config("80-later", &files(&[file("/etc/later", "later\n")]));
    site.wait_state(machine, "Working", |site, name| {
        Ok(site.annotation(name, "machinist.dev/restart-pending") == config)
    });
    assert_eq!(read(machine, "/etc/later"), "later\n");
    assert_eq!((machine.boots(), site.annotation("a", "currentConfig")), (boots, old));
    let status = machine.sh("machinist daemon status -o json").unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["pending"]["needsRestart"], true, "{status}");
    assert!(site.machinist(&["reboot", "a"]).succeeded());
    site.wait_done(machine, &config);
    assert_eq!(machine.boots(), boots + 1);
    assert_eq!(site.annotation("a", "machinist.dev/restart-pending"), "");
    site.patch_pool(&json!({"metadata": {"annotations": {reboot: Value::Null}}}));
}

/// What cannot change in place is refused, and nothing is written.
fn rejected_change(site: &HubFixture, machine: &Machine) {
    site.patch_pool(&json!({"spec": {"paused": true}}));
    let good = site.annotation("a", "currentConfig");
    let tree = snapshot_trees(machine);
    let config = json!({"storage": {"directories": [{"path": "/etc/folder"}],
        "files": [file("/etc/never", "never\n")]}});
    site.create_unselected_config("refused", &config);
    site.annotate("a", &[("desiredConfig", "refused")]);
    site.wait_state(machine, "Unreconcilable", |site, name| {
        let reason = site.annotation(name, "reason");
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
    site.annotate("a", &[("desiredConfig", &good)]);
    site.wait_done(machine, &good);
    site.patch_pool(&json!({"spec": {"paused": false}}));
}

/// What somebody changes by hand is seen, and by policy put right.
fn drift(site: &HubFixture, machine: &Machine) {
    let (boots, config) = (machine.boots(), site.annotation("a", "currentConfig"));
    let degraded = |mismatch: &str| {
        site.wait_state(machine, "Degraded", |site, name| {
            let reason = site.annotation(name, "reason");
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
    site.wait_done(machine, &config);
    assert_eq!(site.annotation("a", "reason"), "");
    machine.sh("chmod 600 /etc/later").unwrap();
    degraded("mode mismatch for file: \"/etc/later\"");
    site.annotate("a", &[("machinist.dev/drift", "heal")]);
    site.wait_done(machine, &config);
    assert_eq!(machine.sh("stat -c %a /etc/later").unwrap(), "644\n");
    machine.sh("rm /etc/later && ln -s /etc/shadow /etc/later").unwrap();
    machine
        .wait_for("the file to be put right", |m| Ok(read(m, "/etc/later") == "later\n"))
        .unwrap();
    site.wait_done(machine, &config);
    site.annotate("a", &[("machinist.dev/drift", "report")]);
    let events = site.events("a");
    for reason in ["ConfigDriftMonitorStarted", "ConfigDriftDetected", "ConfigDriftHealed"] {
        assert!(events.iter().any(|event| event == reason), "no {reason}: {events:?}");
    }
    assert_eq!(machine.boots(), boots);
}

/// A machine that is not well on a config goes back by itself, through a restart as well, and does not
/// try it again until it is told to.
fn health_gate_rollback(site: &HubFixture, machine: &Machine) {
    let (boots, good) = (machine.boots(), site.annotation("a", "currentConfig"));
    let health = "deadline: 3s\nstable: 0s\ncommands:\n- run: [/bin/test, -e, /var/well]\n";
    let gated = files(&[file("/etc/machinist/health.yaml", health), file("/etc/gated", "gated\n")]);
    let config = site.apply_config("82-gated", &gated);
    site.wait_state(machine, "Degraded", |site, name| {
        let reason = site.annotation(name, "reason");
        let expected = format!("health check failed on {config}: command /bin/test -e /var/well");
        anyhow::ensure!(reason.contains(&expected), reason);
        anyhow::ensure!(site.annotation(name, "lastAppliedDrain") == format!("uncordon-{good}"));
        Ok(true)
    });
    assert_eq!(machine.boots(), boots + 2);
    assert!(!machine.exists("/etc/gated").unwrap());
    assert_eq!(site.annotation("a", "currentConfig"), good);
    // It is well now, and somebody says so.
    machine.sh("touch /var/well").unwrap();
    site.annotate("a", &[("machinist.dev/retry", &config)]);
    site.wait_done(machine, &config);
    assert_eq!(machine.boots(), boots + 3);
    assert_eq!(read(machine, "/etc/gated"), "gated\n");
    assert_eq!(site.annotation("a", "machinist.dev/retry"), "");
    let config = site.delete_config("82-gated");
    site.wait_done(machine, &config);
}

/// A machine that cannot reach its home after a restart goes back without it.
fn rollback_without_api_server(site: &HubFixture, machine: &Machine) {
    let (boots, good) = (machine.boots(), site.annotation("a", "currentConfig"));
    let health = "deadline: 3s\nstable: 0s\napi: true\n";
    let cut = files(&[file("/etc/machinist/health.yaml", health), file("/etc/cut", "cut\n")]);
    let config = site.apply_config("83-cut", &cut);
    // The last thing that it says before it restarts.
    wait_for("the machine to go down", || Ok(!site.is_ready("a"))).unwrap();
    machine.link_down().unwrap();
    wait_for("the machine to go back", || Ok(machine.boots() == boots + 2)).unwrap();
    machine.link_up().unwrap();
    site.wait_state(machine, "Degraded", |site, name| {
        let reason = site.annotation(name, "reason");
        let expected = format!("health check failed on {config}: API");
        anyhow::ensure!(reason.contains(&expected), reason);
        anyhow::ensure!(site.annotation(name, "lastAppliedDrain") == format!("uncordon-{good}"));
        Ok(true)
    });
    assert_eq!(machine.boots(), boots + 2);
    assert!(!machine.exists("/etc/cut").unwrap());
    let config = site.delete_config("83-cut");
    site.wait_done(machine, &config);
    assert_eq!(machine.boots(), boots + 2);
}

/// A disk that is not as it should be is not built on, until it is put right or forced.
fn unexpected_disk_state(site: &HubFixture, machine: &Machine) {
    let boots = machine.boots();
    machine.sh("systemctl stop machinist-daemon.service; echo spoiled >/etc/later").unwrap();
    let config = site.apply_config("81-more", &files(&[file("/etc/more", "more\n")]));
    let wanted = || Ok(site.annotation("a", "desiredConfig") == config);
    wait_for("the config to be wanted of the machine", wanted).unwrap();
    machine.sh("systemctl start machinist-daemon.service").unwrap();
    site.wait_state(machine, "Degraded", |site, name| {
        let reason = site.annotation(name, "reason");
        anyhow::ensure!(reason.starts_with("unexpected on-disk state validating against"), reason);
        anyhow::ensure!(reason.ends_with("content mismatch for file \"/etc/later\""), reason);
        Ok(true)
    });
    assert!(!machine.exists("/etc/more").unwrap());
    machine.sh("touch /run/machine-config-daemon-force").unwrap();
    site.wait_done(machine, &config);
    assert_eq!(machine.boots(), boots + 1);
    assert_eq!(read(machine, "/etc/later"), "later\n");
    assert_eq!(read(machine, "/etc/more"), "more\n");
    assert!(!machine.exists("/run/machine-config-daemon-force").unwrap());
}

/// Nothing happens while the pool is paused; what a config lets go of comes back.
fn paused_and_withdrawn(site: &HubFixture, machine: &Machine) {
    site.set_node_disruption_policy(
        &json!({"files": [{"path": "/etc", "actions": [{"type": "None"}]}]}),
    );
    site.patch_pool(&json!({"spec": {"paused": true}}));
    let before = site.annotation("a", "currentConfig");
    let paused = site.apply_config("50-files", &files(&[file("/etc/chrony.conf", NEW)]));
    // The controller has seen it when it says so.
    let waits = || {
        let said = site.machinist(&["rollout", "explain", "worker", "-o", "json"]);
        let said: Value = serde_json::from_str(&said.stdout)?;
        Ok(said["waiting"]["a"]["reason"] == "poolPaused")
    };
    wait_for("the machine to wait for its pool", waits).unwrap();
    assert_eq!(site.annotation("a", "desiredConfig"), before);
    assert_eq!(read(machine, "/etc/motd"), "ours\n");
    site.patch_pool(&json!({"spec": {"paused": false}}));
    site.wait_done(machine, &paused);
    assert_eq!(read(machine, "/etc/motd"), "as it was packaged\n");
    assert!(site.annotation("a", "state") == "Done", "{ANNOTATION_PREFIX}");
}
