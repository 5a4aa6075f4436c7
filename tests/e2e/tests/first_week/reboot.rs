//! `machinist reboot` on a machine that is up to date: it is drained, reboots once, and is in service again.

use super::fixture::FirstWeek;
use machinist_e2e::wait_for;
use serde_json::Value;

pub(super) fn a_machine_reboots_once_when_asked(week: &FirstWeek) {
    let (hub, plain) = (&week.hub, &week.plain);
    let (boots, others) = (plain.boots(), week.boxes.boots());
    let config = hub.annotation("plain", "currentConfig");
    let output = hub.machinist(&["reboot", "plain"]);
    assert!(output.code == 0 && output.stdout.starts_with("plain reboots"), "{output:?}");
    wait_for("the reboot", || Ok(plain.boots() > boots)).unwrap();
    wait_for("the machine to be in service", || {
        let node = hub.request("GET", "/api/v1/nodes/plain", &Value::Null)?;
        let request = &node["metadata"]["annotations"]["machinist.dev/reboot-requested"];
        anyhow::ensure!(request.is_null(), "the request is left: {request}");
        anyhow::ensure!(node["spec"]["unschedulable"].is_null(), "it is cordoned");
        Ok(true)
    })
    .unwrap();
    hub.wait_done(plain, &config);
    let events = hub.events("plain");
    for reason in ["Cordon", "Drain", "Reboot"] {
        assert!(events.iter().any(|event| event == reason), "no {reason}: {events:?}");
    }
    // A request that was carried out is not carried out again, and concerns nobody else.
    let output = hub.machinist(&["rollout", "status", "worker"]);
    assert!(output.code == 0, "{output:?}");
    assert_eq!((plain.boots(), week.boxes.boots()), (boots + 1, others));
}
