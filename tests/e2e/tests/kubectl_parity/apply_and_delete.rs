//! `apply`, `label`, `annotate` and `delete`, alternating with kubectl.

use super::{kubectl, machinist, machinist_fails, manifest};
use machinist_e2e::ApiServer;

const CONFIG: &str = "\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-parity
  labels:
    machineconfiguration.openshift.io/role: worker
spec:
  kernelArguments:
  - a<b&c=1
  config:
    ignition:
      version: 3.5.0
";

pub fn run_checks(api_server: &ApiServer) {
    alternate_with_kubectl(api_server);
    namespaces(api_server);
    all_or_nothing(api_server);
    dry_run(api_server);
    labels(api_server);
    deletion(api_server);
}

fn alternate_with_kubectl(api_server: &ApiServer) {
    let first = manifest(api_server, "first.yaml", CONFIG);
    let second = CONFIG.replace("  kernelArguments:\n  - a<b&c=1\n", "  fips: true\n");
    let second = manifest(api_server, "second.yaml", &second);
    let name = "machineconfig.machineconfiguration.openshift.io/50-parity";
    let ours = |file: &str, word: &str| {
        assert_eq!(machinist(api_server, &["apply", "-f", file]), format!("{name} {word}\n"));
    };
    let theirs = |file: &str, word: &str| {
        assert_eq!(kubectl(api_server, &["apply", "-f", file]), format!("{name} {word}\n"));
    };
    let spec = || {
        let spec = kubectl(api_server, &["get", "mc", "50-parity", "-o", "jsonpath={.spec}"]);
        let spec: serde_json::Value = serde_json::from_str(&spec).unwrap();
        let mut keys: Vec<String> = spec.as_object().unwrap().keys().cloned().collect();
        keys.retain(|key| !key.starts_with("base"));
        keys
    };
    ours(&first, "created");
    ours(&first, "unchanged");
    theirs(&first, "unchanged");
    kubectl(api_server, &["label", "mc", "50-parity", "theirs=yes"]);
    kubectl(
        api_server,
        &["patch", "mc", "50-parity", "--type=merge", "-p", "{\"spec\":{\"osImageURL\":\"x\"}}"],
    );
    theirs(&second, "configured");
    assert!(spec().contains(&"fips".to_owned()) && !spec().contains(&"kernelArguments".to_owned()));
    ours(&second, "unchanged");
    ours(&first, "configured");
    assert!(!spec().contains(&"fips".to_owned()) && spec().contains(&"kernelArguments".to_owned()));
    theirs(&first, "unchanged");
    assert!(spec().contains(&"osImageURL".to_owned()), "a field of others");
    // A manifest without labels removes its own labels and keeps those of others.
    let bare =
        CONFIG.replace("  labels:\n    machineconfiguration.openshift.io/role: worker\n", "");
    ours(&manifest(api_server, "bare.yaml", &bare), "configured");
    let labels =
        kubectl(api_server, &["get", "mc", "50-parity", "-o", "jsonpath={.metadata.labels}"]);
    assert_eq!(labels, "{\"theirs\":\"yes\"}");
}

fn namespaces(api_server: &ApiServer) {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata: {a: \"1\"}\n";
    let file = manifest(api_server, "settings.yaml", text);
    let space = manifest(
        api_server,
        "space.yaml",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: parity}\n",
    );
    assert_eq!(machinist(api_server, &["apply", "-f", &space]), "namespace/parity created\n");
    assert_eq!(
        machinist(api_server, &["apply", "-n", "parity", "-f", &file]),
        "configmap/settings created\n"
    );
    assert_eq!(
        kubectl(api_server, &["apply", "-n", "parity", "-f", &file]),
        "configmap/settings unchanged\n"
    );
    let found = machinist(
        api_server,
        &["get", "-A", "configmaps", "--field-selector", "metadata.name=settings"],
    );
    assert!(
        found.starts_with("NAMESPACE   NAME       DATA   AGE\nparity      settings   1 "),
        "{found}"
    );
    let own = manifest(
        api_server,
        "own.yaml",
        &text.replace("name: settings", "name: settings\n  namespace: parity"),
    );
    assert!(
        machinist_fails(api_server, &["apply", "-n", "default", "-f", &own], 1)
            .contains("remove one")
    );
    let gone = machinist(api_server, &["delete", "-f", &own]);
    assert_eq!(gone, "configmap \"settings\" deleted from parity namespace\n");
}

