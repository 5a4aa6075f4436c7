//! The binary from the outside: its output, its exit codes, and its handling of invalid input.
mod input;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn machinist(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
    command.args(arguments).current_dir(root()).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn assert_exit(output: &Output, code: i32) {
    let found = output.status.code();
    assert_eq!(found, Some(code), "stdout: {}\nstderr: {}", stdout(output), stderr(output));
}

#[test]
fn the_binary_is_a_kubectl_plugin_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = directory.path().join("kubectl-machinist");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_machinist"), &plugin).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&plugin);
        command.args(arguments).env_clear().env("HOME", directory.path()).output().unwrap()
    };
    let help = run(&["rollout", "status", "--help"]);
    assert_exit(&help, 0);
    assert!(stdout(&help).contains("Usage: kubectl machinist rollout status"), "{help:?}");
    // It connects to the cluster of kubectl, and to no hub of this machine.
    let refused = run(&["get", "mcp"]);
    assert_exit(&refused, 1);
    assert!(!stderr(&refused).contains("a hub on this machine"), "{refused:?}");
    assert!(stderr(&refused).contains(".kube/config"), "{refused:?}");
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn write(directory: &TempDir, name: &str, contents: impl AsRef<[u8]>) -> String {
    let path = directory.path().join(name);
    fs::write(&path, contents).unwrap();
    path.to_str().unwrap().to_owned()
}

fn machine_config(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": spec
    })
}

fn pool() -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker"},
        "spec": {
            "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}
        }
    })
}

/// Every example in `--help` works. Those that need an API server run on a hub and a Kubernetes cluster in
/// `tests/e2e/tests/kubectl_parity`.
#[test]
fn examples_in_the_help_work() {
    let commands = [
        "render",
        "diff",
        "validate",
        "explain",
        "ignition convert",
        "ignition merge",
        "rollout explain",
        "pointer",
        "crds",
        "completions",
        "version",
    ];
    for command in commands {
        let mut arguments: Vec<&str> = command.split(' ').collect();
        arguments.push("--help");
        let help = stdout(&machinist(&arguments));
        let example = help.lines().find_map(|line| {
            line.trim().strip_prefix("machinist ").filter(|_| line.starts_with("  machinist"))
        });
        let example = example.unwrap_or_else(|| panic!("{command}: no example in:\n{help}"));
        let output = machinist(&example.split(' ').collect::<Vec<_>>());
        assert_exit(&output, 0);
        assert!(!output.stdout.is_empty(), "{example}");
    }
}

#[test]
fn render_uses_the_image_of_the_stream_or_of_the_annotation() {
    let directory = TempDir::new().unwrap();
    let image = |name: &str| format!("registry.example/os/{name}@sha256:{}", "0".repeat(64));
    let stream =
        |name: &str| json!({"name": name, "osImage": image(name), "osExtensionsImage": image("x")});
    let streams = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "OSImageStream",
        "metadata": {"name": "cluster"}, "spec": {"defaultStream": "nine"},
        "status": {"defaultStream": "nine", "availableStreams": [stream("nine"), stream("ten")]},
    });
    let config = machine_config("50-a", &json!({"kernelArguments": ["a"]}));
    let mut follows = pool();
    follows["spec"]["osImageStream"] = json!({"name": "ten"});
    let mut own = pool();
    own["metadata"]["annotations"] = json!({"machinist.dev/os-image": "quay.io/own:1"});
    let mut both = follows.clone();
    both["metadata"] = own["metadata"].clone();
    for (pool, expected) in
        [(pool(), image("nine")), (follows, image("ten")), (own, "quay.io/own:1".to_owned())]
    {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [pool, config, streams]});
        let file = write(&directory, "all.json", list.to_string());
        let output = machinist(&["render", "--pool", "worker", "-f", &file, "-o", "json"]);
        assert_exit(&output, 0);
        assert_eq!(json_of(&output)["spec"]["osImageURL"], *expected);
        let explained = machinist(&["explain", "--pool", "worker", "-f", &file, "osImageURL"]);
        assert_exit(&explained, 0);
        assert!(
            stdout(&explained).contains("OSImageStream cluster, stream"),
            "{}",
            stdout(&explained)
        );
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [both, config, streams]});
    let file = write(&directory, "all.json", list.to_string());
    let refused = machinist(&["render", "--pool", "worker", "-f", &file]);
    assert_exit(&refused, 1);
    assert!(stderr(&refused).contains("simultaneously"), "{}", stderr(&refused));
}

