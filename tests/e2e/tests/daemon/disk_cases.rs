//! What MCO left on a disk, and what our daemon leaves on a running machine: every recorded case, through the Node,
//! with a real systemd. `crates/machinist/tests/once/cases.rs` applies the same cases to directories.

use super::fixture::{HubFixture, differences, snapshot_trees};
use machinist_e2e::{Machine, cache};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";
const UNITS: &str = "etc/systemd/system";

fn cases() -> Vec<Value> {
    let text = fs::read_to_string(cache::source_root().join("tests/cases/disk.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// One path in the format of the cases.
fn observed_path(root: &Path, path: &str) -> Value {
    let target = root.join(path.trim_start_matches('/'));
    let Ok(meta) = target.symlink_metadata() else { return Value::Null };
    if meta.is_symlink() {
        return json!({"link": fs::read_link(&target).unwrap()});
    }
    let sha256 = cache::hex(&Sha256::digest(fs::read(&target).unwrap()));
    json!({"mode": meta.mode() & 0o7777, "uid": meta.uid(), "gid": meta.gid(), "sha256": sha256})
}

/// The links below `*.wants` and `*.requires` to units of the config.
fn enabled_links(root: &Path, units: &[&String]) -> Vec<String> {
    let names = |dir: &Path| -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let mut links = Vec::new();
    for dir in names(&root.join(UNITS)) {
        if dir.ends_with(".wants") || dir.ends_with(".requires") {
            let inside = names(&root.join(UNITS).join(&dir));
            let ours = inside.iter().filter(|link| units.contains(link));
            links.extend(ours.map(|link| format!("{dir}/{link}")));
        }
    }
    links.sort();
    links
}

/// Sets a policy so that a case needs no reboot, as far as a policy can express it: it cannot name unit templates.
fn allow_without_reboot(fixture: &HubFixture, config: &Value) {
    let entries = |list: &Value, key: &str| -> Vec<Value> {
        let list = list.as_array().into_iter().flatten();
        let nameable = |one: &&Value| !one[key].as_str().is_some_and(|name| name.contains('@'));
        list.filter(nameable)
            .map(|one| json!({key: one[key], "actions": [{"type": "None"}]}))
            .collect()
    };
    let config = &config["spec"]["config"];
    fixture.set_node_disruption_policy(&json!({
        "files": entries(&config["storage"]["files"], "path"),
        "units": entries(&config["systemd"]["units"], "name"),
    }));
}

fn check(machine: &Machine, id: &str, expect: &Value) {
    let root = machine.root().unwrap();
    for (path, wanted) in expect["paths"].as_object().unwrap() {
        assert_eq!(&observed_path(&root, path), wanted, "{id}: {path}");
    }
    let enabled = expect["enabled"].as_object().unwrap();
    let units: Vec<&String> = enabled.keys().collect();
    assert_eq!(json!(enabled_links(&root, &units)), expect["wants"], "{id}: wants");
    for (unit, state) in enabled {
        let output = machine.exec(&["systemctl", "is-enabled", unit]).unwrap();
        assert_eq!(&json!(output.stdout.trim()), state, "{id}: {unit}: {}", output.stderr);
    }
    let shadow = fs::read_to_string(root.join("etc/shadow")).unwrap();
    let line = shadow.lines().find(|line| line.starts_with("core:")).unwrap();
    assert_eq!(json!(line.split(':').nth(1)), expect["corePassword"], "{id}: password");
}

#[test]
fn the_disk_matches_what_mco_writes() {
    let fixture = HubFixture::start();
    let machine = fixture.machine("a");
    // As in the recorded cases: no chronyd, and the last preset disables everything.
    let gone = "rm -f /etc/systemd/system/chronyd.service && systemctl daemon-reload";
    machine.sh(&format!("systemctl disable --now chrony.service; {gone}")).unwrap();
    machine.write_file("/etc/systemd/system-preset/99-last.preset", "disable *\n").unwrap();
    // As MCO's hosts say of themselves: elsewhere users have other rules.
    machine.sh("rm /etc/os-release && echo ID=rhcos >/etc/os-release").unwrap();
    fixture.patch_pool(&json!({"spec": {"paused": true}}));
    fixture.join(&machine);
    fixture.wait_done(&machine, "mco-empty-mc");
    fixture.create_unselected_config("nothing", &json!({}));
    allow_without_reboot(&fixture, &Value::Null);
    fixture.annotate("a", &[("desiredConfig", "nothing")]);
    fixture.wait_done(&machine, "nothing");
    let before = snapshot_trees(&machine);
    let cases = cases();
    assert_eq!(cases.len(), 12);
    for case in &cases {
        let (id, expect) = (case["id"].as_str().unwrap(), &case["expect"]);
        let mut config = case["machineConfig"].clone();
        config["metadata"]["name"] = json!(id);
        fixture.request("POST", CONFIGS, &config).unwrap();
        allow_without_reboot(&fixture, &config);
        fixture.annotate("a", &[("desiredConfig", id)]);
        if expect["rc"] == 0 {
            fixture.wait_done(&machine, id);
        } else {
            fixture.wait_state(&machine, "Unreconcilable", |_, _| Ok(true));
        }
        check(&machine, id, expect);
        // And back.
        fixture.annotate("a", &[("desiredConfig", "nothing")]);
        fixture.wait_done(&machine, "nothing");
        let left: Vec<String> = differences(&before, &snapshot_trees(&machine))
            .into_iter()
            .filter(|path| !path.contains("/machine-config-daemon/"))
            .collect();
        assert_eq!(left, Vec::<String>::new(), "{id}");
    }
}
