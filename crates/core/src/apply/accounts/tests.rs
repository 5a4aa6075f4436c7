//! Accounts, keys and passwords on hosts that are not MCO's.

use serde_json::{Value, json};

use super::super::tests::{config, tree};
use super::super::{
    ApplyPlan, BASELINE_PATH, FsTree as _, HostDefaults, InMemoryTree, KeysFiles, plan_apply,
};
use super::*;
use crate::api::MachineConfig;
use crate::api::names::path::CURRENT_CONFIG;
use crate::apply::{empty_config, parse_current_config};
use crate::reconcile_check::{ValidationOverrides, check_reconcilable};

fn try_plan(
    tree: &InMemoryTree,
    new: &MachineConfig,
    pattern: Option<&str>,
) -> Result<ApplyPlan, ApplyError> {
    let old = match tree.read(CURRENT_CONFIG) {
        Ok(bytes) => parse_current_config(&bytes).unwrap(),
        Err(_) => empty_config(),
    };
    let overrides = ValidationOverrides { any_user: true, ..ValidationOverrides::default() };
    let change = check_reconcilable(&old, new, overrides).unwrap();
    let names = ["core", "alice", "bob"];
    let keys_files: KeysFiles =
        names.iter().map(|name| ((*name).to_owned(), pattern.map(str::to_owned))).collect();
    let owner = FileOwner { uid: 0, gid: 0 };
    let defaults =
        HostDefaults { owner, today: 20_000, keys_files: Some(keys_files), has_containerd: false };
    plan_apply(&old, new, &change, tree, defaults)
}

fn apply_users(tree: &mut InMemoryTree, users: &Value) -> Result<ApplyPlan, ApplyError> {
    let plan = try_plan(
        tree,
        &config("x", &json!({"passwd": {"users": users}})),
        Some(".ssh/authorized_keys"),
    )?;
    tree.apply(&plan);
    Ok(plan)
}

fn text(tree: &InMemoryTree, path: &str) -> String {
    String::from_utf8(tree.read(path).unwrap()).unwrap()
}

fn files(tree: &InMemoryTree) -> Vec<String> {
    ["/etc/passwd", "/etc/group", "/etc/shadow"].map(|path| text(tree, path)).to_vec()
}

#[test]
fn keys_go_where_sshd_reads_them_and_the_password_stays() {
    let mut tree = tree();
    let shadow = text(&tree, "/etc/shadow");
    tree.add_file("/home/core/.ssh/authorized_keys", b"ssh-rsa mine\n");
    apply_users(&mut tree, &json!([{"name": "core", "sshAuthorizedKeys": ["k1", "k2"]}])).unwrap();
    let keys = text(&tree, "/home/core/.ssh/authorized_keys");
    assert!(keys.starts_with("ssh-rsa mine\n# BEGIN machinist") && keys.contains("\nk1\nk2\n#"));
    assert_eq!(text(&tree, "/etc/shadow"), shadow);
    // A password of the config comes, and goes with it.
    let user = json!([{"name": "core", "sshAuthorizedKeys": ["k1"], "passwordHash": "$6$x"}]);
    apply_users(&mut tree, &user).unwrap();
    assert!(text(&tree, "/etc/shadow").starts_with("core:$6$x:20000:0:"));
    apply_users(&mut tree, &json!([{"name": "core", "sshAuthorizedKeys": ["k1"]}])).unwrap();
    assert_eq!(text(&tree, "/etc/shadow"), shadow);
    apply_users(&mut tree, &json!([])).unwrap();
    assert_eq!(text(&tree, "/home/core/.ssh/authorized_keys"), "ssh-rsa mine\n");
    assert!(tree.read(BASELINE_PATH).is_err());
}

#[test]
fn users_are_created_and_removed_without_a_trace() {
    let mut tree = tree();
    tree.add_file("/etc/group", b"root:x:0:\ncore:x:1000:\nsudo:x:27:core\n");
    let before = files(&tree);
    let alice =
        json!({"name": "alice", "groups": ["sudo"], "gecos": "Alice", "sshAuthorizedKeys": ["k"]});
    let bob = json!({"name": "bob", "uid": 1500, "shell": "/bin/sh", "homeDir": "/srv/bob"});
    apply_users(&mut tree, &json!([alice, bob])).unwrap();
    assert!(text(&tree, "/etc/passwd").ends_with(
        "alice:x:1001:1001:Alice:/home/alice:/bin/sh\nbob:x:1500:1500::/srv/bob:/bin/sh\n"
    ));
    assert!(
        text(&tree, "/etc/group").ends_with("sudo:x:27:core,alice\nalice:x:1001:\nbob:x:1500:\n")
    );
    assert!(text(&tree, "/etc/shadow").contains("\nalice:*:20000:0:99999:7:::\n"));
    let owner = FileOwner { uid: 1001, gid: 1001 };
    let home = FsNode::Directory { meta: FileMeta { mode: 0o700, owner } };
    assert_eq!(tree.node("/home/alice").unwrap(), home);
    assert_eq!(tree.node("/home/alice/.ssh").unwrap(), home);
    // Again is nothing, and a file may belong to a new user.
    let plan = apply_users(&mut tree, &json!([alice, bob])).unwrap();
    assert!(plan.steps.is_empty(), "{:?}", plan.steps);
    apply_users(&mut tree, &json!([])).unwrap();
    assert_eq!(files(&tree), before);
    assert_eq!(tree.node("/home/alice").unwrap(), FsNode::Absent);
    assert!(tree.read(BASELINE_PATH).is_err());
}

