//! Drift in a tree in memory.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::apply::{
    FileMeta, FileOwner, FsNode, InMemoryTree, empty_config, from_ignition, parse_current_config,
};
use crate::reconcile_check::{ValidationOverrides, check_reconcilable};

const STYLE: HostDefaults = HostDefaults {
    owner: FileOwner { uid: 0, gid: 0 },
    today: 20_000,
    keys_files: None,
    has_containerd: false,
};
const INSTALL: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
const WANTS: &str = "/etc/systemd/system/multi-user.target.wants";

fn config(ignition: &Value) -> MachineConfig {
    let mut ignition = ignition.clone();
    ignition["ignition"] = json!({"version": "3.5.0"});
    let mut config = from_ignition(ignition);
    config.metadata.name = Some("rendered-x".to_owned());
    config
}

fn tree() -> InMemoryTree {
    let mut tree = InMemoryTree::new();
    tree.add_file(
        "/etc/passwd",
        b"root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n",
    );
    tree.add_file("/etc/group", b"root:x:0:\ncore:x:1000:\n");
    tree.add_file("/etc/shadow", b"core:!:1:0:99999:7:::\n");
    tree.add_file("/etc/motd", b"welcome\n");
    tree.add_file("/usr/lib/systemd/system/vendor.service", INSTALL.as_bytes());
    tree.add_link("/etc/by-link", "/opt/real");
    tree
}

/// A machine that has just received a config.
fn machine(ignition: &Value) -> (MachineConfig, InMemoryTree) {
    let (mut tree, new) = (tree(), config(ignition));
    let old = tree.read("/etc/machine-config-daemon/currentconfig").ok();
    let old = old.map_or_else(empty_config, |bytes| parse_current_config(&bytes).unwrap());
    let change = check_reconcilable(&old, &new, ValidationOverrides::default()).unwrap();
    tree.apply(&apply::plan_apply(&old, &new, &change, &tree, STYLE).unwrap());
    (new, tree)
}

fn findings(config: &MachineConfig, tree: &InMemoryTree) -> Vec<DriftFinding> {
    check_drift(&DriftReference::new(config, None).unwrap(), tree, STYLE).findings
}

fn full_config() -> Value {
    json!({
        "storage": {"files": [
            {"path": "/etc/motd", "contents": {"source": "data:,hello"}},
            {"path": "/etc/deep/er/secret", "contents": {"source": "data:,s3cret"}, "mode": 384, "user": {"name": "core"}},
            {"path": "/etc/by-link/file", "contents": {"source": "data:,x"}},
            {"path": "/etc/kubernetes/kubelet-ca.crt", "contents": {"source": "data:,ca"}}
        ]},
        "systemd": {"units": [
            {"name": "a.service", "contents": INSTALL, "enabled": true,
             "dropins": [{"name": "10.conf", "contents": "[Unit]\n"}, {"name": "20.conf", "contents": ""}]},
            {"name": "off.service", "contents": INSTALL, "enabled": false},
            {"name": "vendor.service", "enabled": true},
            {"name": "masked.service", "mask": true},
            {"name": "unmasked.service", "mask": false}
        ]}
    })
}

/// One change by hand.
type ManualEdit = fn(&mut InMemoryTree);

