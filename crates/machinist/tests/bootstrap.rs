//! `machinist bootstrap` from the outside: what it writes, and what it refuses.
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const EXAMPLE: &str = "examples/kubelet-config.yaml";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The exit code, standard output and standard error.
fn bootstrap(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
    let command = command.arg("bootstrap").args(arguments).current_dir(root());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

struct BootstrapFixture {
    dir: TempDir,
}

impl BootstrapFixture {
    fn new() -> Self {
        Self { dir: TempDir::new().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn files(directory: &str) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(path.to_str().unwrap())),
            false => all.push(path.to_str().unwrap().to_owned()),
        }
    }
    all.sort();
    all
}

#[test]
fn the_server_can_serve_the_directory() {
    let site = BootstrapFixture::new();
    let out = site.path("out");
    let (code, stdout, stderr) = bootstrap(&["-f", EXAMPLE, "--out", &out]);
    assert_eq!(code, 0, "{stderr}");
    let names: Vec<(&str, &str)> =
        stdout.lines().map(|line| line.split_once("  ").unwrap()).collect();
    assert_eq!(names.iter().map(|(pool, _)| *pool).collect::<Vec<_>>(), ["master", "worker"]);
    let mut expected = vec![format!("{out}/controller-config/machine-config-controller.yaml")];
    for (pool, rendered) in &names {
        expected.push(format!("{out}/machine-configs/{rendered}.yaml"));
        expected.push(format!("{out}/machine-pools/{pool}.yaml"));
    }
    expected.sort();
    assert_eq!(files(&out), expected);
    for path in &expected {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o007, 0, "{path} is not for everyone");
    }
    // The same again with MCO's flag names: nothing changes.
    let before: Vec<Vec<u8>> = files(&out).iter().map(|path| fs::read(path).unwrap()).collect();
    let arguments = ["--manifest-dir", EXAMPLE, "--dest-dir", &out, "-o", "json"];
    let (code, stdout, stderr) = bootstrap(&arguments);
    assert_eq!(code, 0, "{stderr}");
    let summary: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(summary["pools"][1]["rendered"], names[1].1);
    let after: Vec<Vec<u8>> = files(&out).iter().map(|path| fs::read(path).unwrap()).collect();
    assert_eq!(after, before);
}

#[test]
fn invalid_input_is_reported_and_nothing_is_written() {
    let example = fs::read_to_string(root().join(EXAMPLE)).unwrap();
    let twice = example.replacen("name: more-pods", "name: other", 1);
    let twice = format!("{example}\n---\n{}", twice.split("\n---\n").nth(1).unwrap());
    let named = "  pullSecret: {name: pull-secret, namespace: openshift-config}\n  rootCAData";
    let opaque = "apiVersion: v1\nkind: Secret\ntype: Opaque\nmetadata: {name: pull-secret, namespace: openshift-config}\nstringData: {.dockerconfigjson: hunter2}\n";
    let pool = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: POOL}\nspec: {machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: none}}}\n";
    let with = |more: &str| format!("{example}\n---\n{more}");
    for (text, parts) in [
        ("kind: [", vec!["a.yaml"]),
        ("metadata: {name: x}", vec!["a.yaml", "apiVersion and kind"]),
        (
            "apiVersion: v1\nkind: ConfigMap\n",
            vec!["ControllerConfig machine-config-controller", "add its manifest"],
        ),
        (
            &example.replace("maxPods: 220", "maxPods: many"),
            vec!["KubeletConfig more-pods", "spec.kubeletConfig.maxPods"],
        ),
        (&twice, vec!["KubeletConfig more-pods, other", "MachineConfigPool worker", "keep one"]),
        (
            &example.replace("  rootCAData", named),
            vec!["spec.pullSecret", "openshift-config/pull-secret", "--pull-secret"],
        ),
        (
            &format!("{}\n---\n{opaque}", example.replace("  rootCAData", named)),
            vec![
                "Secret/pull-secret",
                "type: expected secret type kubernetes.io/dockerconfigjson found Opaque",
            ],
        ),
        (
            &with(&pool.replace("POOL", "lonely")),
            vec!["MachineConfigPool lonely", "spec.machineConfigSelector"],
        ),
        (&with(&pool.replace("POOL", "../../up")), vec!["MachineConfigPool", "metadata.name"]),
        (
            &with(&example.replace("  rootCAData", named)),
            vec!["ControllerConfig", "given twice", "remove one"],
        ),
    ] {
        let site = BootstrapFixture::new();
        let (path, out) = (site.write("a.yaml", text), site.path("out"));
        let (code, stdout, stderr) = bootstrap(&["-f", &path, "--out", &out]);
        assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
        for part in parts {
            assert!(stderr.contains(part), "{part} is not in {stderr}");
        }
        assert!(!stderr.contains("hunter2"), "{stderr}");
        assert!(!Path::new(&out).exists(), "{stderr}");
    }
}

