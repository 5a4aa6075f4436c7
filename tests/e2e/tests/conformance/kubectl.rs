//! Walk-throughs of typical tasks with the real kubectl.

use super::ConformanceCheck;
use super::api_server::ApiServer;
use serde_json::json;
use std::fs;

pub const CHECKS: &[ConformanceCheck] = &[
    ("kubectl apply, get, describe, label, annotate, patch, delete", walk_through),
    ("kubectl get mcp prints the seed's columns", columns),
    ("kubectl explain knows our fields", explain),
    ("kubectl wait sees a condition", wait),
    ("kubectl get nodes prints nodes", nodes),
    ("kubectl edit changes an object", edit),
    ("kubectl refuses a typo", typo),
    ("kubectl create token", create_token),
    ("kubectl apply --prune without an allow-list", prune),
    ("kubectl get all, cluster-info and an unknown kind", taken_for_granted),
];

/// Runs kubectl, which must succeed.
fn kubectl(api_server: &ApiServer, arguments: &[&str]) -> String {
    let output = api_server.kubectl(arguments).unwrap();
    assert!(output.succeeded(), "{}: kubectl {arguments:?}: {output:?}", api_server.name);
    output.stdout
}

fn manifest(api_server: &ApiServer, name: &str, text: &str) -> String {
    let path = api_server.dir().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn create_token(api_server: &ApiServer) {
    kubectl(api_server, &["create", "serviceaccount", "robot"]);
    let token = kubectl(api_server, &["create", "token", "robot", "--duration", "1h"]);
    assert_eq!(token.trim().split('.').count(), 3, "a JSON web token");
    let review = json!({"spec": {"token": token.trim()}});
    let review = api_server.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).body;
    let user = &review["status"]["user"];
    assert_eq!(user["username"], "system:serviceaccount:default:robot", "{review}");
    let accounts = kubectl(api_server, &["get", "serviceaccounts", "robot"]);
    assert!(accounts.contains("NAME    SECRETS   AGE\nrobot   0"), "{accounts}");
    let output = api_server.kubectl(&["create", "token", "robot", "--duration", "5s"]).unwrap();
    assert!(
        output.stderr.contains("may not specify a duration less than 10 minutes"),
        "{output:?}"
    );
    kubectl(api_server, &["delete", "serviceaccount", "robot"]);
    let output = api_server.kubectl(&["create", "token", "robot"]).unwrap();
    assert!(output.stderr.contains("serviceaccounts \"robot\" not found"), "{output:?}");
}

fn prune(api_server: &ApiServer) {
    let map = |name: &str| {
        let labels = "labels: {prune: me}";
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, {labels}}}\n")
    };
    let both = [map("prune-1"), map("prune-2")].join("---\n");
    let both = manifest(api_server, "prune-both.yaml", &both);
    let one = manifest(api_server, "prune-one.yaml", &map("prune-1"));
    kubectl(api_server, &["apply", "--prune", "-l", "prune=me", "-f", &both]);
    let text = kubectl(api_server, &["apply", "--prune", "-l", "prune=me", "-f", &one]);
    assert!(
        text.contains("configmap/prune-1 unchanged") && text.contains("configmap/prune-2 pruned"),
        "{text}"
    );
}

