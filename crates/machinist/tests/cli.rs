//! The program from the outside: what it prints where, its exit codes, and what it does with bad
//! input.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests may panic")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

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

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn write(folder: &TempDir, name: &str, contents: impl AsRef<[u8]>) -> String {
    let path = folder.path().join(name);
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

/// Every example in a `--help` works as it stands. Those that need a home are tried on both in
/// `tests/e2e/tests/comfort`.
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
fn rendering_takes_the_image_of_the_stream_or_of_the_annotation() {
    let folder = TempDir::new().unwrap();
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
        let file = write(&folder, "all.json", list.to_string());
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
    let file = write(&folder, "all.json", list.to_string());
    let refused = machinist(&["render", "--pool", "worker", "-f", &file]);
    assert_exit(&refused, 1);
    assert!(stderr(&refused).contains("simultaneously"), "{}", stderr(&refused));
}

#[test]
fn rendering_gives_the_object_or_its_name() {
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

/// All cases of the real system, through the program itself.
#[test]
fn cases_hold_through_the_command_line() {
    let folder = TempDir::new().unwrap();
    let read = |name: &str| fs::read_to_string(root().join("tests/cases").join(name)).unwrap();
    for line in read("render.jsonl").lines().step_by(8) {
        let case: Value = serde_json::from_str(line).unwrap();
        let mut items = vec![case["pool"].clone(), case["controllerConfig"].clone()];
        items.extend(case["machineConfigs"].as_array().unwrap().iter().cloned());
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let file = write(&folder, "case.json", list.to_string());
        let pool = case["pool"]["metadata"]["name"].as_str().unwrap();
        let output = machinist(&["render", "--pool", pool, "-f", &file, "-o", "name"]);
        match case["expect"]["name"].as_str() {
            Some(name) => assert_eq!(stdout(&output).trim(), name, "{}", case["id"]),
            None => assert_exit(&output, 1),
        }
    }
    for line in read("convert.jsonl").lines().step_by(4) {
        let case: Value = serde_json::from_str(line).unwrap();
        let file = write(&folder, "config.ign", case["config"].to_string());
        let output =
            machinist(&["ignition", "convert", "--to", case["target"].as_str().unwrap(), &file]);
        match case["expect"].get("config") {
            Some(config) => assert_eq!(json_of(&output), *config, "{}", case["id"]),
            None => assert_exit(&output, 1),
        }
    }
    for line in read("reconcile.jsonl").lines().step_by(4) {
        let case: Value = serde_json::from_str(line).unwrap();
        let old = write(&folder, "old.json", case["old"].to_string());
        let new = write(&folder, "new.json", case["new"].to_string());
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

    let folder = TempDir::new().unwrap();
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
    let old = write(&folder, "old.json", config("one").to_string());
    let new = write(&folder, "new.json", config("two").to_string());
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
fn validate_lists_every_problem_with_place_field_and_remedy() {
    let folder = TempDir::new().unwrap();
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
    let file = write(&folder, "bad.yaml", text.join("\n---\n"));
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

/// What an API server says to our kinds, `validate` says offline: the cases are those of a real one.
#[test]
fn validate_knows_the_schemas_and_rules_of_all_kinds() {
    let folder = root().join("tests/cases/api");
    let good = machinist(&["validate", "-f", folder.to_str().unwrap(), "-o", "json"]);
    let findings = json_of(&good)["findings"].clone();
    // An API server does not look into Ignition configs and selectors; `validate` does.
    let deeper = ["same object", "invalid version", "a non-empty selector is required"];
    let is_wrong = |finding: &&Value| {
        let message = finding["message"].as_str().unwrap();
        finding["severity"] == "error" && !deeper.iter().any(|part| message.contains(part))
    };
    let wrong: Vec<&Value> = findings.as_array().unwrap().iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");

    let scratch = TempDir::new().unwrap();
    let mut files = Vec::new();
    for entry in fs::read_dir(folder.join("refused")).unwrap() {
        let path = entry.unwrap().path();
        let case: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        // Where there is a `before`, the change is refused, not the object.
        if case.get("before").is_none() {
            let name = path.file_name().unwrap().to_str().unwrap();
            files.push(write(&scratch, name, case["object"].to_string()));
        }
    }
    assert!(files.len() > 50, "{files:?}");
    let folder = scratch.path().to_str().unwrap();
    let findings =
        json_of(&machinist(&["validate", "-f", folder, "-o", "json"]))["findings"].clone();
    let wrong: Vec<&Value> = findings.as_array().unwrap().iter().filter(is_wrong).collect();
    files.retain(|file| !wrong.iter().any(|finding| finding["file"] == file.as_str()));
    assert!(files.is_empty(), "nothing is found in {files:?}");
}

/// Bad input: a clear error within a second, with bounded memory, whatever it is.
#[test]
fn hostile_input_is_refused_quickly() {
    let folder = TempDir::new().unwrap();
    let huge = folder.path().join("huge.yaml");
    fs::File::create(&huge).unwrap().set_len(100 << 20).unwrap();
    let huge = huge.to_str().unwrap().to_owned();
    let laughs = (1..12).fold("a0: &a0 [x]\n".to_owned(), |text, level| {
        let aliases = format!("*a{}, ", level - 1).repeat(10);
        format!("{text}a{level}: &a{level} [{aliases}]\n")
    });
    let files = [
        (huge, "more than a manifest may have"),
        (write(&folder, "deep.json", "[".repeat(1 << 20)), "not valid JSON"),
        (write(&folder, "deep.yaml", format!("a: {}", "[".repeat(1 << 20))), "not valid YAML"),
        (write(&folder, "laughs.yaml", laughs), "not valid YAML"),
        (write(&folder, "latin1.yaml", b"a: caf\xe9\n"), "not UTF-8"),
        (write(&folder, "twice.yaml", "a: 1\na: 2\n"), "not valid YAML"),
        (write(&folder, "twice.json", "{\"a\": 1, \"a\": 2}"), "stands here twice"),
        (write(&folder, "text.yaml", "just some text"), "expected an object"),
        (write(&folder, "kind.yaml", "kind: Pod\n"), "is not among the inputs"),
        (write(&folder, "list.yaml", "kind: List\nitems: 5\n"), "expected a list"),
    ];
    for (file, expected) in &files {
        let start = Instant::now();
        // 512 MB of address space is far more than any of these may take.
        let output = Command::new("sh")
            .args(["-c", "ulimit -v 524288; exec \"$0\" render --pool worker -f \"$1\""])
            .args([env!("CARGO_BIN_EXE_machinist"), file])
            .output()
            .unwrap();
        assert_exit(&output, 1);
        assert!(stderr(&output).contains(expected), "{file}: {}", stderr(&output));
        assert!(start.elapsed() < Duration::from_secs(2), "{file}: {:?}", start.elapsed());
    }
}

#[test]
fn standard_input_folders_and_repeated_files_are_read() {
    let folder = TempDir::new().unwrap();
    write(&folder, "10-pool.yaml", pool().to_string());
    write(
        &folder,
        "20-config.json",
        machine_config("a", &json!({"kernelArguments": ["x=1"]})).to_string(),
    );
    write(&folder, "notes.txt", "not a manifest");
    let path = folder.path().to_str().unwrap();
    let from_folder = machinist(&["render", "--pool", "worker", "-f", path, "-o", "name"]);
    assert_exit(&from_folder, 0);
    let mut child = Command::new(env!("CARGO_BIN_EXE_machinist"))
        .args(["render", "--pool", "worker", "-f", "-", "-o", "name"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text =
        format!("{}\n---\n{}\n", pool(), machine_config("a", &json!({"kernelArguments": ["x=1"]})));
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let from_stdin = child.wait_with_output().unwrap();
    assert_eq!(stdout(&from_stdin), stdout(&from_folder));
    let twice = machinist(&["render", "--pool", "worker", "-f", path, "-f", path]);
    assert_exit(&twice, 1);
    assert!(stderr(&twice).contains("is given twice"), "{}", stderr(&twice));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    assert_exit(&machinist(&["render"]), 2);
    assert_exit(&machinist(&["no-such-command"]), 2);
    assert_exit(&machinist(&["ignition", "convert", "--to", "three", "examples/motd.ign"]), 2);
}

#[test]
fn commands_that_ask_a_home_check_their_arguments_first() {
    for arguments in [
        &["get"][..],
        &["get", "mcp", "mcp/worker"],
        &["get", "mcp", "worker", "-l", "a=b"],
        &["get", "secret", "a", "-A"],
        &["get", "mcp,mc", "-w"],
        &["describe", "mcp/worker", "-l", "a=b"],
        &["apply"],
        &["delete"],
        &["delete", "mcp"],
        &["delete", "mcp", "a", "--all"],
        &["label", "mcp", "a"],
        &["label", "mcp", "a=1"],
        &["wait", "mcp/a"],
        &["wait", "mcp/a", "--for=nonsense"],
        &["wait", "mcp/a", "--for=delete", "--timeout=soon"],
    ] {
        let output = machinist(arguments);
        assert_exit(&output, 2);
        assert!(stderr(&output).starts_with("error: "), "{}", stderr(&output));
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let output = Command::new("sh")
        .args(["-c", "\"$0\" crds | head -n 1"])
        .arg(env!("CARGO_BIN_EXE_machinist"))
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
}

#[test]
fn an_error_does_not_quote_the_value() {
    let folder = TempDir::new().unwrap();
    let object = machine_config("a", &json!({"kernelArguments": "password=hunter2"}));
    let text = format!("{}\n---\n{object}\n", pool());
    let file = write(&folder, "secret.yaml", text);
    let output = machinist(&["render", "--pool", "worker", "-f", &file]);
    assert_exit(&output, 1);
    let message = stderr(&output);
    assert!(message.contains("kernelArguments: invalid type: string, expected"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
}
