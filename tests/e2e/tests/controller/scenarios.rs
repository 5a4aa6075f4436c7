//! The walk-throughs of the seeds, with real kubectl, on both homes.

use super::site::{ControllerFixture, file, machine_config};
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

fn run_scenarios(mut site: ControllerFixture) {
    site.apply(&file("00-worker", "worker", "/etc/base", "base"));
    let behaviour = MachineBehaviour {
        apply: 0..=60,
        reboot: Some(0..=60),
        drain: true,
        failure: 10,
        crash: 10,
        lost_response: 10,
    };
    site.populate(6, behaviour);
    chrony(&site);
    kernel(&site);
    the_infra_pool(&site);
    pause_and_resume(&site);
    a_bad_config_and_its_repair(&site);
    a_deleted_rendered_config(&site);
    max_unavailable(&site);
    site.assert_no_violations();
    two_custom_pools(&site);
}

/// Seed 003: a file for chrony reaches every machine, and `get mcp` shows how.
fn chrony(site: &ControllerFixture) {
    let before = site.wait_for_new_config("worker", "");
    site.apply_example("chrony.yaml");
    let rendered = site.wait_for_new_config("worker", &before);
    site.wait_updated("worker");
    let table = site.kubectl(&["get", "mcp", "worker"]);
    let columns: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    let expected = "NAME CONFIG UPDATED UPDATING DEGRADED MACHINECOUNT READYMACHINECOUNT UPDATEDMACHINECOUNT DEGRADEDMACHINECOUNT AGE";
    assert_eq!(columns, expected.split(' ').collect::<Vec<_>>(), "{table}");
    let row: Vec<&str> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(row[..9], ["worker", &rendered, "True", "False", "False", "6", "6", "6", "0"]);
    let object = site.get("mc", &rendered);
    let pool = site.get("mcp", "worker");
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
    let events = site.kubectl(&["get", "events", "-o", "json"]);
    for reason in ["RenderedConfigGenerated", "SetDesiredConfig", "Completed"] {
        assert!(events.contains(reason), "no event {reason} on {}", site.api_server.name);
    }
    let machines = site.kubectl(&["get", "machineconfignodes", "-o", "json"]);
    let machines: Value = serde_json::from_str(&machines).unwrap();
    let machines = machines["items"].as_array().unwrap();
    assert_eq!(machines.len(), 6);
    assert!(machines.iter().all(|m| m["spec"]["configVersion"]["desired"] == rendered.as_str()));
}

/// Seed 003: kernel arguments, SELinux off, the realtime kernel.
fn kernel(site: &ControllerFixture) {
    let before = site.wait_for_new_config("worker", "");
    let arguments = json!({"kernelArguments": ["hugepagesz=2M", "hugepages=64"]});
    site.apply(&machine_config("50-hugepages", "worker", &arguments));
    let second = site.wait_for_new_config("worker", &before);
    site.wait_updated("worker");
    site.apply(&machine_config("50-selinux", "worker", &json!({"kernelArguments": ["selinux=0"]})));
    site.apply(&machine_config("50-realtime", "worker", &json!({"kernelType": "realtime"})));
    site.wait_until("the kernel to be asked for", || {
        let object = site.get("mc", &site.wait_for_new_config("worker", &second));
        let arguments = json!(["hugepagesz=2M", "hugepages=64", "selinux=0"]);
        ensure!(object["spec"]["kernelArguments"] == arguments, "{}", object["spec"]);
        ensure!(object["spec"]["kernelType"] == "realtime", "{}", object["spec"]);
        Ok(())
    });
    site.wait_updated("worker");
    // Taken back, the pool is on the very config that it had before.
    site.kubectl(&["delete", "mc", "50-selinux", "50-realtime"]);
    site.wait_until("the earlier config to be back", || {
        ensure!(site.wait_for_new_config("worker", "") == second);
        Ok(())
    });
    site.wait_updated("worker");
}