#[test]
fn the_pull_secret_comes_from_a_file_and_is_never_shown() {
    let site = BootstrapFixture::new();
    let docker = "{\"auths\": {\"r.example.com\": {\"auth\": \"aHVudGVyMg==\"}}}";
    let raw = site.write("raw/pull.json", docker);
    let secret = format!(
        "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/dockerconfigjson\nmetadata: {{name: s}}\nstringData: {{.dockerconfigjson: '{docker}'}}\n"
    );
    let secret = site.write("secret.yaml", &secret);
    let rendered = |file: &str| {
        let out = site.path("out");
        let (code, stdout, stderr) =
            bootstrap(&["-f", EXAMPLE, "--out", &out, "--pull-secret", file]);
        assert_eq!(code, 0, "{stderr}");
        assert!(!stderr.contains("aHVudGVyMg") && !stdout.contains("aHVudGVyMg"));
        stdout
    };
    assert_eq!(rendered(&raw), rendered(&secret));
    // `generate` takes it too.
    let generated = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
        command.args(["generate", "--pool", "worker", "-f", EXAMPLE]).args(more);
        let output = command.current_dir(root()).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let with_secret = generated(&["--pull-secret", &raw]);
    assert_eq!(with_secret, generated(&["--pull-secret", &secret]));
    assert_ne!(with_secret, generated(&[]));
    // It may be in the directory of manifests, where installers write it.
    fs::copy(root().join(EXAMPLE), site.dir.path().join("raw/a.yaml")).unwrap();
    let (directory, out) = (site.path("raw"), site.path("out"));
    let (code, _, stderr) = bootstrap(&["-f", &directory, "--out", &out, "--pull-secret", &raw]);
    assert_eq!(code, 0, "{stderr}");
    let broken = site.write("broken.json", "{\"auths\": {\"hunter2\"");
    let (code, _, stderr) = bootstrap(&["-f", EXAMPLE, "--out", &out, "--pull-secret", &broken]);
    assert!(code == 1 && stderr.contains("broken.json") && !stderr.contains("hunter2"), "{stderr}");
}

#[test]
fn a_pool_in_the_manifests_replaces_the_built_in_one() {
    let site = BootstrapFixture::new();
    let pool = |more: &str| {
        format!(
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata:\n  name: worker\n  labels: {{machineconfiguration.openshift.io/mco-built-in: '', pools.operator.machineconfiguration.openshift.io/worker: ''}}\nspec:\n  machineConfigSelector: {{matchLabels: {{machineconfiguration.openshift.io/role: worker}}}}\n  nodeSelector: {{matchLabels: {{node-role.kubernetes.io/worker: ''}}}}\n{more}"
        )
    };
    site.write("in/a.yaml", &fs::read_to_string(root().join(EXAMPLE)).unwrap());
    site.write("in/mine.yaml", &pool("  maxUnavailable: 3\n"));
    site.write("in/worker.machineconfigpool.yaml", &pool(""));
    let (manifests, out) = (site.path("in"), site.path("out"));
    let (code, _, stderr) = bootstrap(&["-f", &manifests, "--out", &out]);
    assert_eq!(code, 0, "{stderr}");
    let written = fs::read_to_string(format!("{out}/machine-pools/worker.yaml")).unwrap();
    assert!(written.contains("maxUnavailable: 3"), "{written}");
}

#[test]
fn what_the_controller_accepts_is_accepted() {
    let site = BootstrapFixture::new();
    let example = fs::read_to_string(root().join(EXAMPLE)).unwrap();
    let image = format!("quay.io/release/payload@sha256:{}", "e".repeat(64));
    let gate = "apiVersion: config.openshift.io/v1\nkind: FeatureGate\nmetadata: {name: cluster}\n";
    let version = format!(
        "apiVersion: config.openshift.io/v1\nkind: ClusterVersion\nmetadata: {{name: version}}\nspec: {{clusterID: x}}\nstatus: {{desired: {{image: '{image}'}}}}\n"
    );
    let blocked = "apiVersion: config.openshift.io/v1\nkind: Image\nmetadata: {name: cluster}\nspec: {registrySources: {blockedRegistries: [quay.io, bad.io]}}\n";
    let manifests =
        site.write("a.yaml", &format!("{example}\n---\n{gate}\n---\n{version}\n---\n{blocked}"));
    let (code, stdout, stderr) = bootstrap(&["-f", &manifests, "--out", &site.path("out")]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("cannot block the repository being used by the payload"), "{stderr}");
    // Only the other registry is blocked.
    let without = blocked.replace("quay.io, ", "");
    let manifests =
        site.write("b.yaml", &format!("{example}\n---\n{gate}\n---\n{version}\n---\n{without}"));
    let (_, expected, stderr) = bootstrap(&["-f", &manifests, "--out", &site.path("out")]);
    assert_eq!(stdout, expected, "{stderr}");
}
