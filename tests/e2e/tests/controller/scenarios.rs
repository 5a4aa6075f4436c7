//! Walk-throughs of typical tasks with the real kubectl, on both API servers.

use super::fixture::{ControllerFixture, file, machine_config};
use anyhow::ensure;
use machinist_e2e::fleet::MachineBehaviour;
use serde_json::{Value, json};

#[test]
fn scenarios_on_the_hub() {
    run_scenarios(ControllerFixture::hub());
}

#[test]
fn scenarios_on_kube_apiserver_with_openshift_crds() {
    run_scenarios(ControllerFixture::openshift());
}

fn run_scenarios(mut fixture: ControllerFixture) {
    fixture.apply(&file("00-worker", "worker", "/etc/base", "base"));
    let behaviour = MachineBehaviour {
        apply: 0..=60,
        reboot: Some(0..=60),
        drain: true,
        failure: 10,
        crash: 10,
        lost_response: 10,
    };
    fixture.populate(6, behaviour);
    chrony(&fixture);
    kernel(&fixture);
    the_infra_pool(&fixture);
    pause_and_resume(&fixture);
    a_bad_config_and_its_repair(&fixture);
    a_deleted_rendered_config(&fixture);
    max_unavailable(&fixture);
    fixture.assert_no_violations();
    two_custom_pools(&fixture);
}