#[test]
fn render_prints_the_object_or_its_name() {
    let name =
        machinist(&["render", "--pool", "worker", "-f", "examples/chrony.yaml", "-o", "name"]);
    assert_exit(&name, 0);
    let name = stdout(&name).trim().to_owned();
    assert!(name.starts_with("rendered-worker-"), "{name}");
    let object =
        machinist(&["render", "--pool", "worker", "-f", "examples/chrony.yaml", "-o", "json"]);
    assert_eq!(json_of(&object)["metadata"]["name"], name);
    assert_eq!(json_of(&object)["spec"]["config"]["ignition"]["version"], "3.5.0");
    let yaml = machinist(&["render", "--pool", "worker", "-f", "examples/chrony.yaml"]);
    assert!(stdout(&yaml).contains(&format!("  name: {name}\n")));
}

/// All cases recorded from MCO, through the binary.
#[test]
fn cases_hold_through_the_command_line() {
    let directory = TempDir::new().unwrap();
    let read = |name: &str| fs::read_to_string(root().join("tests/cases").join(name)).unwrap();
    for line in read("render.jsonl").lines().step_by(8) {
        let case: Value = serde_json::from_str(line).unwrap();
        let mut items = vec![case["pool"].clone(), case["controllerConfig"].clone()];
        items.extend(case["machineConfigs"].as_array().unwrap().iter().cloned());
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let file = write(&directory, "case.json", list.to_string());
        let pool = case["pool"]["metadata"]["name"].as_str().unwrap();
        let output = machinist(&["render", "--pool", pool, "-f", &file, "-o", "name"]);
        match case["expect"]["name"].as_str() {
            Some(name) => assert_eq!(stdout(&output).trim(), name, "{}", case["id"]),
            None => assert_exit(&output, 1),
        }
    }
    for line in read("convert.jsonl").lines().step_by(4) {
        let case: Value = serde_json::from_str(line).unwrap();
        let file = write(&directory, "config.ign", case["config"].to_string());
        let output =
            machinist(&["ignition", "convert", "--to", case["target"].as_str().unwrap(), &file]);
        match case["expect"].get("config") {
            Some(config) => assert_eq!(json_of(&output), *config, "{}", case["id"]),
            None => assert_exit(&output, 1),
        }
    }
    for line in read("reconcile.jsonl").lines().step_by(4) {
        let case: Value = serde_json::from_str(line).unwrap();
        let old = write(&directory, "old.json", case["old"].to_string());
        let new = write(&directory, "new.json", case["new"].to_string());
        let output = machinist(&["diff", &old, &new, "-o", "json"]);
        let accepted = case["expect"].get("error").is_none();
        assert_exit(&output, if accepted { 0 } else { 3 });
        assert_eq!(json_of(&output)["reconcilable"], accepted, "{}", case["id"]);
    }
}

#[test]
fn a_diff_shows_what_changes_and_masks_secrets() {
    let output = machinist(&["diff", "examples/chrony.yaml", "examples/chrony-and-hugepages.yaml"]);
    assert_exit(&output, 0);
    let text = stdout(&output);
    assert!(text.contains("+ kernel argument hugepages=32"), "{text}");
    assert!(text.contains("+server baz.example.net"), "{text}");
    assert!(!text.contains('\u{1b}'), "colour without a terminal: {text:?}");

    let directory = TempDir::new().unwrap();
    let config = |secret: &str| {
        machine_config(
            "x",
            &json!({"config": {
                "ignition": {"version": "3.5.0"},
                "passwd": {"users": [{"name": "core", "passwordHash": format!("$6$hash{secret}")}]},
                "storage": {"files": [
                    {"path": "/etc/private", "mode": 384, "contents": {"source": format!("data:,content{secret}")}},
                    {"path": "/var/lib/kubelet/config.json", "contents": {"source": format!("data:,pull{secret}")}}
                ]}
            }}),
        )
    };
    let old = write(&directory, "old.json", config("one").to_string());
    let new = write(&directory, "new.json", config("two").to_string());
    for form in ["text", "json"] {
        let output = machinist(&["diff", &old, &new, "-o", form]);
        assert_exit(&output, 0);
        let shown = format!("{}{}", stdout(&output), stderr(&output));
        for secret in ["hashone", "hashtwo", "contentone", "contenttwo", "pullone", "pulltwo"] {
            assert!(!shown.contains(secret), "{form}: {secret} is shown:\n{shown}");
        }
        assert!(shown.contains("/etc/private") && shown.contains("passwordHash"), "{shown}");
    }
}

