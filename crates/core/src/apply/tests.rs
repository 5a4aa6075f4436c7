//! Changes of a tree in memory.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::reconcile_check::{ValidationOverrides, check_reconcilable};

const STYLE: HostDefaults = HostDefaults {
    owner: FileOwner { uid: 0, gid: 0 },
    today: 20_000,
    keys_files: None,
    has_containerd: false,
};

pub(super) fn config(name: &str, ignition: &Value) -> MachineConfig {
    let mut ignition = ignition.clone();
    ignition["ignition"] = json!({"version": "3.5.0"});
    let mut config = from_ignition(ignition);
    config.metadata.name = Some(name.to_owned());
    config
}

pub(super) fn tree() -> InMemoryTree {
    let mut tree = InMemoryTree::new();
    tree.add_file(
        "/etc/passwd",
        b"root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n",
    );
    tree.add_file("/etc/group", b"root:x:0:\ncore:x:1000:\n");
    tree.add_file("/etc/shadow", b"core:!:1:0:99999:7:::\nother:x:1::::::\n");
    tree.add_file("/etc/motd", b"welcome\n");
    tree.add_file(
        "/usr/lib/systemd/system/vendor.service",
        b"[Install]\nWantedBy=multi-user.target\n",
    );
    tree
}

fn try_plan(tree: &InMemoryTree, new: &MachineConfig) -> Result<ApplyPlan, ApplyError> {
    let old = match tree.read(CURRENT_CONFIG) {
        Ok(bytes) => parse_current_config(&bytes).unwrap(),
        Err(_) => empty_config(),
    };
    try_plan_on(tree, &old, new)
}

pub(super) fn try_plan_on(
    tree: &dyn FsTree,
    old: &MachineConfig,
    new: &MachineConfig,
) -> Result<ApplyPlan, ApplyError> {
    let change = check_reconcilable(old, new, ValidationOverrides::default()).unwrap();
    plan_apply(old, new, &change, tree, STYLE)
}

pub(super) fn apply(tree: &mut InMemoryTree, ignition: &Value) -> ApplyPlan {
    let plan = try_plan(tree, &config("x", ignition)).unwrap();
    tree.apply(&plan);
    plan
}

pub(super) fn file(path: &str, text: &str) -> Value {
    json!({"path": path, "contents": {"source": format!("data:,{text}")}})
}

fn text(tree: &InMemoryTree, path: &str) -> String {
    String::from_utf8(tree.read(path).unwrap()).unwrap()
}

#[test]
fn steps_create_directories_first_and_remove_them_last() {
    let mut tree = tree();
    let first = json!({"storage": {"files": [file("/a/b/c", "1"), file("/etc/motd", "2")]}});
    let plan = apply(&mut tree, &first);
    let at = |path: &str| plan.steps.iter().position(|step| step.path == path).unwrap();
    assert!(at("/a") < at("/a/b") && at("/a/b") < at("/a/b/c"));
    assert!(at("/a/b/c") < at("/etc/motd") && at("/etc/motd") < at(CURRENT_CONFIG));
    let plan = apply(&mut tree, &json!({}));
    let at = |path: &str| plan.steps.iter().position(|step| step.path == path).unwrap();
    assert!(at("/a/b/c") < at("/a/b") && at("/a/b") < at("/a"));
}