/// Seed 002: a pool for infra machines, from creation to relabelling to deletion.
fn the_infra_pool(site: &ControllerFixture) {
    site.apply_example("infra-pool.yaml");
    site.apply(&file("50-infra", "infra", "/etc/infra", "infra"));
    let mut infra = String::new();
    site.wait_until("infra to have its own file and those of worker", || {
        infra = site.wait_for_new_config("infra", "");
        let object = site.get("mc", &infra).to_string();
        ensure!(object.contains("/etc/base") && object.contains("/etc/infra"));
        Ok(())
    });
    let nodes: Vec<String> = site.fleet.as_ref().unwrap().names()[..2].to_vec();
    for node in &nodes {
        site.kubectl(&["label", "node", node, "node-role.kubernetes.io/infra="]);
    }
    let count = |pool: &str| site.get("mcp", pool)["status"]["machineCount"].clone();
    site.wait_until("two machines to be in infra", || {
        ensure!(
            count("infra") == 2 && count("worker") == 4,
            "{} {}",
            count("infra"),
            count("worker")
        );
        Ok(())
    });
    site.wait_updated("infra");
    for node in &nodes {
        let annotations = site.get("node", node)["metadata"]["annotations"].clone();
        assert_eq!(annotations["machineconfiguration.openshift.io/currentConfig"], infra.as_str());
    }
    for node in &nodes {
        site.kubectl(&["label", "node", node, "node-role.kubernetes.io/infra-"]);
    }
    site.wait_until("all machines to be workers", || {
        ensure!(count("infra") == 0 && count("worker") == 6);
        Ok(())
    });
    site.wait_updated("worker");
    site.kubectl(&["delete", "mcp", "infra"]);
    site.kubectl(&["delete", "mc", "50-infra"]);
    site.wait_updated("worker");
}

fn pause_and_resume(site: &ControllerFixture) {
    let before = site.wait_for_new_config("worker", "");
    let paused = |is: bool| {
        let patch = json!({"spec": {"paused": is}}).to_string();
        site.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", &patch]);
    };
    paused(true);
    site.apply(&file("60-paused", "worker", "/etc/paused", "1"));
    let rendered = site.wait_for_new_config("worker", &before);
    site.wait_until("the pool to say that it is paused", || {
        let (status, message) = site.condition("worker", "Updating");
        let expected = format!("Pool is paused; will not update to MachineConfig {rendered}");
        ensure!(status == "False" && message == expected, "{status} {message}");
        Ok(())
    });
    // The log that is checked at the end says whether anybody was sent anywhere.
    assert_eq!(site.fleet.as_ref().unwrap().progress(&rendered).unwrap().0, 0);
    paused(false);
    site.wait_updated("worker");
}

fn a_bad_config_and_its_repair(site: &ControllerFixture) {
    let before = site.wait_for_new_config("worker", "");
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
    site.apply(&bad(0o1777));
    site.wait_until("the pool to name the culprit", || {
        let (status, message) = site.condition("worker", "RenderDegraded");
        ensure!(status == "True" && message.contains("70-bad"), "{status} {message}");
        let (status, _) = site.condition("worker", "Degraded");
        ensure!(status == "True", "not degraded");
        Ok(())
    });
    assert_eq!(site.wait_for_new_config("worker", ""), before, "nobody gets a bad config");
    site.apply(&bad(0o644));
    site.wait_for_new_config("worker", &before);
    site.wait_until("the pool to be well", || {
        ensure!(site.condition("worker", "RenderDegraded").0 == "False");
        ensure!(site.condition("worker", "Degraded").0 == "False");
        Ok(())
    });
    site.wait_updated("worker");
    // A change that no running machine can take is refused, and the one to blame is named.
    site.apply(&machine_config(
        "71-disks",
        "worker",
        &json!({"config": {
            "ignition": {"version": "3.2.0"},
            "storage": {"disks": [{"device": "/dev/sda", "wipeTable": true}]},
        }}),
    ));
    site.wait_until("the pool to refuse disks", || {
        let (status, message) = site.condition("worker", "RenderDegraded");
        let named = message.contains("71-disks") && message.contains("ignition disks section");
        ensure!(status == "True" && named, "{status} {message}");
        Ok(())
    });
    site.kubectl(&["delete", "mc", "71-disks"]);
    site.wait_until("the pool to be well again", || {
        ensure!(site.condition("worker", "RenderDegraded").0 == "False");
        Ok(())
    });
}

