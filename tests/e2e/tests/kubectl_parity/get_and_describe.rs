//! `get` and `describe`: the same text as kubectl's where kubectl has one.

use super::{POOLS, kubectl, machinist, machinist_fails, manifest};
use anyhow::anyhow;
use machinist_e2e::{ApiServer, wait_for};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

pub fn run_checks(home: &ApiServer) {
    prepare(home);
    tables(home);
    objects(home);
    unknown_kinds(home);
    describe(home);
    watch(home);
}

fn prepare(home: &ApiServer) {
    machinist(home, &["apply", "-f", "examples/"]);
    let node = "apiVersion: v1\nkind: Node\nmetadata:\n  name: looked-at\n  labels: {node-role.kubernetes.io/worker: \"\"}\n";
    machinist(home, &["apply", "-f", &manifest(home, "looked-at.yaml", node)]);
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Fine",
        "message": "all is well", "lastTransitionTime": "2026-01-02T03:04:05Z"}], "nodeInfo": {
        "kubeletVersion": "v1.34.1", "architecture": "", "bootID": "", "containerRuntimeVersion": "",
        "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "",
        "osImage": "Debian", "systemUUID": ""}}});
    home.patch("/api/v1/nodes/looked-at/status", "merge-patch+json", &status);
    let secret =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: looked-at}\nstringData: {key: hunter2}\n";
    kubectl(home, &["apply", "-f", &manifest(home, "secret.yaml", secret)]);
}

/// The two programs print the same; the ages in it may tick between the two.
fn assert_same_output(home: &ApiServer, arguments: &[&str]) {
    let all = [&["get"], arguments].concat();
    wait_for("the same output", || {
        let (ours, theirs) = (home.machinist(&all)?, home.kubectl(&all)?);
        if (ours.code, &ours.stdout) == (theirs.code, &theirs.stdout) {
            return Ok(true);
        }
        Err(anyhow!("{}: {all:?}\n{ours:?}\n{theirs:?}", home.name))
    })
    .unwrap();
}

fn tables(home: &ApiServer) {
    for arguments in [
        &["mcp"][..],
        &["mc"],
        &["nodes"],
        &["nodes", "-o", "wide"],
        &["mc", "-o", "wide"],
        &["mcp", "worker", "infra"],
        &["mcp/worker", "node/looked-at"],
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
        assert_same_output(home, arguments);
    }
    let none = home.machinist(&["get", "configmaps", "-n", "nowhere"]).unwrap();
    assert_eq!(none.stderr, "No resources found in nowhere namespace.\n");
}

fn objects(home: &ApiServer) {
    for arguments in [
        &["mcp,nodes", "-o", "name"][..],
        &["mc", "50-infra-motd", "-o", "yaml"],
        &["secret", "looked-at", "-o", "yaml"],
        &["mc", "-o", "yaml"],
    ] {
        assert_same_output(home, arguments);
    }
    let read = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    for arguments in [["get", "mcp", "-o", "json"], ["get", "mcp/worker", "-o", "json"]] {
        assert_eq!(read(machinist(home, &arguments)), read(kubectl(home, &arguments)));
    }
}

fn unknown_kinds(home: &ApiServer) {
    let said = machinist_fails(home, &["get", "machineconfigpol"], 1);
    assert!(
        said.contains("the server doesn't have a resource type \"machineconfigpol\""),
        "{said}"
    );
    assert!(said.contains("machineconfigpool"), "{said}");
    machinist_fails(home, &["get"], 2);
    machinist_fails(home, &["get", "mcp", "mcp/worker"], 2);
    machinist_fails(home, &["get", "mcp", "worker", "-l", "a=b"], 2);
}

/// A node: no controller of ours writes its conditions.
fn describe(home: &ApiServer) {
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "seen.1", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "looked-at", "apiVersion": "v1"},
        "reason": "Seen", "message": "a node was seen", "type": "Normal", "count": 3,
        "lastTimestamp": "2026-01-02T03:04:05Z", "firstTimestamp": "2026-01-02T03:04:05Z",
    });
    let answer = home.post("/api/v1/namespaces/default/events", &event);
    assert_eq!(answer.code, 201, "{}", answer.body);
    let text = machinist(home, &["describe", "node", "looked-at"]);
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
    let secret = machinist(home, &["describe", "secret", "looked-at"]);
    assert!(secret.contains("  key: 7 bytes\n") && !secret.contains("aHVudGVyMg"), "{secret}");
    assert!(!secret.contains("hunter2"), "{secret}");
    let all =
        machinist(home, &["describe", "mc", "-l", "machineconfiguration.openshift.io/role=infra"]);
    assert!(all.starts_with("Name:         50-infra-motd\n"), "{all}");
}

/// A child that goes with the test.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn watch(home: &ApiServer) {
    for form in ["text", "name", "yaml"] {
        let mut command = home.machinist_command().unwrap();
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
        home.patch(&format!("{POOLS}/worker"), "merge-patch+json", &label);
        let line = until(if form == "yaml" { "seen: yaml" } else { "worker" });
        assert!(form != "text" || line.starts_with("worker   "), "{line}");
    }
}