#[test]
fn instances_of_a_template_are_enabled_as_systemd_does() {
    const INSTALL: &str = "[Install]\nWantedBy=multi-user.target\n";
    let unit = |name: &str, enabled: bool| json!({"name": name, "enabled": enabled});
    let link = |name: &str| format!("/etc/systemd/system/multi-user.target.wants/{name}");
    let target = |tree: &InMemoryTree, name: &str| match tree.node(&link(name)).unwrap() {
        FsNode::Link { target, .. } => target,
        other => panic!("{name}: {other:?}"),
    };
    let mut tree = tree();
    tree.add_file("/usr/lib/systemd/system/getty@.service", INSTALL.as_bytes());
    let template = json!({"name": "own@.service", "contents": INSTALL});
    let units = [
        unit("getty@tty7.service", true),
        unit("own@a.service", true),
        template.clone(),
        unit("none@a.service", true),
    ];
    let plan = apply(&mut tree, &json!({"systemd": {"units": units}}));
    assert_eq!(target(&tree, "getty@tty7.service"), "/usr/lib/systemd/system/getty@.service");
    assert_eq!(target(&tree, "own@a.service"), "/etc/systemd/system/own@.service");
    assert_eq!(plan.notes.len(), 1, "{:?}", plan.notes);
    assert!(plan.notes[0].contains("none@a.service"), "{:?}", plan.notes);

    let units = [unit("getty@tty7.service", false), unit("own@a.service", false), template];
    apply(&mut tree, &json!({"systemd": {"units": units}}));
    for name in ["getty@tty7.service", "own@a.service"] {
        assert_eq!(tree.node(&link(name)).unwrap(), FsNode::Absent, "{name}");
    }
}

#[test]
fn the_password_changes_in_its_line_alone() {
    let mut tree = tree();
    let user = json!({"passwd": {"users": [{"name": "core", "passwordHash": "$6$x"}]}});
    apply(&mut tree, &user);
    let expected = "core:$6$x:20000:0:99999:7:::\nother:x:1::::::\n";
    assert_eq!(text(&tree, "/etc/shadow"), expected);
    let keys = json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["a", "b"]}]}});
    apply(&mut tree, &keys);
    assert!(text(&tree, "/etc/shadow").starts_with("core:*:20000:"));
    assert_eq!(text(&tree, "/home/core/.ssh/authorized_keys.d/ignition"), "a\nb\n");
    apply(&mut tree, &json!({}));
    assert_eq!(text(&tree, "/etc/shadow"), "core:!:1:0:99999:7:::\nother:x:1::::::\n");
    assert!(tree.node("/home/core").unwrap().is_absent());
}

#[test]
fn a_machine_taken_over_gets_a_locked_password_and_its_presets() {
    let mut tree = tree();
    let before = json!({
        "passwd": {"users": [{"name": "core", "passwordHash": "$6$x"}]},
        "systemd": {"units": [{"name": "vendor.service", "enabled": true}]}
    });
    apply(&mut tree, &before);
    // As MCO leaves it: without our record.
    tree.put(BASELINE_PATH, FsNode::Absent);
    tree.add_file("/etc/systemd/system-preset/99.preset", b"disable *\n");
    apply(&mut tree, &json!({}));
    assert!(text(&tree, "/etc/shadow").starts_with("core:*:"));
    let link = "/etc/systemd/system/multi-user.target.wants/vendor.service";
    assert!(tree.node(link).unwrap().is_absent());
}

#[test]
fn certificates_outlive_their_config() {
    let mut tree = tree();
    let paths = ["/etc/kubernetes/kubelet-ca.crt", "/etc/docker/certs.d/registry/ca.crt"];
    let files: Vec<Value> = paths.iter().map(|path| file(path, "ca")).collect();
    apply(&mut tree, &json!({"storage": {"files": files}}));
    apply(&mut tree, &json!({}));
    for path in paths {
        assert_eq!(text(&tree, path), "ca");
    }
}

#[test]
fn a_certificate_that_the_cluster_replaced_is_not_reverted() {
    let mut tree = tree();
    let with = |ca: &str, motd: &str| {
        let files = [file("/etc/kubernetes/kubelet-ca.crt", ca), file("/etc/motd", motd)];
        json!({"storage": {"files": files}})
    };
    apply(&mut tree, &with("first", "1"));
    tree.add_file("/etc/kubernetes/kubelet-ca.crt", b"rotated");
    apply(&mut tree, &with("first", "2"));
    assert_eq!(text(&tree, "/etc/kubernetes/kubelet-ca.crt"), "rotated");
    assert_eq!(text(&tree, "/etc/motd"), "2");
    apply(&mut tree, &with("second", "2"));
    assert_eq!(text(&tree, "/etc/kubernetes/kubelet-ca.crt"), "second");
    tree.put("/etc/kubernetes/kubelet-ca.crt", FsNode::Absent);
    apply(&mut tree, &with("second", "3"));
    assert_eq!(text(&tree, "/etc/kubernetes/kubelet-ca.crt"), "second");
}

