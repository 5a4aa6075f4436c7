//! The seeds' walk-throughs with the real kubectl.

use super::ConformanceCheck;
use super::api_server::ApiServer;
use std::fs;

pub const CHECKS: &[ConformanceCheck] = &[
    ("kubectl apply, get, describe, label, annotate, patch, delete", walk_through),
    ("kubectl get mcp prints the seed's columns", columns),
    ("kubectl explain knows our fields", explain),
    ("kubectl wait sees a condition", wait),
    ("kubectl get nodes prints nodes", nodes),
    ("kubectl edit changes an object", edit),
    ("kubectl refuses a typo", typo),
];

/// Runs kubectl; it has to succeed.
fn kubectl(home: &ApiServer, arguments: &[&str]) -> String {
    let answer = home.kubectl(arguments).unwrap();
    assert!(answer.succeeded(), "{}: kubectl {arguments:?}: {answer:?}", home.name);
    answer.stdout
}

fn manifest(home: &ApiServer, name: &str, text: &str) -> String {
    let path = home.dir().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

const CHRONY: &str = "\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-examplecorp-chrony
  labels:
    machineconfiguration.openshift.io/role: worker
spec:
  config:
    ignition:
      version: 2.2.0
    storage:
      files:
      - contents:
          source: data:text/plain;charset=utf-8;base64,c2VydmVyIGZvby5leGFtcGxlLm5ldAo=
        filesystem: root
        mode: 0644
        path: /etc/chrony.conf
";

const INFRA: &str = "\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata:
  name: infra-walk
spec:
  machineConfigSelector:
    matchExpressions:
    - {key: machineconfiguration.openshift.io/role, operator: In, values: [worker, infra]}
  nodeSelector:
    matchLabels:
      node-role.kubernetes.io/infra: \"\"
  paused: false
";

fn walk_through(home: &ApiServer) {
    let chrony = manifest(home, "chrony.yaml", CHRONY);
    let infra = manifest(home, "infra.yaml", INFRA);
    assert!(kubectl(home, &["apply", "-f", &chrony]).contains("created"));
    assert!(kubectl(home, &["apply", "-f", &chrony]).contains("unchanged"));
    assert!(kubectl(home, &["apply", "-f", &infra]).contains("created"));
    let mode = kubectl(
        home,
        &[
            "get",
            "mc",
            "50-examplecorp-chrony",
            "-o",
            "jsonpath={.spec.config.storage.files[0].mode}",
        ],
    );
    assert_eq!(mode, "420");
    let changed = manifest(home, "chrony2.yaml", &CHRONY.replace("0644", "0600"));
    assert!(kubectl(home, &["apply", "-f", &changed]).contains("configured"));
    let columns = kubectl(home, &["get", "mc", "50-examplecorp-chrony"]);
    assert!(
        columns
            .starts_with("NAME                    GENERATEDBYCONTROLLER   IGNITIONVERSION   AGE"),
        "{columns}"
    );
    assert!(
        kubectl(home, &["describe", "mcp", "infra-walk"]).contains("node-role.kubernetes.io/infra")
    );
    kubectl(home, &["label", "mcp", "infra-walk", "team=storage"]);
    kubectl(home, &["annotate", "mcp", "infra-walk", "why=because"]);
    kubectl(
        home,
        &[
            "patch",
            "--type=merge",
            "--patch={\"spec\":{\"paused\":true}}",
            "machineconfigpool/infra-walk",
        ],
    );
    let paused = kubectl(
        home,
        &[
            "get",
            "mcp",
            "infra-walk",
            "-o",
            "jsonpath={.spec.paused} {.metadata.labels.team} {.metadata.annotations.why}",
        ],
    );
    assert_eq!(paused, "true storage because");
    let listed = kubectl(
        home,
        &["get", "mc", "-l", "machineconfiguration.openshift.io/role=worker", "-o", "name"],
    );
    assert_eq!(
        listed.trim(),
        "machineconfig.machineconfiguration.openshift.io/50-examplecorp-chrony"
    );
    kubectl(home, &["delete", "-f", &infra, "-f", &chrony]);
    assert!(!home.kubectl(&["get", "mcp", "infra-walk"]).unwrap().succeeded());
}

fn columns(home: &ApiServer) {
    let text = INFRA.replace("infra-walk", "columns");
    kubectl(home, &["apply", "-f", &manifest(home, "columns.yaml", &text)]);
    let output = kubectl(home, &["get", "mcp", "columns"]);
    let headings: Vec<&str> = output.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(
        headings,
        [
            "NAME",
            "CONFIG",
            "UPDATED",
            "UPDATING",
            "DEGRADED",
            "MACHINECOUNT",
            "READYMACHINECOUNT",
            "UPDATEDMACHINECOUNT",
            "DEGRADEDMACHINECOUNT",
            "AGE"
        ]
    );
}

fn explain(home: &ApiServer) {
    let output = kubectl(home, &["explain", "mcp.spec.paused"]);
    assert!(
        output.contains("KIND:       MachineConfigPool")
            && output.contains("FIELD: paused <boolean>"),
        "{output}"
    );
    let output = kubectl(home, &["explain", "node.spec.unschedulable"]);
    assert!(output.contains("FIELD: unschedulable <boolean>"), "{output}");
}

fn wait(home: &ApiServer) {
    let text = INFRA.replace("infra-walk", "waited");
    kubectl(home, &["apply", "-f", &manifest(home, "waited.yaml", &text)]);
    let status = "{\"status\":{\"conditions\":[{\"type\":\"Updated\",\"status\":\"True\",\"reason\":\"\",\"message\":\"\",\"lastTransitionTime\":null}]}}";
    kubectl(
        home,
        &["patch", "--subresource=status", "--type=merge", "--patch", status, "mcp/waited"],
    );
    kubectl(home, &["wait", "--for=condition=Updated", "--timeout=10s", "mcp/waited"]);
}

fn nodes(home: &ApiServer) {
    let node = "apiVersion: v1\nkind: Node\nmetadata:\n  name: printed\n  labels: {node-role.kubernetes.io/worker: \"\"}\n";
    kubectl(home, &["create", "-f", &manifest(home, "node.yaml", node)]);
    let status = "{\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}],\"nodeInfo\":{\"kubeletVersion\":\"v1.34.1\"}}}";
    kubectl(
        home,
        &["patch", "--subresource=status", "--type=merge", "--patch", status, "node/printed"],
    );
    kubectl(home, &["cordon", "printed"]);
    let output = kubectl(home, &["get", "nodes", "printed"]);
    let mut lines = output.lines();
    assert_eq!(
        lines.next().unwrap().split_whitespace().collect::<Vec<_>>(),
        ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    );
    let row: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(
        (row[1], row[2], row[4]),
        ("Ready,SchedulingDisabled", "worker", "v1.34.1"),
        "{output}"
    );
}

fn edit(home: &ApiServer) {
    let text = INFRA.replace("infra-walk", "edited");
    kubectl(home, &["apply", "-f", &manifest(home, "edited.yaml", &text)]);
    let editor =
        manifest(home, "editor", "#!/bin/sh\nsed -i 's/paused: false/paused: true/' \"$1\"\n");
    let mut permissions = fs::metadata(&editor).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
    fs::set_permissions(&editor, permissions).unwrap();
    let answer =
        home.kubectl_with(&["edit", "mcp", "edited"], &[("KUBE_EDITOR", &editor)]).unwrap();
    assert!(answer.succeeded(), "{answer:?}");
    assert_eq!(kubectl(home, &["get", "mcp", "edited", "-o", "jsonpath={.spec.paused}"]), "true");
}

fn typo(home: &ApiServer) {
    let text = INFRA.replace("infra-walk", "typo").replace("paused", "pausde");
    let answer = home.kubectl(&["apply", "-f", &manifest(home, "typo.yaml", &text)]).unwrap();
    assert!(!answer.succeeded());
    assert!(answer.stderr.contains("unknown field \"spec.pausde\""), "{answer:?}");
}
