//! `apply`, `label`, `annotate` and `delete`, in turn with kubectl.

use super::{kubectl, machinist, machinist_fails, manifest};
use machinist_e2e::ApiServer;

const CONFIG: &str = "\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-comfort
  labels:
    machineconfiguration.openshift.io/role: worker
spec:
  kernelArguments:
  - a<b&c=1
  config:
    ignition:
      version: 3.5.0
";

pub fn run_checks(home: &ApiServer) {
    alternate_with_kubectl(home);
    namespaces(home);
    all_or_nothing(home);
    dry_run(home);
    labels(home);
    deletion(home);
}

fn alternate_with_kubectl(home: &ApiServer) {
    let first = manifest(home, "first.yaml", CONFIG);
    let second = CONFIG.replace("  kernelArguments:\n  - a<b&c=1\n", "  fips: true\n");
    let second = manifest(home, "second.yaml", &second);
    let name = "machineconfig.machineconfiguration.openshift.io/50-comfort";
    let ours = |file: &str, word: &str| {
        assert_eq!(machinist(home, &["apply", "-f", file]), format!("{name} {word}\n"));
    };
    let theirs = |file: &str, word: &str| {
        assert_eq!(kubectl(home, &["apply", "-f", file]), format!("{name} {word}\n"));
    };
    let spec = || {
        let spec = kubectl(home, &["get", "mc", "50-comfort", "-o", "jsonpath={.spec}"]);
        let spec: serde_json::Value = serde_json::from_str(&spec).unwrap();
        let mut keys: Vec<String> = spec.as_object().unwrap().keys().cloned().collect();
        keys.retain(|key| !key.starts_with("base"));
        keys
    };
    ours(&first, "created");
    ours(&first, "unchanged");
    theirs(&first, "unchanged");
    kubectl(home, &["label", "mc", "50-comfort", "theirs=yes"]);
    kubectl(
        home,
        &["patch", "mc", "50-comfort", "--type=merge", "-p", "{\"spec\":{\"osImageURL\":\"x\"}}"],
    );
    theirs(&second, "configured");
    assert!(spec().contains(&"fips".to_owned()) && !spec().contains(&"kernelArguments".to_owned()));
    ours(&second, "unchanged");
    ours(&first, "configured");
    assert!(!spec().contains(&"fips".to_owned()) && spec().contains(&"kernelArguments".to_owned()));
    theirs(&first, "unchanged");
    assert!(spec().contains(&"osImageURL".to_owned()), "a field of others");
    // A manifest without labels takes its own away, and leaves those of others.
    let bare =
        CONFIG.replace("  labels:\n    machineconfiguration.openshift.io/role: worker\n", "");
    ours(&manifest(home, "bare.yaml", &bare), "configured");
    let labels = kubectl(home, &["get", "mc", "50-comfort", "-o", "jsonpath={.metadata.labels}"]);
    assert_eq!(labels, "{\"theirs\":\"yes\"}");
}

fn namespaces(home: &ApiServer) {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata: {a: \"1\"}\n";
    let file = manifest(home, "settings.yaml", text);
    let space = manifest(
        home,
        "space.yaml",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: comfort}\n",
    );
    assert_eq!(machinist(home, &["apply", "-f", &space]), "namespace/comfort created\n");
    assert_eq!(
        machinist(home, &["apply", "-n", "comfort", "-f", &file]),
        "configmap/settings created\n"
    );
    assert_eq!(
        kubectl(home, &["apply", "-n", "comfort", "-f", &file]),
        "configmap/settings unchanged\n"
    );
    let found =
        machinist(home, &["get", "-A", "configmaps", "--field-selector", "metadata.name=settings"]);
    assert!(
        found.starts_with("NAMESPACE   NAME       DATA   AGE\ncomfort     settings   1 "),
        "{found}"
    );
    let own = manifest(
        home,
        "own.yaml",
        &text.replace("name: settings", "name: settings\n  namespace: comfort"),
    );
    assert!(
        machinist_fails(home, &["apply", "-n", "default", "-f", &own], 1).contains("leave one out")
    );
    let gone = machinist(home, &["delete", "-f", &own]);
    assert_eq!(gone, "configmap \"settings\" deleted from comfort namespace\n");
}

