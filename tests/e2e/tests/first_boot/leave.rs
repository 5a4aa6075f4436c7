//! A machine that was born through a server leaves as if it had never been asked.

use crate::fixture::{FirstBootFixture, ServerMode, file};
use crate::power_on_new_machine;
use machinist_e2e::{Lab, Machine};
use serde_json::{Value, json};

/// Where a birth leaves something, and a config.
const COMPARED_TREES: [&str; 4] = ["/etc", "/usr/local", "/home", "/var/lib/machinist"];

/// What differs between two machines that were never anything but themselves, and the note that Ignition itself keeps.
const EXPECTED_DIFFERENCES: [&str; 2] = ["~/etc/machine-id", "+/etc/.ignition-result.json"];

fn differences(one: &Machine, other: &Machine) -> Vec<String> {
    let there = |machine: &Machine, folder: &&&str| machine.exists(folder).unwrap();
    let mut found = Vec::new();
    for folder in &COMPARED_TREES {
        match (there(one, &folder), there(other, &folder)) {
            (true, true) => {
                let trees = [one, other].map(|machine| machine.tree(folder).unwrap());
                found.extend(trees[0].changes(&trees[1]));
            }
            (false, false) => {}
            (_, is_new) => found.push(format!("{}{folder}", if is_new { '+' } else { '-' })),
        }
    }
    found.retain(|change| !EXPECTED_DIFFERENCES.contains(&change.as_str()));
    found
}

#[test]
fn leave_removes_everything_first_boot_added() {
    let lab = Lab::new().unwrap();
    let site = FirstBootFixture::new(&lab, ServerMode::Sealed);
    let files = [file("/etc/greeting", 0o644, "hello\n"), file("/etc/closed", 0o600, "swordfish")];
    let config = site.declare(json!({}), &files);
    let mut pointer = site.pointer_config(None);
    pointer["storage"]["files"] = json!([file("/etc/machinist/enrol-token", 0o600, &site.token())]);
    let twin = power_on_new_machine(lab.machine("twin"));
    let machine = power_on_new_machine(lab.machine("born").with_ignition(&pointer.to_string()));
    site.wait_done(&machine, &config);
    assert!(!differences(&twin, &machine).is_empty());
    let said = machine.sh("machinist leave -o json").unwrap();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["node"], "removed");
    let removed = said["changes"].to_string();
    for path in
        ["/usr/local/bin/machinist", "machinist-firstboot.service", "/etc/machinist/enrol.key"]
    {
        assert!(removed.contains(path), "{path}: {removed}");
    }
    assert_eq!(differences(&twin, &machine), Vec::<String>::new());
}
