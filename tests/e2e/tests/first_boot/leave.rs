//! A machine that was set up by a server leaves as if it had never joined.

use crate::first_boot::fixture::{FirstBootFixture, ServerMode, file};
use crate::first_boot::power_on_new_machine;
use machinist_e2e::{Lab, Machine};
use serde_json::{Value, json};

/// Where the first boot and a config write files.
const COMPARED_TREES: [&str; 4] = ["/etc", "/usr/local", "/home", "/var/lib/machinist"];

/// What differs between any two fresh machines, and the result file that Ignition keeps.
const EXPECTED_DIFFERENCES: [&str; 2] = ["~/etc/machine-id", "+/etc/.ignition-result.json"];

fn differences(one: &Machine, other: &Machine) -> Vec<String> {
    let there = |machine: &Machine, dir: &&&str| machine.exists(dir).unwrap();
    let mut found = Vec::new();
    for dir in &COMPARED_TREES {
        match (there(one, &dir), there(other, &dir)) {
            (true, true) => {
                let trees = [one, other].map(|machine| machine.tree(dir).unwrap());
                found.extend(trees[0].changes(&trees[1]));
            }
            (false, false) => {}
            (_, is_new) => found.push(format!("{}{dir}", if is_new { '+' } else { '-' })),
        }
    }
    found.retain(|change| !EXPECTED_DIFFERENCES.contains(&change.as_str()));
    found
}

#[test]
fn leave_removes_everything_first_boot_added() {
    let lab = Lab::new().unwrap();
    let fixture = FirstBootFixture::new(&lab, ServerMode::Sealed);
    let files = [file("/etc/greeting", 0o644, "hello\n"), file("/etc/closed", 0o600, "swordfish")];
    let config = fixture.declare(json!({}), &files);
    let mut pointer = fixture.pointer_config(None);
    pointer["storage"]["files"] =
        json!([file("/etc/machinist/enrol-token", 0o600, &fixture.token())]);
    let twin = power_on_new_machine(lab.machine("twin"));
    let machine = power_on_new_machine(lab.machine("joined").with_ignition(&pointer.to_string()));
    fixture.wait_done(&machine, &config);
    assert!(!differences(&twin, &machine).is_empty());
    let output = machine.sh("machinist leave -o json").unwrap();
    let output: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(output["node"], "removed");
    let removed = output["changes"].to_string();
    for path in
        ["/usr/local/bin/machinist", "machinist-firstboot.service", "/etc/machinist/enrol.key"]
    {
        assert!(removed.contains(path), "{path}: {removed}");
    }
    assert_eq!(differences(&twin, &machine), Vec::<String>::new());
}