#[test]
fn explain_names_sources_and_what_they_overrode() {
    let arguments = ["explain", "--pool", "infra", "-f", "examples/infra-pool.yaml", "/etc/motd"];
    let text = stdout(&machinist(&arguments));
    assert!(text.contains("99-worker-motd: decides mode; "), "{text}");
    assert!(text.contains("contents overridden by 50-infra-motd"), "{text}");
    assert!(text.contains("50-infra-motd: decides contents"), "{text}");
    let json = json_of(&machinist(&[&arguments[..], &["-o", "json"]].concat()));
    assert_eq!(json["items"][0]["kind"], "file");
    let missing =
        machinist(&["explain", "--pool", "infra", "-f", "examples/infra-pool.yaml", "/nope"]);
    assert_exit(&missing, 1);
    assert!(stderr(&missing).contains("/nope is not in rendered-infra-"));
}

#[test]
fn validate_lists_every_problem_with_location_field_and_remedy() {
    let directory = TempDir::new().unwrap();
    let config = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [
        {"path": "relative", "contents": {"source": "data:,x"}},
        {"path": "/etc/a", "mode": "0644"},
    ]}});
    let remote = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [
        {"path": "/etc/a", "contents": {"source": "https://example.com/a"}},
    ]}});
    let documents = [
        machine_config("a", &json!({"config": config})),
        machine_config("b", &json!({"kernelType": "bogus"})),
        machine_config("c", &json!({"config": remote})),
        machine_config("d", &json!({"kernelArguments": "not a list"})),
    ];
    let text: Vec<String> = documents.iter().map(ToString::to_string).collect();
    let file = write(&directory, "bad.yaml", text.join("\n---\n"));
    let output = machinist(&["validate", "-f", &file, "-o", "json"]);
    assert_exit(&output, 1);
    let answer = json_of(&output);
    let found: Vec<(u64, &str, &str)> = answer["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| {
            assert!(f["file"].as_str().unwrap().ends_with("bad.yaml"));
            assert!(!f["remedy"].as_str().unwrap().is_empty(), "{f}");
            (
                f["document"].as_u64().unwrap(),
                f["severity"].as_str().unwrap(),
                f["field"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            (1, "error", "spec.config.storage.files[0].path"),
            (1, "error", "spec.config.storage.files[1].mode"),
            (2, "error", "spec.kernelType"),
            (3, "warning", "spec.config.storage.files[0].contents.source"),
            (4, "error", "spec.kernelArguments"),
        ]
    );
    let good = machinist(&["validate", "-f", "examples/"]);
    assert_exit(&good, 0);
}

/// `validate` finds offline what an API server rejects; the cases were recorded from a real one.
#[test]
fn validate_applies_schemas_and_rules_of_all_kinds() {
    let directory = root().join("tests/cases/api");
    let good = machinist(&["validate", "-f", directory.to_str().unwrap(), "-o", "json"]);
    let findings = json_of(&good)["findings"].clone();
    // Unlike an API server, `validate` also checks Ignition configs, selectors and what has an effect.
    let deeper = [
        "same object",
        "invalid version",
        "a non-empty selector is required",
        "only the MachineConfiguration cluster has an effect",
    ];
    let is_wrong = |finding: &&Value| {
        let message = finding["message"].as_str().unwrap();
        finding["severity"] == "error" && !deeper.iter().any(|part| message.contains(part))
    };
    let wrong: Vec<&Value> = findings.as_array().unwrap().iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");

    let scratch = TempDir::new().unwrap();
    let mut files = Vec::new();
    for entry in fs::read_dir(directory.join("refused")).unwrap() {
        let path = entry.unwrap().path();
        let case: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        // With a `before`, the change is refused, not the object.
        if case.get("before").is_none() {
            let name = path.file_name().unwrap().to_str().unwrap();
            files.push(write(&scratch, name, case["object"].to_string()));
        }
    }
    assert!(files.len() > 50, "{files:?}");
    let directory = scratch.path().to_str().unwrap();
    let findings =
        json_of(&machinist(&["validate", "-f", directory, "-o", "json"]))["findings"].clone();
    let wrong: Vec<&Value> = findings.as_array().unwrap().iter().filter(is_wrong).collect();
    files.retain(|file| !wrong.iter().any(|finding| finding["file"] == file.as_str()));
    assert!(files.is_empty(), "nothing is found in {files:?}");
}
