//! Changes on an API server are served, and an outage of the API server does not interrupt the service.

use crate::server::support::{
    CONFIGS, OS_BUILDS, OS_CONFIGS, POOLS, file, get, greeting, machine_config, object,
    start_server_for,
};
use machinist_e2e::{ApiServer, Lab, measurements, wait_for};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

#[test]
fn a_hub_can_be_served_from_outside() {
    let (api_server, lab) = (ApiServer::hub().unwrap(), Lab::new().unwrap());
    let server = start_server_for(&lab, &api_server);
    let address = lab.loopback();
    assert_eq!(server.get("/config/worker").0, 503);
    let mut config = machine_config("50-greeting", "hello");
    config["metadata"]["labels"] = json!({"machineconfiguration.openshift.io/role": "worker"});
    assert_eq!(api_server.post(CONFIGS, &config).code, 201);
    let served = || Ok(greeting(&address, "worker").as_deref() == Some("hello"));
    wait_for("the pool to be served", served).unwrap();
    // The response contains the token that the administrator has configured.
    let kubeconfig = file(&address, "worker", "/etc/kubernetes/kubeconfig").unwrap();
    assert!(kubeconfig.contains("token%3A%20a.secret"), "{kubeconfig}");
    drop(api_server);
    assert_eq!(greeting(&address, "worker").as_deref(), Some("hello"));
}

#[test]
fn machines_of_a_pool_with_its_own_image_start_with_it() {
    let api_server = ApiServer::kubernetes().unwrap();
    let lab = api_server.cluster().unwrap().lab().clone();
    let (config, image) = ("rendered-worker-1", format!("quay.io/os/os@sha256:{}", "0".repeat(64)));
    assert_eq!(api_server.post(CONFIGS, &machine_config(config, "one")).code, 201);
    let spec = json!({"configuration": {"name": config}});
    let pool = object("MachineConfigPool", "worker", &json!({"spec": spec}));
    assert_eq!(api_server.post(POOLS, &pool).code, 201);
    let status = |path: &str, status: Value| {
        let patch = json!({"status": status});
        let response = api_server.patch(&format!("{path}/status"), "merge-patch+json", &patch);
        assert_eq!(response.code, 200, "{response:?}");
    };
    status(&format!("{POOLS}/worker"), json!({"updatedMachineCount": 1}));
    let push = "quay.io/os/os:latest";
    let os_config = object(
        "MachineOSConfig",
        "worker",
        &json!({"spec": {
            "machineConfigPool": {"name": "worker"},
            "imageBuilder": {"imageBuilderType": "Job"},
            "renderedImagePushSecret": {"name": "push"},
            "renderedImagePushSpec": push,
        }}),
    );
    let response = api_server.post(OS_CONFIGS, &os_config);
    assert_eq!(response.code, 201, "{response:?}");
    let build = object(
        "MachineOSBuild",
        "build",
        &json!({"spec": {
            "machineConfig": {"name": config},
            "machineOSConfig": {"name": "worker"},
            "renderedImagePushSpec": push,
        }}),
    );
    let response = api_server.post(OS_BUILDS, &build);
    assert_eq!(response.code, 201, "{response:?}");
    let _server = start_server_for(&lab, &api_server);
    let annotations = || {
        let path = "/etc/machine-config-daemon/node-annotations.json";
        file(&lab.loopback(), "worker", path).unwrap()
    };
    assert!(!annotations().contains("currentImage"));
    status(&format!("{OS_CONFIGS}/worker"), json!({"currentImagePullSpec": image}));
    let time = "2026-01-01T00:00:00Z";
    status(
        &format!("{OS_BUILDS}/build"),
        json!({"buildStart": time, "conditions": [{"type": "Succeeded", "status": "True",
            "reason": "Built", "message": "", "lastTransitionTime": time}]}),
    );
    wait_for("the image to be named", || Ok(annotations().contains("currentImage"))).unwrap();
    assert!(annotations().contains("os%40sha256%3A0000"), "{}", annotations());
}

#[test]
fn api_changes_are_served_and_outages_are_survived() {
    let api_server = ApiServer::kubernetes().unwrap();
    for (name, text) in [("rendered-worker-1", "one"), ("rendered-worker-2", "two")] {
        assert_eq!(api_server.post(CONFIGS, &machine_config(name, text)).code, 201);
    }
    let pool = object("MachineConfigPool", "worker", &json!({"spec": {}}));
    assert_eq!(api_server.post(POOLS, &pool).code, 201);
    let lab = api_server.cluster().unwrap().lab().clone();
    let address = lab.loopback();
    let server = start_server_for(&lab, &api_server);
    assert_eq!(server.get("/config/none"), (404, Vec::new()));
    assert_eq!(server.get("/config/worker").0, 503);
    let mut fastest = u128::MAX;
    for round in 0..10 {
        let (name, text) = [("rendered-worker-1", "one"), ("rendered-worker-2", "two")][round % 2];
        let status = json!({"status": {"configuration": {"name": name}}});
        let path = format!("{POOLS}/worker/status");
        assert_eq!(api_server.patch(&path, "merge-patch+json", &status).code, 200);
        let start = Instant::now();
        while greeting(&address, "worker").as_deref() != Some(text) {
            assert!(start.elapsed().as_secs() < 60, "the change is not served");
        }
        fastest = fastest.min(start.elapsed().as_millis());
    }
    measurements::record("server-change", format!("{fastest} ms")).unwrap();
    assert!(fastest <= 100, "{fastest} ms");
    // A pool that is deleted and created again.
    assert_eq!(api_server.delete(&format!("{POOLS}/worker"), &Value::Null).code, 200);
    wait_for("the pool to go", || Ok(get(&address, "/config/worker").0 == 404)).unwrap();
    assert_eq!(api_server.post(POOLS, &pool).code, 201);
    let status = json!({"status": {"configuration": {"name": "rendered-worker-1"}}});
    api_server.patch(&format!("{POOLS}/worker/status"), "merge-patch+json", &status);
    wait_for("the pool to come", || Ok(greeting(&address, "worker").is_some())).unwrap();
    // The API server fails while machines send requests: each gets a response, and later changes are served.
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(greeting(&address, "worker").as_deref(), Some("one"));
            }
        });
        let restarted = api_server.cluster().unwrap().restart_api();
        done.store(true, Ordering::Relaxed);
        restarted.unwrap();
    });
    let status = json!({"status": {"configuration": {"name": "rendered-worker-2"}}});
    wait_for("the API to take a change", || {
        let path = format!("{POOLS}/worker/status");
        Ok(api_server.patch(&path, "merge-patch+json", &status).code == 200)
    })
    .unwrap();
    let served = || Ok(greeting(&address, "worker").as_deref() == Some("two"));
    wait_for("the change to be served", served).unwrap();
    // And then it is gone for good.
    drop(api_server);
    for _ in 0..100 {
        assert_eq!(greeting(&address, "worker").as_deref(), Some("two"));
    }
}