fn taken_for_granted(api_server: &ApiServer) {
    kubectl(api_server, &["get", "all"]);
    for resource in ["pods", "services", "deployments.apps", "jobs", "ingresses"] {
        kubectl(api_server, &["get", resource, "-A"]);
    }
    let text = kubectl(api_server, &["cluster-info"]);
    assert!(text.contains("control plane") && text.contains("is running at"), "{text}");
    let unknown = "apiVersion: example.com/v1\nkind: Foo\nmetadata: {name: x}\n";
    let unknown = manifest(api_server, "unknown.yaml", unknown);
    let output = api_server.kubectl(&["apply", "-f", &unknown]).unwrap();
    let expected = "no matches for kind \"Foo\" in version \"example.com/v1\"\nensure CRDs are installed first";
    assert!(output.stderr.contains(expected), "{output:?}");
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

fn walk_through(api_server: &ApiServer) {
    let chrony = manifest(api_server, "chrony.yaml", CHRONY);
    let infra = manifest(api_server, "infra.yaml", INFRA);
    assert!(kubectl(api_server, &["apply", "-f", &chrony]).contains("created"));
    assert!(kubectl(api_server, &["apply", "-f", &chrony]).contains("unchanged"));
    assert!(kubectl(api_server, &["apply", "-f", &infra]).contains("created"));
    let mode = kubectl(
        api_server,
        &[
            "get",
            "mc",
            "50-examplecorp-chrony",
            "-o",
            "jsonpath={.spec.config.storage.files[0].mode}",
        ],
    );
    assert_eq!(mode, "420");
    let changed = manifest(api_server, "chrony2.yaml", &CHRONY.replace("0644", "0600"));
    assert!(kubectl(api_server, &["apply", "-f", &changed]).contains("configured"));
    let columns = kubectl(api_server, &["get", "mc", "50-examplecorp-chrony"]);
    assert!(
        columns
            .starts_with("NAME                    GENERATEDBYCONTROLLER   IGNITIONVERSION   AGE"),
        "{columns}"
    );
    assert!(
        kubectl(api_server, &["describe", "mcp", "infra-walk"])
            .contains("node-role.kubernetes.io/infra")
    );
    kubectl(api_server, &["label", "mcp", "infra-walk", "team=storage"]);
    kubectl(api_server, &["annotate", "mcp", "infra-walk", "why=because"]);
    kubectl(
        api_server,
        &[
            "patch",
            "--type=merge",
            "--patch={\"spec\":{\"paused\":true}}",
            "machineconfigpool/infra-walk",
        ],
    );
    let paused = kubectl(
        api_server,
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
        api_server,
        &["get", "mc", "-l", "machineconfiguration.openshift.io/role=worker", "-o", "name"],
    );
    assert_eq!(
        listed.trim(),
        "machineconfig.machineconfiguration.openshift.io/50-examplecorp-chrony"
    );
    kubectl(api_server, &["delete", "-f", &infra, "-f", &chrony]);
    assert!(!api_server.kubectl(&["get", "mcp", "infra-walk"]).unwrap().succeeded());
}

fn columns(api_server: &ApiServer) {
    let text = INFRA.replace("infra-walk", "columns");
    kubectl(api_server, &["apply", "-f", &manifest(api_server, "columns.yaml", &text)]);
    let output = kubectl(api_server, &["get", "mcp", "columns"]);
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

fn explain(api_server: &ApiServer) {
    let output = kubectl(api_server, &["explain", "mcp.spec.paused"]);
    assert!(
        output.contains("KIND:       MachineConfigPool")
            && output.contains("FIELD: paused <boolean>"),
        "{output}"
    );
    let output = kubectl(api_server, &["explain", "node.spec.unschedulable"]);
    assert!(output.contains("FIELD: unschedulable <boolean>"), "{output}");
}

fn wait(api_server: &ApiServer) {
    let text = INFRA.replace("infra-walk", "waited");
    kubectl(api_server, &["apply", "-f", &manifest(api_server, "waited.yaml", &text)]);
    let status = "{\"status\":{\"conditions\":[{\"type\":\"Updated\",\"status\":\"True\",\"reason\":\"\",\"message\":\"\",\"lastTransitionTime\":null}]}}";
    kubectl(
        api_server,
        &["patch", "--subresource=status", "--type=merge", "--patch", status, "mcp/waited"],
    );
    kubectl(api_server, &["wait", "--for=condition=Updated", "--timeout=10s", "mcp/waited"]);
}

fn nodes(api_server: &ApiServer) {
    let node = "apiVersion: v1\nkind: Node\nmetadata:\n  name: printed\n  labels: {node-role.kubernetes.io/worker: \"\"}\n";
    kubectl(api_server, &["create", "-f", &manifest(api_server, "node.yaml", node)]);
    let status = "{\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}],\"nodeInfo\":{\"kubeletVersion\":\"v1.34.1\"}}}";
    kubectl(
        api_server,
        &["patch", "--subresource=status", "--type=merge", "--patch", status, "node/printed"],
    );
    kubectl(api_server, &["cordon", "printed"]);
    let output = kubectl(api_server, &["get", "nodes", "printed"]);
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

fn edit(api_server: &ApiServer) {
    let text = INFRA.replace("infra-walk", "edited");
    kubectl(api_server, &["apply", "-f", &manifest(api_server, "edited.yaml", &text)]);
    let editor = manifest(
        api_server,
        "editor",
        "#!/bin/sh\nsed -i 's/paused: false/paused: true/' \"$1\"\n",
    );
    let mut permissions = fs::metadata(&editor).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
    fs::set_permissions(&editor, permissions).unwrap();
    let output =
        api_server.kubectl_with(&["edit", "mcp", "edited"], &[("KUBE_EDITOR", &editor)]).unwrap();
    assert!(output.succeeded(), "{output:?}");
    assert_eq!(
        kubectl(api_server, &["get", "mcp", "edited", "-o", "jsonpath={.spec.paused}"]),
        "true"
    );
}

fn typo(api_server: &ApiServer) {
    let text = INFRA.replace("infra-walk", "typo").replace("paused", "pausde");
    let output =
        api_server.kubectl(&["apply", "-f", &manifest(api_server, "typo.yaml", &text)]).unwrap();
    assert!(!output.succeeded());
    assert!(output.stderr.contains("unknown field \"spec.pausde\""), "{output:?}");
}
