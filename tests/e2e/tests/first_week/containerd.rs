//! Mirrors without CRI-O: no machine degrades or is cordoned, and containerd gets a file that names the mirror.

use super::fixture::FirstWeek;
use crate::daemon::fixture::{file, files};
use machinist_e2e::{ImageRegistry, wait_for};
use serde_json::json;

pub(super) fn mirrors_reach_containerd_without_a_cordon(week: &FirstWeek) {
    let (hub, boxes) = (&week.hub, &week.boxes);
    let registry = ImageRegistry::start(&hub.lab).unwrap();
    assert_eq!(week.abilities(boxes)["containerRuntimes"], json!(["containerd"]));
    let mirrors = format!(
        "[[registry]]\nlocation = \"upstream.invalid\"\n[[registry.mirror]]\nlocation = \"{}/proxy\"\ninsecure = true\n",
        registry.host()
    );
    let policy = "{\"default\": [{\"type\": \"insecureAcceptAnything\"}]}";
    let list = [
        file("/etc/containers/registries.conf", &mirrors),
        file("/etc/containers/policy.json", policy),
    ];
    let boots: Vec<u32> = week.machines().iter().map(|machine| machine.boots()).collect();
    let config = hub.apply_config("80-mirrors", &files(&list));
    week.wait_done(&config);
    let after: Vec<u32> = week.machines().iter().map(|machine| machine.boots()).collect();
    assert_eq!(after, boots, "the default policies need no reboot");
    for machine in week.machines() {
        let name = machine.name();
        wait_for("the event about the missing unit", || {
            Ok(hub.events(name).iter().any(|reason| reason == "ActionSkipped"))
        })
        .unwrap();
        assert!(!hub.events(name).iter().any(|reason| reason == "Cordon"), "{name}");
    }
    let hosts = boxes.sh("cat /etc/containerd/certs.d/upstream.invalid/hosts.toml").unwrap();
    let mirror =
        format!("[host.\"http://{}/proxy\"]", registry.host().replace(":5000", ":5000/v2"));
    assert!(hosts.contains("server = \"https://upstream.invalid\"\n"), "{hosts}");
    assert!(hosts.contains(&mirror), "{hosts}");
    let config = hub.delete_config("80-mirrors");
    week.wait_done(&config);
    assert!(!boxes.exists("/etc/containerd/certs.d/upstream.invalid").unwrap());
}