#[test]
fn a_file_from_a_config_is_not_an_original() {
    let mut tree = tree();
    apply(&mut tree, &json!({"storage": {"files": [file("/etc/x", "1")]}}));
    // Removed by hand: the file still belongs to the config.
    tree.put("/etc/machine-config-daemon/noorig/etc/x.mcdnoorig", FsNode::Absent);
    apply(&mut tree, &json!({"storage": {"files": [file("/etc/x", "2")]}}));
    assert!(tree.node("/etc/machine-config-daemon/orig/etc/x.mcdorig").unwrap().is_absent());
    apply(&mut tree, &json!({}));
    assert!(tree.node("/etc/x").unwrap().is_absent());
}

#[test]
fn the_error_for_a_damaged_record_does_not_quote_it() {
    let mut tree = tree();
    tree.add_file(BASELINE_PATH, b"{\"password\": \"$6$secret");
    let error = try_plan(&tree, &config("x", &json!({}))).unwrap_err().to_string();
    assert!(error.contains(BASELINE_PATH) && !error.contains("secret"), "{error}");
}

#[test]
fn a_plan_shows_no_contents() {
    let user = json!({"passwd": {"users": [{"name": "core", "passwordHash": "$6$secret"}]}});
    let plan = try_plan(&tree(), &config("x", &user)).unwrap();
    let shown = format!("{plan:?}{}", serde_json::to_string(&plan).unwrap());
    assert!(!shown.contains("secret"));
}

fn any_ignition() -> impl Strategy<Value = Value> {
    let path = prop::sample::select(vec![
        "/etc/motd",
        "/etc/a",
        "/etc/d/a",
        "/x/y/z",
        "/etc/systemd/system/u.service",
    ]);
    let file = (path, "[a-z]{0,3}", 0..0o777_i64).prop_map(|(path, text, mode)| {
        json!({"path": path, "contents": {"source": format!("data:,{text}")}, "mode": mode})
    });
    let contents = prop::sample::select(vec![
        None,
        Some("[Install]\nWantedBy=multi-user.target\n"),
        Some("[Service]\nType=oneshot\n"),
    ]);
    let name = prop::sample::select(vec!["u.service", "vendor.service", "w@x.service"]);
    let unit = (name, contents, prop::option::of(any::<bool>()), prop::option::of(Just(false)), 0..3_usize)
        .prop_map(|(name, contents, enabled, mask, dropins)| {
            let dropins: Vec<Value> = (0..dropins)
                .map(|i| json!({"name": format!("{i}.conf"), "contents": if i == 0 { "" } else { "[Unit]\nA=b\n" }}))
                .collect();
            json!({"name": name, "contents": contents, "enabled": enabled, "mask": mask, "dropins": dropins})
        });
    let user = prop::option::of("[a-z]{1,3}").prop_map(|key| {
        key.map_or(json!([]), |key| json!([{"name": "core", "sshAuthorizedKeys": [key]}]))
    });
    (prop::collection::vec(file, 0..4), prop::collection::vec(unit, 0..3), user).prop_map(
        |(mut files, mut units, users)| {
            files.sort_by_key(|file| file["path"].to_string());
            files.dedup_by_key(|file| file["path"].clone());
            units.sort_by_key(|unit| unit["name"].to_string());
            units.dedup_by_key(|unit| unit["name"].clone());
            // A path is a file or a unit, not both.
            if units.iter().any(|unit| unit["name"] == "u.service") {
                files.retain(|file| file["path"] != "/etc/systemd/system/u.service");
            }
            json!({"storage": {"files": files}, "systemd": {"units": units}, "passwd": {"users": users}})
        },
    )
}