fn all_or_nothing(home: &ApiServer) {
    let unknown = format!(
        "{}---\napiVersion: example.com/v1\nkind: Nothing\nmetadata: {{name: a}}\n",
        CONFIG.replace("50-comfort", "50-never")
    );
    let file = manifest(home, "unknown.yaml", &unknown);
    let said = machinist_fails(home, &["apply", "-f", &file], 1);
    for part in
        ["document 2", "Nothing/a", "no kind Nothing in example.com/v1", "nothing was changed"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    machinist_fails(home, &["get", "mc", "50-never"], 1);
    let twice = format!("{CONFIG}---\n{CONFIG}");
    let said = machinist_fails(home, &["apply", "-f", &manifest(home, "twice.yaml", &twice)], 1);
    assert!(said.contains("the same object is also in"), "{said}");
    // What the server refuses does not stop the others.
    let typo = CONFIG.replace("50-comfort", "50-typo").replace("kernelArguments", "kernelArgs");
    let mixed = format!("{typo}---\n{}", CONFIG.replace("50-comfort", "50-good"));
    let file = manifest(home, "mixed.yaml", &mixed);
    let answer = home.machinist(&["apply", "-f", &file]).unwrap();
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(
        answer.stderr.contains("50-typo: ") && answer.stderr.contains("kernelArgs"),
        "{answer:?}"
    );
    assert!(answer.stdout.contains("50-good created"), "{answer:?}");
}

fn dry_run(home: &ApiServer) {
    let file = manifest(home, "dry.yaml", &CONFIG.replace("50-comfort", "50-dry"));
    let said = machinist(home, &["apply", "--dry-run", "-f", &file]);
    assert_eq!(
        said,
        "machineconfig.machineconfiguration.openshift.io/50-dry created (server dry run)\n"
    );
    assert!(
        machinist_fails(home, &["get", "mc/50-dry"], 1).contains("\"50-dry\" not found (NotFound)")
    );
    let shown = machinist(home, &["apply", "--dry-run", "-o", "json", "-f", &file]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["metadata"]["name"], "50-dry");
}

fn labels(home: &ApiServer) {
    let name = "machineconfig.machineconfiguration.openshift.io/50-comfort";
    let read = |field: &str| {
        kubectl(
            home,
            &["get", "mc", "50-comfort", "-o", &format!("jsonpath={{.metadata.{field}}}")],
        )
    };
    for (arguments, said) in [
        (vec!["label", "mc", "50-comfort", "tier=gold"], "labeled"),
        (vec!["label", "mc", "50-comfort", "tier=gold"], "not labeled"),
        (vec!["label", "mc/50-comfort", "tier=tin", "--overwrite"], "labeled"),
        (vec!["annotate", "mc", "50-comfort", "why=because it is"], "annotated"),
        (vec!["annotate", "mc", "-l", "tier=tin", "more=1"], "annotated"),
        (vec!["label", "mc", "50-comfort", "theirs-"], "unlabeled"),
    ] {
        assert_eq!(machinist(home, &arguments), format!("{name} {said}\n"), "{arguments:?}");
    }
    let said = machinist_fails(home, &["label", "mc", "50-comfort", "tier=lead"], 1);
    assert!(
        said.contains("tier already has the value \"tin\"") && said.contains("--overwrite"),
        "{said}"
    );
    assert_eq!(read("labels"), "{\"tier\":\"tin\"}");
    assert_eq!(
        (read("annotations.why"), read("annotations.more")),
        ("because it is".into(), "1".into())
    );
    assert!(machinist_fails(home, &["label", "mc", "50-comfort", "b@d=1"], 1).contains("b@d"));
    machinist_fails(home, &["label", "mc", "50-comfort"], 2);
    machinist_fails(home, &["label", "mc", "tier=tin"], 2);
}

fn deletion(home: &ApiServer) {
    let said = machinist(home, &["delete", "mc", "50-comfort", "50-good"]);
    let label = "machineconfig.machineconfiguration.openshift.io";
    assert_eq!(said, format!("{label} \"50-comfort\" deleted\n{label} \"50-good\" deleted\n"));
    assert!(machinist_fails(home, &["delete", "mc", "50-comfort"], 1).contains("not found"));
    assert_eq!(machinist(home, &["delete", "mc", "50-comfort", "--ignore-not-found"]), "");
    machinist_fails(home, &["delete", "mc"], 2);
    machinist_fails(home, &["delete"], 2);
    for name in ["50-x", "50-y"] {
        let text = CONFIG.replace("50-comfort", name).replace("role: worker", "role: throwaway");
        machinist(home, &["apply", "-f", &manifest(home, "throwaway.yaml", &text)]);
    }
    let said = machinist(
        home,
        &["delete", "mc", "-l", "machineconfiguration.openshift.io/role=throwaway"],
    );
    assert_eq!(said.lines().count(), 2, "{said}");
    let infra = "examples/infra-pool.yaml";
    machinist(home, &["apply", "-f", infra, "-f", "examples/chrony.yaml"]);
    assert_eq!(machinist(home, &["delete", "-f", infra]).lines().count(), 3);
}