/// Seed 002's problem: somebody deletes rendered configs, the present one and one that machines still have.
fn a_deleted_rendered_config(site: &ControllerFixture) {
    let present = site.wait_for_new_config("worker", "");
    let patch = json!({"spec": {"paused": true}}).to_string();
    site.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", &patch]);
    site.apply(&file("60-paused", "worker", "/etc/paused", "2"));
    let next = site.wait_for_new_config("worker", &present);
    for name in [&present, &next] {
        let was = site.get("mc", name);
        site.kubectl(&["delete", "mc", name]);
        site.wait_until("the config to be made again", || {
            let answer = site.api_server.kubectl(&["get", "mc", name, "-o", "json"])?;
            ensure!(answer.succeeded(), "{answer:?}");
            let is: Value = serde_json::from_str(&answer.stdout)?;
            ensure!(is["metadata"]["uid"] != was["metadata"]["uid"], "it is the old one");
            ensure!(is["spec"] == was["spec"], "it differs");
            ensure!(is["metadata"]["annotations"] == was["metadata"]["annotations"], "annotations");
            Ok(())
        });
    }
    let patch = json!({"spec": {"paused": false}}).to_string();
    site.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", &patch]);
    site.wait_updated("worker");
}

fn max_unavailable(site: &ControllerFixture) {
    for (n, limit) in [json!("50%"), json!(2), json!(1)].iter().enumerate() {
        let before = site.wait_for_new_config("worker", "");
        let patch = json!({"spec": {"maxUnavailable": limit}}).to_string();
        site.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", &patch]);
        site.apply(&file("60-paused", "worker", "/etc/paused", &format!("limit {n}")));
        site.wait_for_new_config("worker", &before);
        site.wait_updated("worker");
    }
    // A limit that makes no sense is said on the pool, and nobody moves.
    let patch = json!({"spec": {"maxUnavailable": "40 %"}}).to_string();
    site.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", &patch]);
    site.wait_until("the pool to complain", || {
        let (status, message) = site.condition("worker", "RolloutBlocked");
        ensure!(status == "True" && message.contains("maxUnavailable"), "{status} {message}");
        Ok(())
    });
    let patch = json!({"spec": {"maxUnavailable": 1}}).to_string();
    site.kubectl(&["patch", "mcp", "worker", "--type=merge", "-p", &patch]);
    site.wait_until("the pool to be content", || {
        ensure!(site.condition("worker", "RolloutBlocked").0 == "False");
        Ok(())
    });
}

/// A machine that two custom pools want is in none, and both say so.
fn two_custom_pools(site: &ControllerFixture) {
    let node = site.fleet.as_ref().unwrap().names()[0].clone();
    for name in ["red", "blue"] {
        let mut pool = super::site::openshift_pool(name);
        pool["spec"]["machineConfigSelector"] = json!({"matchExpressions": [{
            "key": "machineconfiguration.openshift.io/role", "operator": "In", "values": ["worker", name],
        }]});
        site.apply(&pool);
        site.kubectl(&["label", "node", &node, &format!("node-role.kubernetes.io/{name}=")]);
    }
    for name in ["red", "blue"] {
        site.wait_until("the pool to complain", || {
            let (status, message) = site.condition(name, "RolloutBlocked");
            ensure!(status == "True" && message.contains("belongs to 2 custom roles"), "{message}");
            Ok(())
        });
    }
}