proptest! {
    /// A performed plan leaves nothing to do, and releasing everything leaves no trace.
    #[test]
    fn plans_are_complete_and_leave_no_trace(configs in prop::collection::vec(any_ignition(), 1..4)) {
        let mut tree = tree();
        let before = tree.nodes().clone();
        for ignition in &configs {
            apply(&mut tree, ignition);
            prop_assert_eq!(apply(&mut tree, ignition).steps, vec![]);
        }
        apply(&mut tree, &json!({}));
        let mut after = tree.nodes().clone();
        for own in [CURRENT_CONFIG, CURRENT_IMAGE, "/etc/machine-config-daemon"] {
            after.remove(own);
        }
        // Directories that belong to systemd stay, empty.
        after.retain(|path, _| before.contains_key(path) || !matches!(path.as_str(), "/etc/systemd" | "/etc/systemd/system"));
        prop_assert_eq!(after, before);
    }
}

#[test]
fn a_name_too_long_for_a_suffix_is_taken_over_and_restored() {
    for length in [245, 246, 247, 248, 255] {
        let (existing, new) =
            (format!("/etc/{}", "e".repeat(length)), format!("/etc/{}", "n".repeat(length)));
        let mut tree = tree();
        tree.add_file(&existing, b"mine");
        let before = tree.clone();
        let both = json!({"storage": {"files": [file(&existing, "1"), file(&new, "2")]}});
        apply(&mut tree, &both);
        assert_eq!((text(&tree, &existing), text(&tree, &new)), ("1".into(), "2".into()));
        // The second plan finds the originals by the same names.
        assert!(apply(&mut tree, &both).steps.is_empty(), "{length}");
        // A machine that leaves knows only what is on its disk.
        let mut leaving = tree.clone();
        let plan = plan_release_all(&leaving, STYLE).unwrap();
        leaving.apply(&plan);
        assert_eq!(text(&leaving, &existing), "mine", "{length}");
        assert!(
            leaving.node(&new).unwrap().is_absent()
                && !leaving.nodes().contains_key(LONG_ORIGINALS)
        );
        apply(&mut tree, &json!({}));
        let left = |tree: &InMemoryTree| {
            let daemons = |path: &&String| !path.starts_with("/etc/machine-config-daemon");
            tree.nodes().keys().filter(daemons).cloned().collect::<Vec<_>>()
        };
        assert_eq!(left(&tree), left(&before), "{length}");
        assert_eq!(text(&tree, &existing), "mine");
    }
}

#[test]
fn a_link_that_the_plan_derives_is_not_longer_than_linux_allows() {
    let target = format!("{}.target", "t".repeat(246));
    let contents = format!("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy={target}\n");
    let unit = json!({"systemd": {"units": [{"name": "a.service", "enabled": true, "contents": contents}]}});
    let error = try_plan(&tree(), &config("x", &unit)).unwrap_err().to_string();
    assert!(error.contains("has a name of 259 bytes"), "{error}");
}

/// containerd does not read `registries.conf`.
#[test]
fn containerd_gets_its_own_files_about_registries() {
    const HOSTS: &str = "/etc/containerd/certs.d/quay.io/hosts.toml";
    const CONF: &str =
        "[[registry]]\nlocation = 'quay.io'\n[[registry.mirror]]\nlocation = 'm.example'\n";
    let conf: String = CONF.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let ignition = json!({"storage": {"files": [file("/etc/containers/registries.conf", &conf)]}});
    let (mut tree, empty, new) = (tree(), empty_config(), config("x", &ignition));
    let defaults = HostDefaults { has_containerd: true, ..STYLE };
    let plan = |tree: &InMemoryTree, from: &MachineConfig, to: &MachineConfig, defaults| {
        let change = check_reconcilable(from, to, ValidationOverrides::default()).unwrap();
        plan_apply(from, to, &change, tree, defaults).unwrap()
    };
    assert!(!plan(&tree, &empty, &new, STYLE).steps.iter().any(|step| step.path == HOSTS));
    let applied = plan(&tree, &empty, &new, defaults.clone());
    tree.apply(&applied);
    assert!(text(&tree, HOSTS).contains("[host.\"https://m.example\"]"));
    assert!(plan(&tree, &new, &new, defaults).steps.is_empty());
    // It goes with the config, even if containerd has gone before.
    let removed = plan(&tree, &new, &empty, STYLE);
    tree.apply(&removed);
    assert_eq!(tree.node("/etc/containerd").unwrap(), FsNode::Absent);
}
