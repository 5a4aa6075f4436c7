//! From a ControllerConfig to a tree, and back when the machine leaves.

use serde_json::{Value, json};

use super::*;
use crate::apply::{
    ApplyPlan, FileMeta, FileOwner, FsNode, FsTree as _, HostDefaults, InMemoryTree,
    plan_cluster_files, plan_release_all,
};

const STYLE: HostDefaults = HostDefaults {
    owner: FileOwner { uid: 0, gid: 0 },
    today: 20_000,
    keys_files: None,
    has_containerd: false,
};
const REGISTRY: &str = "/etc/docker/certs.d/registry:5000/ca.crt";
const USERS: &str = "/etc/docker/certs.d/mirror.example/ca.crt";

fn base64(text: &str) -> Value {
    serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).unwrap()
}

fn config(spec: &Value) -> ControllerConfig {
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
        "metadata": {"name": CONTROLLER_CONFIG, "resourceVersion": "7"}, "spec": spec,
    }))
    .unwrap()
}

fn full_spec() -> Value {
    json!({
        "kubeAPIServerServingCAData": base64("api"),
        "cloudProviderCAData": base64("cloud\n"),
        "internalRegistryPullSecret": base64("{}"),
        "imageRegistryBundleData": [{"file": "registry..5000", "data": base64("own")}],
        "imageRegistryBundleUserData": [{"file": "mirror.example", "data": base64("theirs")}],
    })
}

fn apply_certificates(tree: &mut InMemoryTree, spec: &Value) -> ApplyPlan {
    let plan = plan_cluster_files(&desired_files(&config(spec)).unwrap(), tree, STYLE).unwrap();
    tree.apply(&plan);
    plan
}

fn tree_with_certs_dir() -> InMemoryTree {
    let mut tree = InMemoryTree::new();
    let meta = FileMeta { mode: 0o755, owner: FileOwner::default() };
    tree.put("/etc/docker/certs.d", FsNode::Directory { meta });
    tree
}

fn text(tree: &InMemoryTree, path: &str) -> String {
    tree.read(path).map_or("-".to_owned(), |bytes| String::from_utf8(bytes).unwrap())
}

fn mode(tree: &InMemoryTree, path: &str) -> u32 {
    match tree.node(path).unwrap() {
        FsNode::File { meta, .. } => meta.mode,
        other => panic!("{path}: {other:?}"),
    }
}

#[test]
fn everything_is_written_once() {
    let mut tree = tree_with_certs_dir();
    apply_certificates(&mut tree, &full_spec());
    for (path, expected) in [
        (KUBELET_CA, "api\n"),
        (CLOUD_CA_PATH, "cloud\n"),
        (INTERNAL_REGISTRY_PULL_SECRET, "{}\n"),
        (REGISTRY, "own"),
        (USERS, "theirs"),
    ] {
        assert_eq!(text(&tree, path), expected, "{path}");
    }
    assert_eq!(mode(&tree, KUBELET_CA), 0o644);
    assert_eq!(mode(&tree, INTERNAL_REGISTRY_PULL_SECRET), 0o600);
    assert_eq!(apply_certificates(&mut tree, &full_spec()).steps, []);
}

#[test]
fn only_differences_are_written_and_permissions_stay() {
    let mut tree = tree_with_certs_dir();
    apply_certificates(&mut tree, &full_spec());
    let FsNode::File { content, .. } = tree.node(KUBELET_CA).unwrap() else { panic!() };
    let meta = FileMeta { mode: 0o600, owner: FileOwner { uid: 5, gid: 6 } };
    tree.put(KUBELET_CA, FsNode::File { meta, content });
    let mut spec = full_spec();
    spec["kubeAPIServerServingCAData"] = base64("rotated");
    let plan = apply_certificates(&mut tree, &spec);
    let paths: Vec<&str> = plan.steps.iter().map(|step| step.path.as_str()).collect();
    assert_eq!(paths, [KUBELET_CA]);
    assert_eq!((text(&tree, KUBELET_CA).as_str(), mode(&tree, KUBELET_CA)), ("rotated\n", 0o600));
    assert!(format!("{plan:?}").contains("version 7"));
}