fn all_or_nothing(api_server: &ApiServer) {
    let unknown = format!(
        "{}---\napiVersion: example.com/v1\nkind: Nothing\nmetadata: {{name: a}}\n",
        CONFIG.replace("50-parity", "50-never")
    );
    let file = manifest(api_server, "unknown.yaml", &unknown);
    let output = machinist_fails(api_server, &["apply", "-f", &file], 1);
    for part in [
        "document 2",
        "Nothing/a",
        "does not serve Nothing in example.com/v1",
        "nothing was changed",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    machinist_fails(api_server, &["get", "mc", "50-never"], 1);
    // The same object with other contents; a mere repetition is read once.
    let other = CONFIG.replace("spec:", "spec:\n  fips: true");
    let twice = format!("{CONFIG}---\n{other}");
    let output = machinist_fails(
        api_server,
        &["apply", "-f", &manifest(api_server, "twice.yaml", &twice)],
        1,
    );
    assert!(output.contains("the same object is also in"), "{output}");
    // An object that the server refuses does not stop the others.
    let typo = CONFIG.replace("50-parity", "50-typo").replace("kernelArguments", "kernelArgs");
    let mixed = format!("{typo}---\n{}", CONFIG.replace("50-parity", "50-good"));
    let file = manifest(api_server, "mixed.yaml", &mixed);
    let output = api_server.machinist(&["apply", "-f", &file]).unwrap();
    assert_eq!(output.code, 1, "{output:?}");
    assert!(
        output.stderr.contains("50-typo: ") && output.stderr.contains("kernelArgs"),
        "{output:?}"
    );
    assert!(output.stdout.contains("50-good created"), "{output:?}");
}

fn dry_run(api_server: &ApiServer) {
    let file = manifest(api_server, "dry.yaml", &CONFIG.replace("50-parity", "50-dry"));
    let output = machinist(api_server, &["apply", "--dry-run", "-f", &file]);
    assert_eq!(
        output,
        "machineconfig.machineconfiguration.openshift.io/50-dry created (server dry run)\n"
    );
    assert!(
        machinist_fails(api_server, &["get", "mc/50-dry"], 1)
            .contains("\"50-dry\" not found (NotFound)")
    );
    let shown = machinist(api_server, &["apply", "--dry-run", "-o", "json", "-f", &file]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["metadata"]["name"], "50-dry");
}

fn labels(api_server: &ApiServer) {
    let name = "machineconfig.machineconfiguration.openshift.io/50-parity";
    let read = |field: &str| {
        kubectl(
            api_server,
            &["get", "mc", "50-parity", "-o", &format!("jsonpath={{.metadata.{field}}}")],
        )
    };
    for (arguments, output) in [
        (vec!["label", "mc", "50-parity", "tier=gold"], "labeled"),
        (vec!["label", "mc", "50-parity", "tier=gold"], "not labeled"),
        (vec!["label", "mc/50-parity", "tier=tin", "--overwrite"], "labeled"),
        (vec!["annotate", "mc", "50-parity", "why=because it is"], "annotated"),
        (vec!["annotate", "mc", "-l", "tier=tin", "more=1"], "annotated"),
        (vec!["label", "mc", "50-parity", "theirs-"], "unlabeled"),
    ] {
        assert_eq!(
            machinist(api_server, &arguments),
            format!("{name} {output}\n"),
            "{arguments:?}"
        );
    }
    let output = machinist_fails(api_server, &["label", "mc", "50-parity", "tier=lead"], 1);
    assert!(
        output.contains("tier already has the value \"tin\"") && output.contains("--overwrite"),
        "{output}"
    );
    assert_eq!(read("labels"), "{\"tier\":\"tin\"}");
    assert_eq!(
        (read("annotations.why"), read("annotations.more")),
        ("because it is".into(), "1".into())
    );
    assert!(machinist_fails(api_server, &["label", "mc", "50-parity", "b@d=1"], 1).contains("b@d"));
    machinist_fails(api_server, &["label", "mc", "50-parity"], 2);
    machinist_fails(api_server, &["label", "mc", "tier=tin"], 2);
}

fn deletion(api_server: &ApiServer) {
    let output = machinist(api_server, &["delete", "mc", "50-parity", "50-good"]);
    let label = "machineconfig.machineconfiguration.openshift.io";
    assert_eq!(output, format!("{label} \"50-parity\" deleted\n{label} \"50-good\" deleted\n"));
    assert!(machinist_fails(api_server, &["delete", "mc", "50-parity"], 1).contains("not found"));
    assert_eq!(machinist(api_server, &["delete", "mc", "50-parity", "--ignore-not-found"]), "");
    machinist_fails(api_server, &["delete", "mc"], 2);
    machinist_fails(api_server, &["delete"], 2);
    for name in ["50-x", "50-y"] {
        let text = CONFIG.replace("50-parity", name).replace("role: worker", "role: throwaway");
        machinist(api_server, &["apply", "-f", &manifest(api_server, "throwaway.yaml", &text)]);
    }
    let output = machinist(
        api_server,
        &["delete", "mc", "-l", "machineconfiguration.openshift.io/role=throwaway"],
    );
    assert_eq!(output.lines().count(), 2, "{output}");
    let infra = "examples/infra-pool.yaml";
    machinist(api_server, &["apply", "-f", infra, "-f", "examples/chrony.yaml"]);
    assert_eq!(machinist(api_server, &["delete", "-f", infra]).lines().count(), 3);
}