#[test]
fn a_file_may_belong_to_a_user_of_the_same_config() {
    let new = config(
        "x",
        &json!({"passwd": {"users": [{"name": "alice"}]}, "storage": {"files": [
            {"path": "/srv/a", "user": {"name": "alice"}, "contents": {"source": "data:,x"}}]}}),
    );
    let mut tree = tree();
    let plan = try_plan(&tree, &new, None).unwrap();
    tree.apply(&plan);
    let FsNode::File { meta, .. } = tree.node("/srv/a").unwrap() else { panic!() };
    assert_eq!(meta.owner.uid, 1001);
}

#[test]
fn what_does_not_fit_names_user_field_and_remedy() {
    for (user, expected) in [
        (
            json!({"name": "core", "uid": 7}),
            "passwd.users: uid of \"core\" is 7, but the machine's user has 1000: change the user with usermod",
        ),
        (
            json!({"name": "core", "shell": "/bin/zsh"}),
            "passwd.users: shell of \"core\" is /bin/zsh, but",
        ),
        (json!({"name": "core", "homeDir": "/x"}), "passwd.users: homeDir of \"core\" is /x, but"),
        (
            json!({"name": "alice", "groups": ["docker"]}),
            "passwd.users: groups of \"alice\" needs the group docker, which",
        ),
        (
            json!({"name": "alice", "uid": 1000}),
            "passwd.users: uid of \"alice\" is 1000, which another user has",
        ),
        (json!({"name": "a:b"}), "passwd.users: name of \"a:b\" is not a user name"),
        (
            json!({"name": "alice", "gecos": "a:b"}),
            "passwd.users: gecos of \"alice\" contains a colon",
        ),
        (
            json!({"name": "alice", "homeDir": "home"}),
            "passwd.users: homeDir of \"alice\" is not an absolute path",
        ),
    ] {
        let mut tree = tree();
        let error = apply_users(&mut tree, &json!([user])).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let keys = json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k"]}]}});
    let error = try_plan(&tree(), &config("x", &keys), None).unwrap_err().to_string();
    assert!(error.contains("sshAuthorizedKeys of \"core\" has no effect: sshd"), "{error}");
}

/// Earlier versions treated `core` as on MCO's hosts, and locked its password.
#[test]
fn a_password_that_an_earlier_version_locked_is_restored() {
    let mut tree = tree();
    let first =
        config("x", &json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k"]}]}}));
    let plan = super::super::tests::try_plan_on(&tree, &empty_config(), &first).unwrap();
    tree.apply(&plan);
    assert!(text(&tree, "/etc/shadow").starts_with("core:*:"));
    apply_users(&mut tree, &json!([{"name": "core", "sshAuthorizedKeys": ["k", "l"]}])).unwrap();
    assert!(text(&tree, "/etc/shadow").starts_with("core:!:1:"));
    assert!(text(&tree, "/home/core/.ssh/authorized_keys").contains("\nk\nl\n"));
    assert!(tree.read("/home/core/.ssh/authorized_keys.d/ignition").is_err());
}

/// A file is written back whole: what cannot be read exactly is refused, and stays as it is.
#[test]
fn a_line_that_is_not_utf_8_is_named_and_nothing_is_lost() {
    let mut tree = tree();
    let old = b"root:x:0:0::/root:/bin/sh\nren\xe9:x:1500:1500::/home/r:/bin/sh\n";
    tree.add_file("/etc/passwd", old);
    let error = apply_users(&mut tree, &json!([{"name": "alice"}])).unwrap_err().to_string();
    assert!(error.contains("/etc/passwd: line 2 is not UTF-8: write it in UTF-8"), "{error}");
    assert_eq!(tree.read("/etc/passwd").unwrap(), old);
}

/// A user can put a link in the place of the file with its keys; the daemon writes as root.
#[test]
fn a_link_in_the_place_of_the_keys_is_replaced_and_not_followed() {
    let mut tree = tree();
    let shadow = text(&tree, "/etc/shadow");
    tree.add_link("/home/core/.ssh/authorized_keys", "/etc/shadow");
    apply_users(&mut tree, &json!([{"name": "core", "sshAuthorizedKeys": ["k"]}])).unwrap();
    assert_eq!(text(&tree, "/etc/shadow"), shadow);
    let keys = text(&tree, "/home/core/.ssh/authorized_keys");
    assert!(keys.starts_with("# BEGIN machinist") && keys.contains("\nk\n"), "{keys}");
}