/// A chrony config file reaches every machine, and `get mcp` shows the progress.
fn chrony(fixture: &ControllerFixture) {
    let before = fixture.wait_for_new_config("worker", "");
    fixture.apply_example("chrony.yaml");
    let rendered = fixture.wait_for_new_config("worker", &before);
    fixture.wait_updated("worker");
    let table = fixture.kubectl(&["get", "mcp", "worker"]);
    let columns: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    let expected = "NAME CONFIG UPDATED UPDATING DEGRADED MACHINECOUNT READYMACHINECOUNT UPDATEDMACHINECOUNT DEGRADEDMACHINECOUNT AGE";
    assert_eq!(columns, expected.split(' ').collect::<Vec<_>>(), "{table}");
    let row: Vec<&str> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(row[..9], ["worker", &rendered, "True", "False", "False", "6", "6", "6", "0"]);
    let object = fixture.get("mc", &rendered);
    let pool = fixture.get("mcp", "worker");
    let owner = &object["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], pool["metadata"]["uid"]);
    assert_eq!((&owner["controller"], &owner["blockOwnerDeletion"]), (&json!(true), &json!(true)));
    let sources: Vec<&str> = pool["spec"]["configuration"]["source"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|source| source["name"].as_str())
        .collect();
    assert!(sources.starts_with(&["00-worker"]) && sources.len() == 2, "{sources:?}");
    let events = fixture.kubectl(&["get", "events", "-o", "json"]);
    for reason in ["RenderedConfigGenerated", "SetDesiredConfig", "Completed"] {
        assert!(events.contains(reason), "no event {reason} on {}", fixture.api_server.name);
    }
    let machines = fixture.kubectl(&["get", "machineconfignodes", "-o", "json"]);
    let machines: Value = serde_json::from_str(&machines).unwrap();
    let machines = machines["items"].as_array().unwrap();
    assert_eq!(machines.len(), 6);
    assert!(machines.iter().all(|m| m["spec"]["configVersion"]["desired"] == rendered.as_str()));
}

/// Kernel arguments, SELinux off, the realtime kernel.
fn kernel(fixture: &ControllerFixture) {
    let before = fixture.wait_for_new_config("worker", "");
    let arguments = json!({"kernelArguments": ["hugepagesz=2M", "hugepages=64"]});
    fixture.apply(&machine_config("50-hugepages", "worker", &arguments));
    let second = fixture.wait_for_new_config("worker", &before);
    fixture.wait_updated("worker");
    fixture.apply(&machine_config(
        "50-selinux",
        "worker",
        &json!({"kernelArguments": ["selinux=0"]}),
    ));
    fixture.apply(&machine_config("50-realtime", "worker", &json!({"kernelType": "realtime"})));
    fixture.wait_until("the kernel to be asked for", || {
        let object = fixture.get("mc", &fixture.wait_for_new_config("worker", &second));
        let arguments = json!(["hugepagesz=2M", "hugepages=64", "selinux=0"]);
        ensure!(object["spec"]["kernelArguments"] == arguments, "{}", object["spec"]);
        ensure!(object["spec"]["kernelType"] == "realtime", "{}", object["spec"]);
        Ok(())
    });
    fixture.wait_updated("worker");
    // After the change is reverted, the pool has exactly its previous config.
    fixture.kubectl(&["delete", "mc", "50-selinux", "50-realtime"]);
    fixture.wait_until("the earlier config to be back", || {
        ensure!(fixture.wait_for_new_config("worker", "") == second);
        Ok(())
    });
    fixture.wait_updated("worker");
}

/// A pool for infra machines: created, relabelled, deleted.
fn the_infra_pool(fixture: &ControllerFixture) {
    fixture.apply_example("infra-pool.yaml");
    fixture.apply(&file("50-infra", "infra", "/etc/infra", "infra"));
    let mut infra = String::new();
    fixture.wait_until("infra to have its own file and those of worker", || {
        infra = fixture.wait_for_new_config("infra", "");
        let object = fixture.get("mc", &infra).to_string();
        ensure!(object.contains("/etc/base") && object.contains("/etc/infra"));
        Ok(())
    });
    let nodes: Vec<String> = fixture.fleet.as_ref().unwrap().names()[..2].to_vec();
    for node in &nodes {
        fixture.kubectl(&["label", "node", node, "node-role.kubernetes.io/infra="]);
    }
    let count = |pool: &str| fixture.get("mcp", pool)["status"]["machineCount"].clone();
    fixture.wait_until("two machines to be in infra", || {
        ensure!(
            count("infra") == 2 && count("worker") == 4,
            "{} {}",
            count("infra"),
            count("worker")
        );
        Ok(())
    });
    fixture.wait_updated("infra");
    for node in &nodes {
        let annotations = fixture.get("node", node)["metadata"]["annotations"].clone();
        assert_eq!(annotations["machineconfiguration.openshift.io/currentConfig"], infra.as_str());
    }
    for node in &nodes {
        fixture.kubectl(&["label", "node", node, "node-role.kubernetes.io/infra-"]);
    }
    fixture.wait_until("all machines to be workers", || {
        ensure!(count("infra") == 0 && count("worker") == 6);
        Ok(())
    });
    fixture.wait_updated("worker");
    fixture.kubectl(&["delete", "mcp", "infra"]);
    fixture.kubectl(&["delete", "mc", "50-infra"]);
    fixture.wait_updated("worker");
}

fn pause_and_resume(fixture: &ControllerFixture) {
    let before = fixture.wait_for_new_config("worker", "");
    let paused = |is: bool| {
        let patch = json!({"spec": {"paused": is}}).to_string();
        fixture.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", &patch]);
    };
    paused(true);
    fixture.apply(&file("60-paused", "worker", "/etc/paused", "1"));
    let rendered = fixture.wait_for_new_config("worker", &before);
    fixture.wait_until("the pool to say that it is paused", || {
        let (status, message) = fixture.condition("worker", "Updating");
        let expected = format!("Pool is paused; will not update to MachineConfig {rendered}");
        ensure!(status == "False" && message == expected, "{status} {message}");
        Ok(())
    });
    // The watch log, checked at the end, shows whether a machine was retargeted.
    assert_eq!(fixture.fleet.as_ref().unwrap().progress(&rendered).unwrap().0, 0);
    paused(false);
    fixture.wait_updated("worker");
}

fn a_bad_config_and_its_repair(fixture: &ControllerFixture) {
    let before = fixture.wait_for_new_config("worker", "");
    let bad = |mode: u32| {
        machine_config(
            "70-bad",
            "worker",
            &json!({"config": {
                "ignition": {"version": "3.2.0"},
                "storage": {"files": [{"path": "/etc/bad", "mode": mode, "contents": {"source": "data:,x"}}]},
            }}),
        )
    };
    fixture.apply(&bad(0o1777));
    fixture.wait_until("the pool to name the culprit", || {
        let (status, message) = fixture.condition("worker", "RenderDegraded");
        ensure!(status == "True" && message.contains("70-bad"), "{status} {message}");
        let (status, _) = fixture.condition("worker", "Degraded");
        ensure!(status == "True", "not degraded");
        Ok(())
    });
    assert_eq!(fixture.wait_for_new_config("worker", ""), before, "nobody gets a bad config");
    fixture.apply(&bad(0o644));
    fixture.wait_for_new_config("worker", &before);
    fixture.wait_until("the pool to be well", || {
        ensure!(fixture.condition("worker", "RenderDegraded").0 == "False");
        ensure!(fixture.condition("worker", "Degraded").0 == "False");
        Ok(())
    });
    fixture.wait_updated("worker");
    // A change that no running machine can apply is refused, and its MachineConfig is named.
    fixture.apply(&machine_config(
        "71-disks",
        "worker",
        &json!({"config": {
            "ignition": {"version": "3.2.0"},
            "storage": {"disks": [{"device": "/dev/sda", "wipeTable": true}]},
        }}),
    ));
    fixture.wait_until("the pool to refuse disks", || {
        let (status, message) = fixture.condition("worker", "RenderDegraded");
        let named = message.contains("71-disks") && message.contains("ignition disks section");
        ensure!(status == "True" && named, "{status} {message}");
        Ok(())
    });
    fixture.kubectl(&["delete", "mc", "71-disks"]);
    fixture.wait_until("the pool to be well again", || {
        ensure!(fixture.condition("worker", "RenderDegraded").0 == "False");
        Ok(())
    });
}

/// Somebody deletes rendered configs: the current one, and one that machines still have.
fn a_deleted_rendered_config(fixture: &ControllerFixture) {
    let present = fixture.wait_for_new_config("worker", "");
    let patch = json!({"spec": {"paused": true}}).to_string();
    fixture.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", &patch]);
    fixture.apply(&file("60-paused", "worker", "/etc/paused", "2"));
    let next = fixture.wait_for_new_config("worker", &present);
    for name in [&present, &next] {
        let was = fixture.get("mc", name);
        fixture.kubectl(&["delete", "mc", name]);
        fixture.wait_until("the config to be made again", || {
            let output = fixture.api_server.kubectl(&["get", "mc", name, "-o", "json"])?;
            ensure!(output.succeeded(), "{output:?}");
            let is: Value = serde_json::from_str(&output.stdout)?;
            ensure!(is["metadata"]["uid"] != was["metadata"]["uid"], "it is the old one");
            ensure!(is["spec"] == was["spec"], "it differs");
            ensure!(is["metadata"]["annotations"] == was["metadata"]["annotations"], "annotations");
            Ok(())
        });
    }
    let patch = json!({"spec": {"paused": false}}).to_string();
    fixture.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", &patch]);
    fixture.wait_updated("worker");
}

fn max_unavailable(fixture: &ControllerFixture) {
    for (n, limit) in [json!("50%"), json!(2), json!(1)].iter().enumerate() {
        let before = fixture.wait_for_new_config("worker", "");
        let patch = json!({"spec": {"maxUnavailable": limit}}).to_string();
        fixture.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", &patch]);
        fixture.apply(&file("60-paused", "worker", "/etc/paused", &format!("limit {n}")));
        fixture.wait_for_new_config("worker", &before);
        fixture.wait_updated("worker");
    }
    // An invalid limit is reported on the pool, and no machine updates.
    let patch = json!({"spec": {"maxUnavailable": "40 %"}}).to_string();
    fixture.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", &patch]);
    fixture.wait_until("the pool to complain", || {
        let (status, message) = fixture.condition("worker", "RolloutBlocked");
        ensure!(status == "True" && message.contains("maxUnavailable"), "{status} {message}");
        Ok(())
    });
    let patch = json!({"spec": {"maxUnavailable": 1}}).to_string();
    fixture.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", &patch]);
    fixture.wait_until("the pool to be content", || {
        ensure!(fixture.condition("worker", "RolloutBlocked").0 == "False");
        Ok(())
    });
}

/// A machine that two custom pools select is in neither, and both report it.
fn two_custom_pools(fixture: &ControllerFixture) {
    let node = fixture.fleet.as_ref().unwrap().names()[0].clone();
    for name in ["red", "blue"] {
        let mut pool = super::fixture::openshift_pool(name);
        pool["spec"]["machineConfigSelector"] = json!({"matchExpressions": [{
            "key": "machineconfiguration.openshift.io/role", "operator": "In", "values": ["worker", name],
        }]});
        fixture.apply(&pool);
        fixture.kubectl(&["label", "node", &node, &format!("node-role.kubernetes.io/{name}=")]);
    }
    for name in ["red", "blue"] {
        fixture.wait_until("the pool to complain", || {
            let (status, message) = fixture.condition(name, "RolloutBlocked");
            ensure!(status == "True" && message.contains("belongs to 2 custom roles"), "{message}");
            Ok(())
        });
    }
}
