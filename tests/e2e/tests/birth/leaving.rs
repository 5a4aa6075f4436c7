//! A machine that was born through a server leaves as if it had never been asked.

use crate::site::{Server, Site, file};
use crate::start_up;
use machinist_e2e::{Lab, Machine};
use serde_json::{Value, json};

/// Where a birth leaves something, and a config.
const TREES: [&str; 4] = ["/etc", "/usr/local", "/home", "/var/lib/machinist"];

/// What differs between two machines that were never anything but themselves, and the note that Ignition itself keeps.
const OWN: [&str; 2] = ["~/etc/machine-id", "+/etc/.ignition-result.json"];

fn differences(one: &Machine, other: &Machine) -> Vec<String> {
    let there = |machine: &Machine, folder: &&&str| machine.exists(folder).unwrap();
    let mut found = Vec::new();
    for folder in &TREES {
        match (there(one, &folder), there(other, &folder)) {
            (true, true) => {
                let trees = [one, other].map(|machine| machine.tree(folder).unwrap());
                found.extend(trees[0].changes(&trees[1]));
            }
            (false, false) => {}
            (_, is_new) => found.push(format!("{}{folder}", if is_new { '+' } else { '-' })),
        }
    }
    found.retain(|change| !OWN.contains(&change.as_str()));
    found
}

#[test]
fn a_machine_that_was_born_leaves_nothing_behind() {
    let lab = Lab::new().unwrap();
    let site = Site::new(&lab, Server::Sealed);
    let files = [file("/etc/greeting", 0o644, "hello\n"), file("/etc/closed", 0o600, "swordfish")];
    let config = site.declare(json!({}), &files);
    let mut pointer = site.pointer(None);
    pointer["storage"]["files"] = json!([file("/etc/machinist/enrol-token", 0o600, &site.token())]);
    let twin = start_up(lab.machine("twin"));
    let machine = start_up(lab.machine("born").ignite(&pointer.to_string()));
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