#[test]
fn every_manual_change_is_found_and_reported_in_mco_words() {
    let (config, good) = machine(&full_config());
    assert_eq!(findings(&config, &good), vec![]);
    let mode = "mode mismatch for file:";
    let cases: &[(DriftKind, &str, ManualEdit)] = &[
        (DriftKind::Content, "content mismatch for file \"/etc/motd\"", |tree| {
            tree.add_file("/etc/motd", b"other");
        }),
        (
            DriftKind::Mode,
            &format!(
                "{mode} \"/etc/motd\"; expected: -rw-r--r--/420/0644; received: -rw-------/384/0600"
            ),
            |tree| meta(tree, "/etc/motd", FileMeta { mode: 0o600, owner: FileOwner::default() }),
        ),
        (
            DriftKind::Owner,
            "owner mismatch for file \"/etc/deep/er/secret\"; expected: 1000:0; received: 0:0",
            |tree| {
                meta(
                    tree,
                    "/etc/deep/er/secret",
                    FileMeta { mode: 0o600, owner: FileOwner::default() },
                );
            },
        ),
        (
            DriftKind::Missing,
            "could not stat file \"/etc/motd\": lstat /etc/motd: no such file or directory",
            |tree| tree.put("/etc/motd", FsNode::Absent),
        ),
        (
            DriftKind::Link,
            &format!(
                "{mode} \"/etc/motd\"; expected: -rw-r--r--/420/0644; received: Lrwxrwxrwx/134218239/01000000777"
            ),
            |tree| tree.add_link("/etc/motd", "/etc/other"),
        ),
        (DriftKind::Type, "received: a device, socket or pipe", |tree| {
            tree.put("/etc/motd", FsNode::Special);
        }),
        (
            DriftKind::Masked,
            &format!(
                "{mode} \"/etc/systemd/system/a.service\"; expected: -rw-r--r--/420/0644; received: L"
            ),
            |tree| tree.add_link("/etc/systemd/system/a.service", "/dev/null"),
        ),
        (
            DriftKind::Masked,
            "unit \"vendor.service\" expected enabled=true, but systemd reports \"masked\"",
            |tree| tree.add_link("/etc/systemd/system/vendor.service", "/dev/null"),
        ),
        (
            DriftKind::Masked,
            "invalid unit masked setting. path: \"/etc/systemd/system/unmasked.service\"; expected: not masked; received: /dev/null",
            |tree| tree.add_link("/etc/systemd/system/unmasked.service", "/dev/null"),
        ),
        (
            DriftKind::Unmasked,
            "state validation: invalid unit masked setting. path: \"/etc/systemd/system/masked.service\"; expected: /dev/null; received: /etc/systemd/system/masked.service",
            |tree| tree.add_file("/etc/systemd/system/masked.service", b"[Service]\n"),
        ),
        (
            DriftKind::Unmasked,
            "error while evaluation symlink for path \"/etc/systemd/system/masked.service\"",
            |tree| tree.put("/etc/systemd/system/masked.service", FsNode::Absent),
        ),
        (
            DriftKind::Content,
            "content mismatch for file \"/etc/systemd/system/a.service.d/10.conf\"",
            |tree| {
                tree.add_file("/etc/systemd/system/a.service.d/10.conf", b"[Unit]\nAfter=x\n");
            },
        ),
        (
            DriftKind::Content,
            "content mismatch for file \"/etc/systemd/system/a.service.d/20.conf\"",
            |tree| {
                tree.add_file("/etc/systemd/system/a.service.d/20.conf", b"[Unit]\nAfter=x\n");
            },
        ),
        (
            DriftKind::Unexpected,
            "unexpected file \"/etc/systemd/system/unmasked.service\"",
            |tree| {
                tree.add_file("/etc/systemd/system/unmasked.service", b"[Unit]\n");
            },
        ),
        (
            DriftKind::Enablement,
            "unit \"a.service\" expected enabled=true, but systemd reports \"disabled\"",
            |tree| tree.put(&format!("{WANTS}/a.service"), FsNode::Absent),
        ),
        (
            DriftKind::Enablement,
            "unit \"vendor.service\" expected enabled=true, but systemd reports \"disabled\"",
            |tree| tree.put(&format!("{WANTS}/vendor.service"), FsNode::Absent),
        ),
        (
            DriftKind::Enablement,
            "unit \"off.service\" expected enabled=false, but systemd reports \"enabled\"",
            |tree| {
                tree.add_link(&format!("{WANTS}/off.service"), "/etc/systemd/system/off.service");
            },
        ),
        (DriftKind::Missing, "could not stat file \"/etc/by-link/file\"", |tree| {
            tree.add_link("/etc/by-link", "/opt/elsewhere");
        }),
        (DriftKind::Unreadable, "belongs to user 1000", |tree| {
            let owner = FileOwner { uid: 1000, gid: 1000 };
            tree.put("/etc/by-link", FsNode::Link { target: "/opt/real".to_owned(), owner });
        }),
    ];
    for (kind, message, change) in cases {
        let mut tree = good.clone();
        change(&mut tree);
        let found = findings(&config, &tree);
        assert_eq!(found.len(), 1, "{message}: {found:?}");
        assert_eq!(found[0].kind, *kind, "{message}: {found:?}");
        assert!(found[0].message.contains(message), "{message}: {found:?}");
        let is_warning = matches!(kind, DriftKind::Owner | DriftKind::Unexpected);
        assert_eq!(found[0].severity == DriftSeverity::Warning, is_warning);
        assert_eq!(degraded_reason(&found), (!is_warning).then(|| found[0].message.clone()));
    }
}

