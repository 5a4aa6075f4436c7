//! Every example is valid, has an effect, and is explained in a page.

use crate::docs::{files, read, root};
use std::process::{Command, Output};

fn machinist(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
    command.args(arguments).current_dir(root()).output().unwrap()
}

#[track_caller]
fn succeeds(arguments: &[&str]) -> String {
    let output = machinist(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "machinist {}: {said}", arguments.join(" "));
    String::from_utf8(output.stdout).unwrap()
}

/// Example manifests. Those in `rollout` were collected from a cluster.
fn manifests() -> Vec<String> {
    let all = files("examples", &[".yaml"]).into_iter();
    all.filter(|file| !file.starts_with("examples/rollout/")).collect()
}

#[test]
fn every_example_is_valid() {
    for file in manifests() {
        let said = succeeds(&["validate", "-f", &file]);
        assert!(said.contains(" 0 errors, 0 warnings"), "{file}: {said}");
    }
}

/// What each example adds to a pool: text of the rendered or generated config.
#[test]
fn every_how_to_has_its_effect() {
    let cases = [
        ("chrony.yaml", "worker", "/etc/chrony.conf"),
        ("how-to/hugepages.yaml", "worker", "hugepagesz=1G"),
        ("how-to/selinux.yaml", "worker", "enforcing=0"),
        ("how-to/realtime.yaml", "worker", "kernelType: realtime"),
        ("how-to/ssh-keys.yaml", "worker", "sshAuthorizedKeys"),
        ("how-to/kernel-module.yaml", "worker", "kmods-via-containers@demo-module.service"),
        (
            "how-to/layered-image.yaml",
            "worker",
            "osImageURL: registry.example.com/os/worker@sha256:",
        ),
        ("infra-pool.yaml", "infra", "kernelType: realtime"),
        ("how-to/first.yaml", "worker", "/etc/motd"),
    ];
    for (file, pool, words) in cases {
        let file = format!("examples/{file}");
        let made = succeeds(&["render", "--pool", pool, "-f", &file]);
        assert!(made.contains(words), "{file}: no {words} in:\n{made}");
    }
    let mirrors = ["generate", "--pool", "worker", "-f", "examples/mirrors.yaml"];
    let made = succeeds(&mirrors);
    assert!(made.contains("99-worker-generated-registries"), "{made}");
}

#[test]
fn every_example_is_explained_somewhere() {
    let mut pages: String = files("docs", &[".md"]).iter().map(|page| read(page)).collect();
    pages += &read("README.md");
    pages += &read("scripts/demo");
    pages += &read("scripts/demo-machines.sh");
    // scripts/demo composes these two names.
    pages += "examples/demo/machines.yaml examples/demo/directories.yaml";
    for file in files("examples", &[".yaml", ".ign"]) {
        assert!(pages.contains(&file), "{file}: no page mentions it");
    }
}
