//! `machinist generate` from the outside, and `machinist explain` for generated files.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use machinist_core::container_runtime::registries_conf::RegistriesConf;
use serde_json::{Value, json};
use tempfile::TempDir;

const CONF: &str = "99-worker-generated-registries/files/etc/containers/registries.conf";
const POLICY: &str = "99-worker-generated-registries/files/etc/containers/policy.json";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn machinist(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
    command.args(arguments).current_dir(root()).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn assert_exit(output: &Output, code: i32) {
    let found = output.status.code();
    assert_eq!(found, Some(code), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

/// The objects of a case, in a file.
fn objects(case: &Value, directory: &Path) -> String {
    let mut items = vec![json!({
        "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
        "metadata": {"name": "version"},
        "status": {"desired": {"image": case["releaseImage"], "version": "1"}}, "spec": {},
    })];
    if !case["image"].is_null() {
        items.push(json!({"apiVersion": "config.openshift.io/v1", "kind": "Image",
            "metadata": {"name": "cluster"}, "spec": case["image"]}));
    }
    for (field, kind, version) in [
        ("icsp", "ImageContentSourcePolicy", "operator.openshift.io/v1alpha1"),
        ("idms", "ImageDigestMirrorSet", "config.openshift.io/v1"),
        ("itms", "ImageTagMirrorSet", "config.openshift.io/v1"),
    ] {
        for object in case[field].as_array().unwrap() {
            let mut object = object.clone();
            object["kind"] = json!(kind);
            object["apiVersion"] = json!(version);
            items.push(object);
        }
    }
    let file = directory.join("case.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    fs::write(&file, list.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn cases_hold_through_the_command_line() {
    let cases = fs::read_to_string(root().join("tests/cases/registries.jsonl")).unwrap();
    for line in cases.lines().step_by(3) {
        let case: Value = serde_json::from_str(line).unwrap();
        let (id, expect) = (&case["id"], &case["expect"]);
        let directory = TempDir::new().unwrap();
        let (file, out) = (objects(&case, directory.path()), directory.path().join("out"));
        let output =
            machinist(&["generate", "--pool", "worker", "-f", &file, "-o", out.to_str().unwrap()]);
        if !expect["error"].is_null() {
            assert_exit(&output, 1);
            assert!(text(&output.stderr).contains("error:"), "{id}");
            assert!(!out.exists(), "{id}");
            continue;
        }
        assert_exit(&output, 0);
        let base = case["base"].as_str().unwrap().to_owned();
        let conf = fs::read_to_string(out.join(CONF)).unwrap_or(base);
        let expected = expect["registriesConf"].as_str().unwrap();
        assert_eq!(RegistriesConf::parse(&conf), RegistriesConf::parse(expected), "{id}");
        if let Ok(policy) = fs::read_to_string(out.join(POLICY)) {
            let policy: Value = serde_json::from_str(&policy).unwrap();
            assert_eq!(policy, expect["policyJson"], "{id}");
        } else {
            assert_eq!(expect["policyJson"]["transports"]["docker"], Value::Null, "{id}");
        }
    }
}

#[test]
fn examples_in_the_help_work_and_name_their_sources() {
    let help = text(&machinist(&["generate", "--help"]).stdout);
    let example = help.lines().find_map(|line| line.strip_prefix("  machinist ")).unwrap();
    let output = machinist(&example.split(' ').collect::<Vec<_>>());
    assert_exit(&output, 0);
    assert!(text(&output.stdout).contains("name: 99-worker-generated-registries"));
    let both = ["-f", "examples/mirrors.yaml", "-f", "examples/container-runtime.yaml"];
    let output = machinist(&[&["generate", "--pool", "worker", "-o", "json"], &both[..]].concat());
    assert_exit(&output, 0);
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let items = list["items"].as_array().unwrap();
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    let names: Vec<String> = items.iter().map(name).collect();
    assert_eq!(names, ["99-worker-generated-registries", "99-worker-generated-containerruntime"]);
    let from = &items[0]["metadata"]["annotations"]["machinist.dev/generated-from"];
    assert_eq!(
        from,
        "Image cluster, ImageContentSourcePolicy mirror-the-old-way, ImageDigestMirrorSet mirror, ImageTagMirrorSet mirror"
    );
}

#[test]
fn pools_get_what_they_select() {
    let generate = |arguments: &[&str]| {
        let fixed = ["generate", "-o", "json", "-f", "examples/mirrors.yaml", "--pool"];
        machinist(&[&fixed[..], arguments].concat())
    };
    let output = generate(&["infra", "-f", "examples/infra-pool.yaml"]);
    assert_exit(&output, 0);
    // A custom pool gets the mirrors of the worker pool.
    assert!(text(&output.stdout).contains("99-worker-generated-registries"));
    assert!(!text(&output.stdout).contains("99-master-generated-registries"));
    let output = generate(&["nobody"]);
    assert_exit(&output, 1);
    assert!(text(&output.stderr).contains("which contain master, worker"));
}

#[test]
fn invalid_input_is_reported_with_all_locations() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("bad.yaml");
    fs::write(
        &file,
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: ContainerRuntimeConfig\n\
         metadata: {name: a}\nspec:\n  machineConfigPoolSelector: {matchLabels: {x: z}}\n  \
         containerRuntimeConfig: {pidsLimit: 5}\n---\n\
         apiVersion: config.openshift.io/v1\nkind: ImageTagMirrorSet\nmetadata: {name: b}\n\
         spec: {imageTagMirrors: [{source: UPPER/x/Y, mirrors: [m.io]}]}\n",
    )
    .unwrap();
    let output = machinist(&["generate", "--pool", "worker", "-f", file.to_str().unwrap()]);
    assert_exit(&output, 1);
    assert!(output.stdout.is_empty());
    let errors = text(&output.stderr);
    for expected in [
        "ContainerRuntimeConfig a: spec.containerRuntimeConfig.pidsLimit: invalid PidsLimit 5",
        "ImageTagMirrorSet b: spec.imageTagMirrors[0].source: invalid format for source",
    ] {
        assert!(errors.contains(expected), "{errors}");
    }
}

#[test]
fn explain_names_the_winner_between_a_user_and_a_generator() {
    let directory = TempDir::new().unwrap();
    let mine = |name: &str| {
        let manifest = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
            "spec": {"config": {"ignition": {"version": "3.2.0"}, "storage": {"files": [
                {"path": "/etc/containers/registries.conf", "contents": {"source": "data:,x"}},
            ]}}},
        });
        let path = directory.path().join("mine.json");
        fs::write(&path, manifest.to_string()).unwrap();
        let path = path.to_str().unwrap().to_owned();
        let inputs = ["-f", "examples/chrony.yaml", "-f", "examples/mirrors.yaml", "-f", &path];
        let question = ["explain", "--pool", "worker", "/etc/containers/registries.conf"];
        machinist(&[&question[..], &inputs[..]].concat())
    };
    let output = mine("99-worker-zz-mine");
    assert_exit(&output, 0);
    let said = text(&output.stderr);
    assert!(
        said.contains("99-worker-zz-mine wins over the generated 99-worker-generated-registries"),
        "{said}"
    );
    assert!(text(&output.stdout).contains("contents overridden by 99-worker-zz-mine"));
    let output = mine("50-worker-mine");
    let said = text(&output.stderr);
    assert!(said.contains("99-worker-generated-registries wins over the 50-worker-mine"), "{said}");
}
