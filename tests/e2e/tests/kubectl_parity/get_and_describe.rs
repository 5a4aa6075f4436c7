//! `get` and `describe`: the same output as kubectl where kubectl has one.

use super::{POOLS, kubectl, machinist, machinist_fails, manifest};
use anyhow::anyhow;
use machinist_e2e::{ApiServer, wait_for};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

pub fn run_checks(api_server: &ApiServer) {
    prepare(api_server);
    tables(api_server);
    objects(api_server);
    unknown_kinds(api_server);
    describe(api_server);
    watch(api_server);
}

fn prepare(api_server: &ApiServer) {
    machinist(api_server, &["apply", "-f", "examples/"]);
    let node = "apiVersion: v1\nkind: Node\nmetadata:\n  name: looked-at\n  labels: {node-role.kubernetes.io/worker: \"\"}\n";
    machinist(api_server, &["apply", "-f", &manifest(api_server, "looked-at.yaml", node)]);
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Fine",
        "message": "all is well", "lastTransitionTime": "2026-01-02T03:04:05Z"}], "nodeInfo": {
        "kubeletVersion": "v1.34.1", "architecture": "", "bootID": "", "containerRuntimeVersion": "",
        "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "",
        "osImage": "Debian", "systemUUID": ""}}});
    api_server.patch("/api/v1/nodes/looked-at/status", "merge-patch+json", &status);
    let secret =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: looked-at}\nstringData: {key: hunter2}\n";
    kubectl(api_server, &["apply", "-f", &manifest(api_server, "secret.yaml", secret)]);
}

/// Both commands print the same. Ages may differ if the clock ticks in between.
fn assert_same_output(api_server: &ApiServer, arguments: &[&str]) {
    let all = [&["get"], arguments].concat();
    wait_for("the same output", || {
        let (ours, theirs) = (api_server.machinist(&all)?, api_server.kubectl(&all)?);
        if (ours.code, &ours.stdout) == (theirs.code, &theirs.stdout) {
            return Ok(true);
        }
        Err(anyhow!("{}: {all:?}\n{ours:?}\n{theirs:?}", api_server.name))
    })
    .unwrap();
}

/// Of Nodes, ours shows two columns more: how far each machine is.
fn nodes(api_server: &ApiServer) {
    for arguments in [&["get", "nodes"][..], &["get", "nodes", "-o", "wide"]] {
        wait_for("kubectl's columns and two more", || {
            let (ours, theirs) = (api_server.machinist(arguments)?, api_server.kubectl(arguments)?);
            let begins = |(ours, theirs): (&str, &str)| ours.starts_with(theirs.trim_end());
            let lines = ours.stdout.lines().zip(theirs.stdout.lines());
            let has_columns =
                ours.stdout.lines().next().is_some_and(|head| {
                    head.split_whitespace().rev().take(2).eq(["CONFIG", "STATE"])
                });
            if has_columns && lines.into_iter().all(begins) {
                return Ok(true);
            }
            Err(anyhow!("{}: {arguments:?}\n{ours:?}\n{theirs:?}", api_server.name))
        })
        .unwrap();
    }
}

fn tables(api_server: &ApiServer) {
    nodes(api_server);
    for arguments in [
        &["mcp"][..],
        &["mc"],
        &["mc", "-o", "wide"],
        &["mcp", "worker", "infra"],
        &["mcp/worker", "mc/50-infra-motd"],
        &["mcp,mc"],
        &["machineconfigpools.machineconfiguration.openshift.io", "worker"],
        &["MachineConfigPool", "worker"],
        &["mc", "-l", "machineconfiguration.openshift.io/role=worker"],
        &["mc", "--field-selector", "metadata.name=50-infra-motd"],
        &["secrets"],
        &["secrets", "-A"],
        &["configmaps", "-n", "nowhere"],
        &["mcp", "worker", "no-such-pool"],
    ] {
        assert_same_output(api_server, arguments);
    }
    let none = api_server.machinist(&["get", "configmaps", "-n", "nowhere"]).unwrap();
    assert_eq!(none.stderr, "No resources found in nowhere namespace.\n");
}

fn objects(api_server: &ApiServer) {
    for arguments in [
        &["mcp,nodes", "-o", "name"][..],
        &["mc", "50-infra-motd", "-o", "yaml"],
        &["secret", "looked-at", "-o", "yaml"],
        &["mc", "-o", "yaml"],
    ] {
        assert_same_output(api_server, arguments);
    }
    let read = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    for arguments in [["get", "mcp", "-o", "json"], ["get", "mcp/worker", "-o", "json"]] {
        assert_eq!(read(machinist(api_server, &arguments)), read(kubectl(api_server, &arguments)));
    }
}

fn unknown_kinds(api_server: &ApiServer) {
    let output = machinist_fails(api_server, &["get", "machineconfigpol"], 1);
    assert!(
        output.contains("the server doesn't have a resource type \"machineconfigpol\""),
        "{output}"
    );
    assert!(output.contains("machineconfigpool"), "{output}");
    machinist_fails(api_server, &["get"], 2);
    machinist_fails(api_server, &["get", "mcp", "mcp/worker"], 2);
    machinist_fails(api_server, &["get", "mcp", "worker", "-l", "a=b"], 2);
}

/// A Node, because no controller of ours writes its conditions.
fn describe(api_server: &ApiServer) {
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "seen.1", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "looked-at", "apiVersion": "v1"},
        "reason": "Seen", "message": "a node was seen", "type": "Normal", "count": 3,
        "lastTimestamp": "2026-01-02T03:04:05Z", "firstTimestamp": "2026-01-02T03:04:05Z",
    });
    let response = api_server.post("/api/v1/namespaces/default/events", &event);
    assert_eq!(response.code, 201, "{}", response.body);
    let text = machinist(api_server, &["describe", "node", "looked-at"]);
    for part in [
        "Name:         looked-at\n",
        "Kind:         Node (v1)\n",
        "Labels:       node-role.kubernetes.io/worker=\n",
        "    kubeletVersion: v1.34.1\n",
        "  Ready   True     2026-01-02T03:04:05Z   Fine     all is well\n",
        "  Normal   Seen     2026-01-02T03:04:05Z   3       a node was seen\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("last-applied"), "{text}");
    let secret = machinist(api_server, &["describe", "secret", "looked-at"]);
    assert!(secret.contains("  key: 7 bytes\n") && !secret.contains("aHVudGVyMg"), "{secret}");
    assert!(!secret.contains("hunter2"), "{secret}");
    let all = machinist(
        api_server,
        &["describe", "mc", "-l", "machineconfiguration.openshift.io/role=infra"],
    );
    assert!(all.starts_with("Name:         50-infra-motd\n"), "{all}");
}

/// A child process that is killed with the test.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn watch(api_server: &ApiServer) {
    for form in ["text", "name", "yaml"] {
        let mut command = api_server.machinist_command().unwrap();
        command.args(["get", "mcp", "worker", "-w", "-o", form]).stdout(Stdio::piped());
        let mut child = KillOnDrop(command.spawn().unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let mut until = |part: &str| {
            let line = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(part)));
            line.unwrap_or_else(|| panic!("{form}: the watch ended before {part}")).unwrap()
        };
        let first = if form == "yaml" { "  name: worker" } else { "worker" };
        until(first);
        let label = json!({"metadata": {"labels": {"seen": form}}});
        api_server.patch(&format!("{POOLS}/worker"), "merge-patch+json", &label);
        let line = until(if form == "yaml" { "seen: yaml" } else { "worker" });
        assert!(form != "text" || line.starts_with("worker   "), "{line}");
    }
}