fn meta(tree: &mut InMemoryTree, path: &str, meta: FileMeta) {
    if let FsNode::File { content, .. } = tree.node(path).unwrap() {
        tree.put(path, FsNode::File { meta, content });
    }
}

#[test]
fn changes_by_the_cluster_are_not_drift() {
    let (config, mut tree) = machine(&full_config());
    tree.add_file("/etc/kubernetes/kubelet-ca.crt", b"rotated");
    tree.add_file("/etc/systemd/system/a.service.d/50-by-hand.conf", b"[Unit]\n");
    tree.add_file("/etc/systemd/system/a.service.d/20.conf", b"");
    tree.add_file("/etc/other", b"x");
    tree.add_link(&format!("{WANTS}/other.service"), "/etc/systemd/system/other.service");
    assert_eq!(findings(&config, &tree), vec![]);
}

#[test]
fn a_removed_directory_is_reported_by_its_entries() {
    let (config, good) = machine(&full_config());
    let mut tree = InMemoryTree::new();
    for (path, node) in good.nodes() {
        let path = path.replacen("/etc/systemd", "/etc/moved", 1);
        tree.put(&path, node.clone());
    }
    let found = findings(&config, &tree);
    for name in ["a.service", "a.service.d/10.conf", "off.service", "masked.service"] {
        let path = format!("/etc/systemd/system/{name}");
        assert!(found.iter().any(|finding| finding.path == path), "{path}: {found:?}");
    }
    let enablement = found.iter().filter(|finding| finding.kind == DriftKind::Enablement).count();
    assert_eq!(enablement, 2, "{found:?}");
}

#[test]
fn a_reason_begins_with_the_first_finding_and_names_the_others_without_contents() {
    let (config, mut tree) = machine(&full_config());
    tree.add_file("/etc/systemd/system/off.service", b"x");
    tree.put("/etc/deep/er/secret", FsNode::Absent);
    tree.add_file("/etc/motd", b"s3cret too");
    let found = findings(&config, &tree);
    assert_eq!(
        blocks_update_reason("rendered-x", &found).unwrap(),
        "unexpected on-disk state validating against rendered-x: content mismatch for file \"/etc/motd\"; and 2 more: \"/etc/deep/er/secret\", \"/etc/systemd/system/off.service\""
    );
    let shown = format!("{found:?}{}", serde_json::to_string(&found).unwrap());
    assert!(!shown.contains("s3cret") && shown.contains("sha256"), "{shown}");
    assert_eq!(blocks_update_reason("rendered-x", &[]), None);
}

/// A bad config broke the machine, a person repaired it by hand, and then corrected the config.
#[test]
fn what_is_as_the_next_config_wants_it_does_not_hold_it_up() {
    let file = |path: &str, text: &str| json!({"path": path, "contents": {"source": format!("data:,{text}")}});
    let files = |list: &[Value]| config(&json!({"storage": {"files": list}}));
    let (bad, kept) = (file("/etc/bad", "bad"), file("/etc/kept", "kept"));
    let current = files(&[bad.clone(), kept.clone()]);
    let (without, corrected) =
        (files(std::slice::from_ref(&kept)), files(&[file("/etc/bad", "good"), kept.clone()]));
    let same = files(&[bad, kept]);
    let disk = |bad: Option<&[u8]>, kept: Option<&[u8]>| {
        let (_, mut tree) =
            machine(&json!({"storage": current.spec.config.as_ref().unwrap()["storage"]}));
        for (path, text) in [("/etc/bad", bad), ("/etc/kept", kept)] {
            match text {
                Some(text) => tree.add_file(path, text),
                None => tree.put(path, FsNode::Absent),
            }
        }
        tree
    };
    let good: Option<&[u8]> = Some(b"kept");
    for (why, bad, kept, next, expected) in [
        ("it was removed, and the config has it no more", None, good, &without, true),
        ("it was corrected as in the config", Some(&b"good"[..]), good, &corrected, true),
        ("it was corrected in another way", Some(&b"ok"[..]), good, &corrected, false),
        ("it was removed, and the config has it", None, good, &corrected, false),
        ("it was edited, and the config has it no more", Some(&b"ok"[..]), good, &without, false),
        ("another file differs, too", None, Some(&b"x"[..]), &without, false),
        ("nothing was corrected", None, good, &same, false),
    ] {
        let tree = disk(bad, kept);
        let report = |config: &MachineConfig| {
            check_drift(&DriftReference::new(config, None).unwrap(), &tree, STYLE)
        };
        let found = report(&current).findings;
        assert!(blocks_update_reason("x", &found).is_some(), "{why}");
        assert_eq!(is_repaired_for(&found, &report(next)), expected, "{why}: {found:?}");
    }
}