#[test]
fn fields_without_a_value_are_left_alone_or_emptied() {
    let mut tree = InMemoryTree::new();
    assert_eq!(apply_certificates(&mut tree, &json!({})).steps, []);
    tree.add_file(KUBELET_CA, b"mine");
    tree.add_file(CLOUD_CA_PATH, b"old");
    tree.add_file(INTERNAL_REGISTRY_PULL_SECRET, b"{\"old\": 1}");
    apply_certificates(&mut tree, &json!({"cloudProviderCAData": null}));
    assert_eq!(text(&tree, KUBELET_CA), "mine");
    assert_eq!(text(&tree, CLOUD_CA_PATH), "\n");
    assert_eq!(text(&tree, INTERNAL_REGISTRY_PULL_SECRET), "\n");
}

#[test]
fn registries_are_added_and_removed() {
    let mut tree = InMemoryTree::new();
    apply_certificates(&mut tree, &full_spec());
    assert_eq!(text(&tree, REGISTRY), "-", "there is no place for it");

    let mut tree = tree_with_certs_dir();
    tree.add_file("/etc/docker/certs.d/stale:1/ca.crt", b"stale");
    tree.add_file("/etc/docker/certs.d/stale:1/deep/er", b"stale");
    tree.add_file("/etc/docker/certs.d/file", b"no directory");
    // A cluster that names no registry leaves them alone.
    apply_certificates(&mut tree, &json!({}));
    assert_eq!(text(&tree, "/etc/docker/certs.d/stale:1/ca.crt"), "stale");
    apply_certificates(&mut tree, &full_spec());
    assert!(tree.node("/etc/docker/certs.d/stale:1").unwrap().is_absent());
    assert_eq!(text(&tree, "/etc/docker/certs.d/file"), "no directory");

    let mut spec = full_spec();
    spec["imageRegistryBundleUserData"] = json!(null);
    apply_certificates(&mut tree, &spec);
    assert!(tree.node("/etc/docker/certs.d/mirror.example").unwrap().is_absent());
    assert_eq!(text(&tree, REGISTRY), "own");
    // Not even the last one.
    apply_certificates(&mut tree, &json!({}));
    assert!(tree.node("/etc/docker/certs.d/registry:5000").unwrap().is_absent());
}

#[test]
fn the_administrator_takes_precedence_over_the_cluster() {
    let mut spec = full_spec();
    spec["imageRegistryBundleUserData"] =
        json!([{"file": "registry..5000", "data": base64("users")}]);
    let mut tree = tree_with_certs_dir();
    apply_certificates(&mut tree, &spec);
    assert_eq!(text(&tree, REGISTRY), "users");
}

#[test]
fn an_invalid_registry_is_refused_with_its_field() {
    for file in ["a/b", "", ".", "../../x", "a\0b"] {
        let bundle = json!([{"file": file, "data": base64("x")}]);
        let error =
            desired_files(&config(&json!({"imageRegistryBundleUserData": bundle}))).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("spec.imageRegistryBundleUserData: file"), "{error}");
    }
}

#[test]
fn a_machine_that_leaves_gets_its_files_back() {
    let mut tree = tree_with_certs_dir();
    tree.add_file(KUBELET_CA, b"mine");
    tree.add_file(USERS, b"mine too");
    tree.add_file("/etc/mco/other", b"");
    let before = tree.clone();
    let mut spec = full_spec();
    apply_certificates(&mut tree, &spec);
    spec["kubeAPIServerServingCAData"] = base64("rotated");
    apply_certificates(&mut tree, &spec);
    let plan = plan_release_all(&tree, STYLE).unwrap();
    tree.apply(&plan);
    let own = "/etc/machine-config-daemon";
    let nodes = |tree: &InMemoryTree| {
        let nodes = tree.nodes().iter().filter(|(path, _)| !path.starts_with(own));
        nodes.map(|(path, node)| (path.clone(), node.clone())).collect::<Vec<_>>()
    };
    assert_eq!(nodes(&tree), nodes(&before));
    let left = tree
        .nodes()
        .iter()
        .filter(|(path, node)| path.starts_with(own) && !matches!(node, FsNode::Directory { .. }));
    assert_eq!(left.count(), 0);
}

#[test]
fn nothing_else_is_cached_and_no_secret_is_shown() {
    let mut spec = full_spec();
    spec["images"] = json!({"a": "b"});
    spec["internalRegistryPullSecret"] = base64("hunter2");
    let mut full = config(&spec);
    let files = desired_files(&full).unwrap();
    trim(&mut full);
    assert_eq!(desired_files(&full).unwrap(), files);
    assert_eq!(full.spec.images, None);
    assert!(!format!("{files:?}").contains("hunter2"));
    let annotations = synced_annotations(&full);
    assert_eq!(annotations[LAST_SYNCED_CONTROLLER_CONFIG].as_deref(), Some("7"));
}
