//! A machine that is switched off does not look healthy: its Node is `Unknown`, and its pool counts it as unavailable.

use super::fixture::FirstWeek;
use machinist_e2e::wait_for;
use serde_json::Value;

pub(super) fn a_machine_that_is_silent_is_unavailable(week: &FirstWeek) {
    let (hub, boxes) = (&week.hub, &week.boxes);
    assert!(hub.is_ready("boxes"));
    boxes.power_cut().unwrap();
    let ready = || {
        let node = hub.request("GET", "/api/v1/nodes/boxes", &Value::Null).unwrap();
        let list = node["status"]["conditions"].as_array().unwrap().clone();
        list.into_iter().find(|one| one["type"] == "Ready").unwrap()
    };
    wait_for("the silence to be noticed", || Ok(ready()["status"] == "Unknown")).unwrap();
    let condition = ready();
    assert_eq!(condition["reason"], "NodeStatusUnknown");
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.starts_with("the machine is silent: it renewed its lease last at 20"),
        "{message}"
    );
    // It cannot answer, and the command does not wait for it.
    let asked = hub.machinist(&["logs", "boxes"]);
    assert!(asked.code == 1 && asked.stderr.contains("boxes is silent"), "{asked:?}");
    let pool = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools/worker";
    wait_for("the pool to count it", || {
        let pool = hub.request("GET", pool, &Value::Null)?;
        Ok(pool["status"]["unavailableMachineCount"] == 1)
    })
    .unwrap();
    assert!(hub.is_ready("plain"));
    boxes.power_on().unwrap();
    wait_for("the machine to be back", || Ok(hub.is_ready("boxes"))).unwrap();
}