#[test]
fn every_component_of_a_path_is_watched() {
    let (config, tree) = machine(&full_config());
    let watched = check_drift(&DriftReference::new(&config, None).unwrap(), &tree, STYLE).watched;
    let has = |directory: &str, name: &str| match &watched[directory] {
        WatchedNames::All => true,
        WatchedNames::Some(names) => names.contains(name),
    };
    assert!(
        has("/", "etc")
            && has("/etc", "motd")
            && has("/etc", "deep")
            && has("/etc/deep/er", "secret")
    );
    assert!(has("/etc", "by-link") && has("/opt/real", "file") && has("/opt", "real"));
    assert!(!has("/etc", "passwd"));
    assert!(has("/etc", "systemd") && has("/etc/systemd/system", "x") && has(WANTS, "x"));
}

fn any_config() -> impl Strategy<Value = Value> {
    let paths = ["/etc/motd", "/etc/a", "/etc/d/a", "/x/y/z", "/etc/by-link/b"];
    let files = prop::sample::subsequence(paths.to_vec(), 0..=5).prop_flat_map(|paths| {
        let count = paths.len();
        (Just(paths), prop::collection::vec(("[a-z]{0,3}", 0..0o777_i64), count))
    });
    let files = files.prop_map(|(paths, rest)| {
        let file = |(path, (text, mode)): (&str, (String, i64))| {
            json!({"path": path, "contents": {"source": format!("data:,{text}")}, "mode": mode})
        };
        paths.into_iter().zip(rest).map(file).collect::<Vec<Value>>()
    });
    let contents =
        prop::sample::select(vec![None, Some(INSTALL), Some("[Service]\nType=oneshot\n")]);
    let unit = (contents, prop::option::of(any::<bool>()), any::<bool>(), 0..3_usize);
    let units = prop::collection::vec(unit, 3).prop_map(|units| {
        let names = ["u.service", "vendor.service", "w@x.service"];
        let unit = |(name, (contents, enabled, mask, dropins)): (&str, _)| {
            let dropins: Vec<Value> = (0..dropins)
                .map(|i: usize| json!({"name": format!("{i}.conf"), "contents": if i == 0 { "" } else { "[Unit]\n" }}))
                .collect();
            let enabled: Option<bool> = enabled;
            let contents: Option<&str> = contents;
            // A masked unit cannot be enabled.
            let mask: bool = mask && enabled.is_none();
            json!({"name": name, "contents": contents, "enabled": enabled, "mask": mask.then_some(true), "dropins": dropins})
        };
        names.into_iter().zip(units).map(unit).collect::<Vec<Value>>()
    });
    (files, units).prop_map(
        |(files, units)| json!({"storage": {"files": files}, "systemd": {"units": units}}),
    )
}

/// Changes one node into another.
fn mutate_node(node: &FsNode, how: usize) -> FsNode {
    let owner = FileOwner { uid: 7, gid: 7 };
    let other = FsNode::File {
        meta: FileMeta { mode: 0o640, owner },
        content: FileContent::new(b"by hand".to_vec()),
    };
    match (node, how) {
        (FsNode::File { meta, .. }, 0) => {
            FsNode::File { meta: *meta, content: FileContent::new(b"by hand".to_vec()) }
        }
        (FsNode::File { meta, content }, 1) => {
            let meta = FileMeta { mode: meta.mode ^ 0o100, ..*meta };
            FsNode::File { meta, content: content.clone() }
        }
        (FsNode::File { meta, content }, 2) => {
            FsNode::File { meta: FileMeta { owner, ..*meta }, content: content.clone() }
        }
        (FsNode::File { .. }, 3) => {
            FsNode::Link { target: "/dev/null".to_owned(), owner: FileOwner::default() }
        }
        (FsNode::File { .. } | FsNode::Link { .. }, 4) => {
            FsNode::Directory { meta: FileMeta { mode: 0o755, owner } }
        }
        (FsNode::File { .. } | FsNode::Link { .. }, 5) => FsNode::Special,
        (FsNode::File { .. } | FsNode::Link { .. }, 6) => FsNode::Absent,
        _ => other,
    }
}

#[test]
fn healing_is_settled_when_nothing_is_left_or_nothing_changes() {
    let file = |path: &str| json!({"path": path, "contents": {"source": "data:,x"}});
    let (config, mut tree) =
        machine(&json!({"storage": {"files": [file("/etc/a"), file("/etc/b")]}}));
    tree.put("/etc/a", FsNode::Special);
    let one = findings(&config, &tree);
    tree.add_file("/etc/b", b"by hand");
    let both = findings(&config, &tree);
    for (healed, before, left, expected) in [
        (1, &both, &vec![], true),
        (1, &both, &one, false),
        (0, &one, &one, true),
        // It drifted while the daemon looked at something else.
        (0, &one, &both, false),
        // It was healed and has drifted in the same way again.
        (1, &both, &both, false),
    ] {
        assert_eq!(is_settled(healed, before, left), expected, "{healed} {before:?} {left:?}");
    }
}

proptest! {
    /// A machine that has just received its config has not drifted. Any single change of a managed path is
    /// found, and the repair removes it.
    #[test]
    fn any_single_change_is_found_and_none_is_invented(ignition in any_config(), place in any::<prop::sample::Index>(), how in 0..8_usize) {
        let (config, mut tree) = machine(&ignition);
        let reference = DriftReference::new(&config, None).unwrap();
        prop_assert_eq!(findings(&config, &tree), vec![]);
        let verified = apply::verify(&reference.config, &reference.contents, &tree, STYLE);
        if verified.managed.is_empty() {
            return Ok(());
        }
        let managed = place.get(&verified.managed);
        let path = managed.resolved_path.clone().unwrap();
        let before = tree.node(&path).unwrap();
        tree.put(&path, mutate_node(&before, how));
        let found = findings(&config, &tree);
        prop_assert!(found.iter().any(|finding| finding.path == managed.path), "{:?}: {found:?}", managed.path);
        prop_assert!(found.iter().all(|finding| finding.path == managed.path || finding.kind == DriftKind::Enablement), "{found:?}");
        let repair = plan_repair(&config, &tree, STYLE).unwrap();
        tree.apply(&repair.plan);
        if repair.not_repaired.is_empty() {
            prop_assert_eq!(findings(&config, &tree), vec![]);
        } else {
            // What the repair must not remove.
            prop_assert!(matches!(how, 4 | 5), "{:?}", repair.not_repaired);
            let quoted = format!("{path:?}");
            prop_assert!(repair.not_repaired[0].contains(&quoted), "{:?}", repair.not_repaired);
        }
    }

    /// Whatever obstructs some of the paths, all others are repaired.
    #[test]
    fn paths_are_repaired_independently(how in prop::collection::vec(0..8_usize, 6)) {
        let paths: Vec<String> = (0..4).map(|number| format!("/etc/d{}/f{number}", number % 2)).collect();
        let files: Vec<Value> = paths.iter().map(|path| json!({"path": path, "contents": {"source": "data:,x"}})).collect();
        let unit = |name: &str| json!({"name": name, "enabled": true, "contents": INSTALL});
        let units = ["a.service", "b.service"];
        let (config, mut tree) = machine(&json!({"storage": {"files": files}, "systemd": {"units": units.map(unit)}}));
        let paths: Vec<String> = paths.into_iter().chain(units.map(|unit| format!("/etc/systemd/system/{unit}"))).collect();
        for (path, how) in paths.iter().zip(&how) {
            let before = tree.node(path).unwrap();
            tree.put(path, mutate_node(&before, *how));
        }
        let repair = plan_repair(&config, &tree, STYLE).unwrap();
        tree.apply(&repair.plan);
        let left = findings(&config, &tree);
        for (path, how) in paths.iter().zip(&how) {
            let (quoted, is_obstructed) = (format!("{path:?}"), matches!(how, 4 | 5));
            prop_assert_eq!(left.iter().any(|finding| finding.path == *path && finding.kind == DriftKind::Type), is_obstructed, "{}: {:?}", path, left);
            prop_assert_eq!(repair.not_repaired.iter().any(|problem| problem.contains(&quoted) && problem.contains("move it away")), is_obstructed, "{:?}", repair.not_repaired);
        }
        let others = left.iter().filter(|finding| finding.kind != DriftKind::Type && finding.kind != DriftKind::Enablement);
        prop_assert_eq!(others.count(), 0, "{:?}", left);
    }
}
